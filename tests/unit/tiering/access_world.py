"""A broker whose consumers are read from remote storage: `TaskWorld` and what reads its bucket."""

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.common.tasks import BackgroundTasks
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.partition import Partition
from broker.tiering.log_lookups import id_of
from broker.tiering.remote_index_cache import RemoteIndexCache
from broker.tiering.remote_log_access import RemoteLogAccess
from broker.tiering.remote_log_chunks import RemoteLogChunks
from broker.tiering.remote_log_reader import RemoteLogReader
from broker.tiering.remote_quota import RemoteQuota
from tests.support.builders import batch, parsed
from tests.support.sim_loop import SimLoop, simulate

from .task_world import TaskWorld

MUCH = 1 << 20
CONSUMER = FetchParams(version=12)
COMMITTED = FetchParams(version=12, isolation_level=1)


class AccessWorld(TaskWorld):
    """`access` answers within `reading`."""

    access: RemoteLogAccess
    indexes: RemoteIndexCache

    @asynccontextmanager
    async def reading(self, *, chunk_bytes: int = 1 << 16) -> AsyncIterator["AccessWorld"]:
        directory, storage = self.replicas.logs.directory, self.remote.storage
        disk = InlineDiskExecutor()
        self.indexes = RemoteIndexCache(directory, MUCH, storage, OsFileSystem(), disk)
        async with BackgroundTasks("chunks") as tasks, self.indexes.running():
            chunks = RemoteLogChunks(storage, tasks, chunk_bytes=chunk_bytes)
            self.access = RemoteLogAccess(
                metadata=self.metadata,
                storage=storage,
                reader=RemoteLogReader(self.indexes, chunks, disk),
                quota=RemoteQuota.for_fetches(self.replicas.config, self.stats),
                stats=self.stats,
                config=self.replicas.config,
            )
            self._install()
            async with self.access.running():
                yield self

    def _install(self) -> None:
        """A broker has its access before its replicas."""
        replicas = self.replicas.replicas
        replicas._reader._remote_log = self.access
        replicas.remote_fetches._remote_log = self.access
        replicas.remote_offset_lookups._remote_log = self.access

    # The topic

    def tiered_topic(self, name: str = "t", **options: Any) -> Partition:
        """`local.retention.bytes` of 1: what is copied leaves the disk with `move`."""
        return self.topic(name, local_retention_bytes=1, **options)

    async def move(self, name: str = "t", partition: int = 0) -> None:
        """Closed segments are copied, and leave the disk."""
        replica = self.replicas.partition(name, partition)
        task = self.copy_task(self.tiered(id_of(replica)))
        await task.run()
        replica.log.flush()
        while replica.log.delete_old_segments():
            pass

    def write(self, *batches: bytearray, topic: str = "t") -> None:
        """As they are, a segment each."""
        for each in batches:
            self.replicas.partition(topic).log.roll()
            self.replicas.append(each, topic=topic)

    def end(self, producer_id: int, kind: ControlRecordType, topic: str = "t", *, is_rolled: bool = True) -> None:
        """The marker of a transaction, in a segment of its own unless told."""
        partition = self.replicas.partition(topic)
        if is_rolled:
            partition.log.roll()
        marker = end_transaction_marker_batch(
            EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=self.clock.now_ms()
        )
        results = partition.append_records_to_leader(parsed(marker), AppendOrigin.COORDINATOR)
        assert all(result.error is None for result in results), results

    # Requests

    async def fetch(self, *requests: FetchPartition, params: FetchParams = CONSUMER) -> Sequence[FetchPartitionResult]:
        return await self.replicas.fetch(params, *requests)

    async def fetch_one(self, offset: int, params: FetchParams = CONSUMER, size: int = MUCH) -> FetchPartitionResult:
        (result,) = await self.fetch(FetchPartition("t", 0, offset, size), params=params)
        return result


def transactional(value: str, producer_id: int, sequence: int = 0) -> bytearray:
    return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def reading(
    directory: Path,
    story: Callable[[AccessWorld], Coroutine[Any, Any, None]],
    properties: Mapping[str, str] | None = None,
    *,
    chunk_bytes: int = 1 << 16,
) -> None:
    """Tell the story in virtual time."""

    async def run(loop: SimLoop) -> None:
        world = AccessWorld(directory, loop, properties)
        async with world.remote.storage.running(), world.reading(chunk_bytes=chunk_bytes):
            await story(world)

    simulate(run)
