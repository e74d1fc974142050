"""RemoteLogAccess: what replicas ask remote storage for, for clients and followers (Kafka: RemoteLogManager)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.common.errors import OffsetOutOfRangeError
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.log_segment import TimestampAndOffset
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteFetch, RemoteLogState, RemoteRecords
from broker.tiering.first_epochs import ensure_epoch_is_known
from broker.tiering.log_lookups import LogLookups, id_of
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_reader import RemoteLogReader
from broker.tiering.remote_log_readers import RemoteLogReaders
from broker.tiering.remote_log_state import read_state_before
from broker.tiering.remote_log_stats import RemoteLogStats, RemoteTopicStats
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_manager import RemoteStorageManager
from broker.tiering.remote_timestamps import find_remote_offset


class RemoteLogAccess:
    """The port `broker.replication.remote_log.RemoteLog`."""

    def __init__(
        self,
        *,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        reader: RemoteLogReader,
        quota: RemoteQuota,
        stats: RemoteLogStats,
        config: ConfigHolder[BrokerConfig],
    ) -> None:
        """`quota` is that of fetches."""
        self._metadata = metadata
        self._storage = storage
        self._reader = reader
        self._quota = quota
        self._stats = stats
        self._readers = RemoteLogReaders(
            lambda: config.current.remote_log_reader_threads,
            lambda: config.current.remote_log_reader_max_pending_tasks,
            stats,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteLogAccess"]:
        """Reads happen within this."""
        async with self._readers.running():
            yield self

    @property
    def is_fetch_quota_exceeded(self) -> bool:
        """Asked once for each fetch that wants to read here: when it is so, the fetch is counted as throttled."""
        is_exceeded = self._quota.is_exceeded
        if is_exceeded:
            self._quota.observe_throttle()
        return is_exceeded

    def fetch(self, fetch: RemoteFetch) -> "asyncio.Future[RemoteRecords]":
        stats = self._stats.topic(fetch.partition.topic_partition.topic)
        return self._readers.submit(str(fetch.partition.topic_partition), lambda: self._fetch(fetch, stats))

    async def _fetch(self, fetch: RemoteFetch, stats: RemoteTopicStats) -> RemoteRecords:
        stats.fetch_requests += 1
        time = asyncio.get_running_loop().time
        began = time()
        try:
            found = await self._read(fetch)
        except OffsetOutOfRangeError:
            raise
        except Exception:
            stats.fetch_errors += 1
            raise
        finally:
            self._stats.read_seconds.observe(time() - began)
        stats.fetch_bytes += len(found.records)
        self._quota.record(len(found.records))
        return found

    async def _read(self, fetch: RemoteFetch) -> RemoteRecords:
        found = await self._reader.read(
            LogLookups(fetch.partition, self._metadata),
            fetch.offset,
            fetch.size_max,
            fetch.upper_bound_offset,
            min_one_message=fetch.min_one_message,
            only_committed=fetch.only_committed,
        )
        if found.next_offset is not None and found.next_offset < fetch.partition.log.local_log_start_offset:
            raise OffsetOutOfRangeError(f"no remote segment has offset {found.next_offset}, nor has the local log")
        aborted = None if found.aborted is None else tuple(found.aborted)
        return RemoteRecords(found.records, aborted, found.next_offset)

    def find_offset(
        self, partition: Partition, timestamp: int, starting_offset: int
    ) -> "asyncio.Future[TimestampAndOffset | None]":
        return self._readers.submit(
            str(partition.topic_partition),
            lambda: self._find_offset(partition, timestamp, starting_offset),
        )

    async def _find_offset(
        self, partition: Partition, timestamp: int, starting_offset: int
    ) -> TimestampAndOffset | None:
        ensure_epoch_is_known(partition.log, starting_offset)
        return await find_remote_offset(self._metadata, self._reader, partition, timestamp, starting_offset)

    async def state_before(self, partition: Partition, epoch: int, offset: int) -> RemoteLogState:
        stats = self._stats.topic(partition.topic_partition.topic)
        stats.build_aux_state_requests += 1
        try:
            return await read_state_before(self._metadata, self._storage, id_of(partition), epoch, offset)
        except Exception:
            stats.build_aux_state_errors += 1
            raise
