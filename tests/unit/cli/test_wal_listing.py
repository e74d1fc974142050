import pytest

from broker.cli.wal_listing import list_objects, show_object
from broker.objectstore.errors import NotFound

from .wal_look_world import NOW_MS, LookWorld


async def test_each_object_has_a_line() -> None:
    world = LookWorld()
    world.put_bytes("readme.txt", b"hello", age_ms=61_000)
    lines = [line.split() async for line in list_objects(world.bucket, NOW_MS, with_slices=True)]
    assert lines == [
        ["AGE", "SIZE", "BROKER", "SLICES", "KEY"],
        ["61", "5", "?", "?", "readme.txt"],
        ["4", str(world.first.size), "1", "2", world.first.metadata.object_key],
        ["4", str(world.second.size), "1", "1", world.second.metadata.object_key],
    ]


async def test_without_slices_nothing_is_read_and_a_corrupt_object_tells_no_slices() -> None:
    world = LookWorld()
    lines = [line.split() async for line in list_objects(world.bucket, NOW_MS, with_slices=False)]
    assert [line[3] for line in lines] == ["SLICES", "?", "?"]
    world.flip(world.first, -1)
    lines = [line.split() async for line in list_objects(world.bucket, NOW_MS, with_slices=True)]
    assert [line[2:4] for line in lines] == [["BROKER", "SLICES"], ["1", "?"], ["1", "1"]]


async def test_more_objects_than_are_read_at_a_time() -> None:
    world = LookWorld()
    for number in range(40):
        world.put_bytes(f"n/{number:02d}", b"x")
    keys = [line.split()[-1] async for line in list_objects(world.bucket, NOW_MS, with_slices=True)]
    assert keys[1:41] == [f"n/{number:02d}" for number in range(40)]
    assert len(keys) == 43


async def test_an_object_is_shown_with_its_slices() -> None:
    world = LookWorld()
    lines, is_whole = await show_object(world.bucket, world.first.metadata.object_key)
    assert is_whole
    assert lines[:9] == [
        f"key      {world.first.metadata.object_key}",
        f"size     {world.first.size} bytes",
        "stored   2027-01-15T07:59:56.000+00:00",
        "bucket   file:///zone-a",
        "broker   1, epoch 7",
        "id       AAAAAAAAAAAAAAAAAAAAAQ",
        "made     2027-01-15T07:59:55.000+00:00",
        "oldest   appended 2027-01-15T07:59:54.000+00:00",
        "slices   2",
    ]
    bar, foo = world.first.metadata.slices
    assert [line.split() for line in lines[10:]] == [
        ["bar-3", "0-1", "1", "1:0", "0", str(bar.size_in_bytes), f"{bar.slice_crc32c:#010x}", "ok"],
        [
            *("foo-0", "0-4", "1", "0:0,1:3", str(foo.position_in_object), str(foo.size_in_bytes)),
            *(f"{foo.slice_crc32c:#010x}", "ok"),
        ],
    ]


async def test_a_corrupt_slice_or_table_is_told() -> None:
    world = LookWorld()
    world.flip(world.first, 0)
    lines, is_whole = await show_object(world.bucket, world.first.metadata.object_key)
    assert not is_whole
    assert "is corrupt: CRC" in lines[10]
    assert lines[11].endswith("ok")
    world.flip(world.first, -1)
    lines, is_whole = await show_object(world.bucket, world.first.metadata.object_key)
    assert not is_whole
    assert lines[-1].startswith("corrupt  The last bytes are no footer")
    with pytest.raises(NotFound):
        await show_object(world.bucket, "none")
