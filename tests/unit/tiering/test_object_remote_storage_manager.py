"""Remote segments as objects: what is put in which order, read in which ranges, and what failures are called."""

from dataclasses import replace
from uuid import UUID

import pytest

from broker.common.file_system import read_file
from broker.common.identifiers import TopicIdPartition
from broker.config.setting import ConfigError
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault
from broker.objectstore.objects import PartSizes
from broker.tiering import object_remote_storage_manager
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_storage_manager import IndexType, PartitionDirectory, StoresDirectories
from tests.support.sim_disk import SimFileSystem

from .segment_world import PARTITION
from .storage_world import EPOCHS, SNAPSHOT, Aborted, Bucket, Made, batch, context, make_segment, settings
from .storage_world import storage_manager as made_manager

FOLDER = "tiered/cluster/topic-0-AAAAEAAAAAAAAAAAAAAAAA/"
OTHER_FOLDER = "tiered/cluster/other-3-AAAAAAAAAAAAAAAAAAAABw/"
NAME = FOLDER + "00000000000000000010-AAAAAAAAAAAAAAAAAAAAAQ"


class World:
    def __init__(self, *, part_size_bytes: int = 8 << 20) -> None:
        self.disk = SimFileSystem()
        self.bucket = Bucket()
        sizes = PartSizes(part_size_bytes=part_size_bytes, parallel=2)
        self.manager = made_manager(self.bucket, self.disk, settings(part_sizes=sizes))

    def segment(self, number: int = 1, *, aborted: bool = True) -> Made:
        batches = [batch(10), batch(11, count=3), batch(14)]
        return make_segment(self.disk, number, batches, aborted=[Aborted(5, 10, 14, 15)] if aborted else [])

    def numbers(self, folder: str) -> list[int]:
        """When the remote segments' objects there were stored."""
        return [at for name, at in self.bucket.inner.modified_ms.items() if name.startswith(folder + "0" * 18)]

    async def fetched(self, made: Made, start: int, end: int | None = None) -> list[bytes]:
        return [piece async for piece in self.manager.fetch_log_segment(made.segment, start, end)]


async def test_a_segment_is_copied_with_all_that_belongs_to_it() -> None:
    world = World()
    made = world.segment()
    async with world.manager.running():
        assert await world.manager.copy_log_segment_data(made.segment, made.data) is None
        assert made.data.transaction_index is not None
        files = {
            IndexType.OFFSET: read_file(world.disk, made.data.offset_index),
            IndexType.TIMESTAMP: read_file(world.disk, made.data.time_index),
            IndexType.TRANSACTION: read_file(world.disk, made.data.transaction_index),
            IndexType.PRODUCER_SNAPSHOT: SNAPSHOT,
            IndexType.LEADER_EPOCH: EPOCHS,
        }
        assert len(files[IndexType.TRANSACTION]) == 34
        assert {each: await world.manager.fetch_index(made.segment, each) for each in IndexType} == files
        assert await world.fetched(made, 0) == [made.log]
    # In the order they were put: the log comes last.
    suffixes = [".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint", ".log"]
    assert list(world.bucket.objects) == [NAME + suffix for suffix in suffixes]
    assert world.bucket.inner.closed
    assert world.disk.open_files == 0


async def test_without_aborted_transactions_there_is_no_index_of_them() -> None:
    world = World()
    made = world.segment(aborted=False)
    async with world.manager.running():
        await world.manager.copy_log_segment_data(made.segment, made.data)
        assert NAME + ".txnindex" not in world.bucket.objects
        with pytest.raises(RemoteResourceNotFoundError, match=r"topic-0 at 10: there is no .*\.txnindex"):
            await world.manager.fetch_index(made.segment, IndexType.TRANSACTION)


async def test_an_empty_index_is_empty() -> None:
    world = World()
    made = make_segment(world.disk, 1, [batch(10)])
    async with world.manager.running():
        await world.manager.copy_log_segment_data(made.segment, made.data)
        assert await world.manager.fetch_index(made.segment, IndexType.OFFSET) == b""


async def test_a_range_ends_where_it_is_told_to_or_with_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_remote_storage_manager, "PIECE_BYTES", 50)
    world = World()
    made = world.segment()
    size = len(made.log)
    async with world.manager.running():
        await world.manager.copy_log_segment_data(made.segment, made.data)
        assert await world.fetched(made, 3, 3) == [made.log[3:4]]
        assert await world.fetched(made, 10, 59) == [made.log[10:60]]
        assert await world.fetched(made, 10, 60) == [made.log[10:60], made.log[60:61]]
        assert await world.fetched(made, size - 60, size + 1000) == [made.log[-60:-10], made.log[-10:]]
        assert b"".join(await world.fetched(made, 0)) == made.log
        assert await world.fetched(made, size) == []


async def test_a_large_log_goes_up_in_parts_and_pieces_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_remote_storage_manager, "PIECE_BYTES", 50)
    world = World(part_size_bytes=100)
    made = world.segment()
    assert len(made.log) > 200
    async with world.manager.running():
        await world.manager.copy_log_segment_data(made.segment, made.data)
        assert world.bucket.inner.uploads_started == 1
        assert world.bucket.objects[NAME + ".log"] == made.log
        pieces = world.manager.fetch_log_segment(made.segment, 0)
        assert await anext(pieces) == made.log[:50]
        world.bucket.objects.clear()  # the next piece has not been asked for yet
        with pytest.raises(RemoteResourceNotFoundError):
            await anext(pieces)


async def test_only_what_is_told_of_the_log_is_copied() -> None:
    world = World()
    made = world.segment()
    shorter = replace(made.segment, segment_size_in_bytes=79)
    async with world.manager.running():
        await world.manager.copy_log_segment_data(shorter, made.data)
        assert world.bucket.objects[NAME + ".log"] == made.log[:79]
        longer = replace(made.segment, segment_size_in_bytes=len(made.log) + 1)
        with pytest.raises(RemoteStorageError, match=r"where .* were expected"):
            await world.manager.copy_log_segment_data(longer, made.data)


async def test_14_a_copy_that_failed_leaves_no_log_and_what_it_left_is_deleted() -> None:
    world = World(part_size_bytes=100)
    made = world.segment()
    async with world.manager.running():
        world.bucket.failing.fail_next(Operation.UPLOAD_PART, *[Fault.RESET] * 4)
        with pytest.raises(RemoteStorageError, match="topic-0 at 10"):
            await world.manager.copy_log_segment_data(made.segment, made.data)
        assert NAME + ".index" in world.bucket.objects
        assert NAME + ".log" not in world.bucket.objects
        assert world.bucket.inner.uploads == {}
        await world.manager.copy_log_segment_data(made.segment, made.data)  # again is fine
        assert world.bucket.objects[NAME + ".log"] == made.log
        await world.manager.delete_log_segment_data(made.segment)
        assert world.bucket.objects == {}
        await world.manager.delete_log_segment_data(made.segment)
    assert world.disk.open_files == 0


async def test_a_file_that_is_missing_stops_the_copy_before_the_log() -> None:
    world = World()
    made = world.segment()
    world.disk.remove(made.data.producer_snapshot_index)
    async with world.manager.running():
        with pytest.raises(RemoteStorageError, match=r"00000000000000000015\.snapshot"):
            await world.manager.copy_log_segment_data(made.segment, made.data)
    assert NAME + ".log" not in world.bucket.objects


async def test_deleting_takes_one_segment_only() -> None:
    world = World()
    first, second = world.segment(1), world.segment(2)
    async with world.manager.running():
        for each in (first, second):
            await world.manager.copy_log_segment_data(each.segment, each.data)
        assert len(world.bucket.objects) == 12
        await world.manager.delete_log_segment_data(first.segment)
        assert len(world.bucket.objects) == 6
        assert await world.fetched(second, 0) == [second.log]
        with pytest.raises(RemoteResourceNotFoundError):
            await world.fetched(first, 0)


async def test_failures_of_the_store_are_repeated_then_told() -> None:
    world = World()
    made = world.segment()
    async with world.manager.running():
        await world.manager.copy_log_segment_data(made.segment, made.data)
        world.bucket.failing.fail_next(Operation.GET_RANGE, Fault.SLOW_DOWN)
        assert await world.fetched(made, 0) == [made.log]
        world.bucket.failing.fail_next(Operation.GET_RANGE, Fault.SLOW_DOWN, Fault.SLOW_DOWN)
        with pytest.raises(RemoteStorageError) as told:
            await world.fetched(made, 0)
        assert not isinstance(told.value, RemoteResourceNotFoundError)
        world.bucket.failing.fail_next(Operation.DELETE_MANY, Fault.RESET, Fault.RESET)
        with pytest.raises(RemoteStorageError):
            await world.manager.delete_log_segment_data(made.segment)


async def test_directories_of_partitions_are_listed_and_deleted() -> None:
    world = World()
    first, second = world.segment(1), world.segment(2)
    other = replace(second.segment, partition=TopicIdPartition(UUID(int=7), "other", 3))
    strangers = [FOLDER + "notes.txt", "tiered/cluster/readme", "tiered/another/topic-0-AAAAEAAAAAAAAAAAAAAAAA/x"]
    async with world.manager.running():
        assert isinstance(world.manager, StoresDirectories)
        assert await world.manager.partition_directories() == []
        for each in (first.segment, second.segment, other):
            await world.manager.copy_log_segment_data(each, first.data if each is first.segment else second.data)
        for name in strangers:
            await world.bucket.inner.put(name, b"")
        for number, name in enumerate(sorted(world.bucket.objects)):
            world.bucket.inner.modified_ms[name] = number
        one, another = (
            PartitionDirectory(FOLDER, PARTITION.topic_id, 0),
            PartitionDirectory(OTHER_FOLDER, UUID(int=7), 3),
        )
        assert sorted(await world.manager.partition_directories()) == [another, one]
        assert await world.manager.newest_ms(one) == max(world.numbers(FOLDER))
        assert await world.manager.newest_ms(another) == max(world.numbers(OTHER_FOLDER))
        assert await world.manager.delete_partition_directory(one) == 12
        assert len(world.bucket.objects) == 6 + len(strangers)
        assert set(strangers) < set(world.bucket.objects)
        assert await world.manager.delete_partition_directory(one) == 0
        assert await world.manager.newest_ms(one) is None


async def test_a_directory_is_deleted_a_thousand_objects_at_a_time() -> None:
    world = World()
    for number in range(2500):
        await world.bucket.inner.put(f"{FOLDER}{number:020d}-AAAAAAAAAAAAAAAAAAAAAQ.log", b"")
    directory = PartitionDirectory(FOLDER, UUID(int=1), 0)
    async with world.manager.running():
        world.bucket.failing.fail_next(Operation.LIST, Fault.RESET, Fault.RESET)
        with pytest.raises(RemoteStorageError, match="objects below tiered/cluster/"):
            await world.manager.partition_directories()
        world.bucket.failing.fail_next(Operation.DELETE_MANY, Fault.RESET, Fault.RESET)
        with pytest.raises(RemoteStorageError, match=f"objects below {FOLDER}"):
            await world.manager.delete_partition_directory(directory)
        assert await world.manager.delete_partition_directory(directory) == 2500
    assert world.bucket.objects == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bucket": "nowhere"}, r"rsm\.config\.bucket: .*nowhere"),
        ({"key_prefix": "a/"}, r"rsm\.config\.key\.prefix: "),
    ],
)
def test_settings_it_cannot_work_with(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalTieredStorage(context(None, storage_settings=settings(**changes)))
