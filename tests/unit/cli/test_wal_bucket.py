from pathlib import Path

import pytest

from broker.cli import wal_bucket
from broker.cli.wal_bucket import BucketPlace, WalBucket, bucket_url
from broker.config.setting import ConfigError
from broker.objectstore.errors import BucketNotFound, NotFound
from broker.wal.objects.combined_segment import FOOTER_SIZE, CorruptObjectError

from .wal_look_world import NOW_MS, LookWorld


def test_a_bucket_is_a_url_or_the_path_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bucket_url("s3://wal/") == "s3://wal"
    assert bucket_url("file:///var/wal/") == "file:///var/wal"
    assert bucket_url("/var/a b") == "file:///var/a b"
    monkeypatch.chdir(tmp_path)
    assert bucket_url("wal") == f"file://{tmp_path}/wal"
    with pytest.raises(ConfigError, match="'gs://wal' is not a bucket: file:///directory or s3://bucket"):
        bucket_url("gs://wal")


async def test_objects_are_those_below_the_prefix_in_order_of_pages() -> None:
    world = LookWorld()
    world.store.objects["of-others"] = b"x"
    world.store._page_size = 1
    world.store.modified_ms["of-others"] = 0
    keys = [world.first.metadata.object_key, world.second.metadata.object_key]
    found = [each async for each in world.bucket.objects()]
    assert [each.key for each in found] == keys
    assert [each.size_bytes for each in found] == [world.first.size, world.second.size]
    assert {each.last_modified_ms for each in found} == {NOW_MS - 4000}
    assert await world.bucket.find(keys[0]) == found[0]
    assert await world.bucket.read(found[1]) == b"".join(bytes(each) for each in world.second.buffers)
    with pytest.raises(NotFound):
        await world.bucket.find("of-others")


@pytest.mark.parametrize("tail_size", [FOOTER_SIZE + 1, 1 << 20])
async def test_a_table_is_read_from_the_end_in_one_request_or_two(
    tail_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wal_bucket, "TAIL_SIZE", tail_size)
    world = LookWorld()
    found = await world.bucket.find(world.first.metadata.object_key)
    assert await world.bucket.table(found) == world.first.metadata


async def test_what_is_too_small_has_no_table() -> None:
    world = LookWorld()
    world.put_bytes("small", b"x" * FOOTER_SIZE)
    with pytest.raises(CorruptObjectError, match=f"{FOOTER_SIZE} bytes are no combined object"):
        await world.bucket.table(await world.bucket.find("small"))
    world.put_bytes("empty", b"")
    assert await world.bucket.read(await world.bucket.find("empty")) == b""


async def test_a_bucket_is_there_when_it_is_opened(tmp_path: Path) -> None:
    async with WalBucket.opened(BucketPlace(tmp_path.as_uri())) as bucket:
        assert [each async for each in bucket.objects()] == []
    with pytest.raises(BucketNotFound):
        async with WalBucket.opened(BucketPlace((tmp_path / "none").as_uri())):
            pass
    with pytest.raises(ConfigError, match="--key-prefix: the prefix 'mine' does not end with '/'"):
        async with WalBucket.opened(BucketPlace(tmp_path.as_uri(), "mine")):
            pass
