"""QuorumEndpoint: what observers of the metadata log ask the leader of a quorum of one."""

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from broker.common.clock import Clock
from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.controller.api_error import ApiException
from broker.controller.command_queue import CommandQueue
from broker.controller.metadata_log import MetadataLog, OffsetAndEpoch
from broker.controller.metadata_snapshot import SnapshotId

OBSERVER_FORGOTTEN_AFTER_S: Final = 300.0  # LeaderState.OBSERVER_SESSION_TIMEOUT_MS
OBSERVERS_MAX: Final = 1_000  # far more than a cluster has nodes: whoever invents ids pushes out the longest silent


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFetchRequest:
    """A fetch of `__cluster_metadata-0`: the asking log ends at `fetch_offset`, its last record is of that epoch."""

    replica_id: int
    replica_directory_id: UUID = ZERO_UUID
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    bytes_max: int
    wait_max_ms: int
    high_watermark: int | None = None  # what the follower knows; None when its version does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFetchResult:
    error: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: SnapshotId | None = None
    records: bytes = b""


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    size_bytes: int
    position: int
    data: bytes


@dataclass(slots=True)
class QuorumReplica:
    """One follower of the log as the leader sees it; times are wall clock milliseconds."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int = -1
    seen_at: float = 0.0


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voter: QuorumReplica
    observers: tuple[QuorumReplica, ...]


class QuorumEndpoint:
    """Serves only what is durable: below the high watermark."""

    def __init__(self, node_id: int, metadata_log: MetadataLog, queue: CommandQueue, clock: Clock) -> None:
        self.node_id = node_id
        self._log = metadata_log
        self._queue = queue
        self._clock = clock
        self._observers: dict[tuple[int, UUID], QuorumReplica] = {}  # who fetched last stands last

    @property
    def leader_epoch(self) -> int:
        return self._queue.epoch

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Whether the asker knows who leads; the answer tells it either way."""
        if not self._queue.is_active:
            return ErrorCode.broker_not_available
        if epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        if epoch > self.leader_epoch:
            return ErrorCode.unknown_leader_epoch
        return ErrorCode.none

    # Fetch

    async def fetch(self, request: MetadataFetchRequest) -> MetadataFetchResult:
        """What comes after the follower's log; waits for something to come, up to `wait_max_ms`."""
        result = self._fetch_now(request)
        if not self._has_to_wait(request, result):
            return result
        await self._wait_for_high_watermark(request.wait_max_ms / 1000)
        return self._fetch_now(request)

    def _fetch_now(self, request: MetadataFetchRequest) -> MetadataFetchResult:
        if request.fetch_offset < 0 or request.last_fetched_epoch > request.current_leader_epoch:
            return MetadataFetchResult(error=ErrorCode.invalid_request)
        error = self.check_leader_epoch(request.current_leader_epoch)
        if error is not ErrorCode.none:
            return MetadataFetchResult(error=error)
        self._note_observer(request)
        position = self._log.check_position(request.fetch_offset, request.last_fetched_epoch)
        records = b""
        if position.diverging is None and position.snapshot is None:
            records = self._log.read(request.fetch_offset, request.bytes_max)
        return MetadataFetchResult(
            high_watermark=self._log.high_watermark,
            log_start_offset=self._log.start_offset,
            diverging=position.diverging,
            snapshot=position.snapshot,
            records=records,
        )

    def _has_to_wait(self, request: MetadataFetchRequest, result: MetadataFetchResult) -> bool:
        has_answer = result.error is not ErrorCode.none or result.records or result.diverging or result.snapshot
        knows_high_watermark = request.high_watermark is None or request.high_watermark >= result.high_watermark
        return not has_answer and knows_high_watermark and request.wait_max_ms > 0

    async def _wait_for_high_watermark(self, timeout: float) -> None:
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not moved.done():
                moved.set_result(None)

        self._log.high_watermark_listeners[wake] = None
        try:
            await asyncio.wait_for(moved, timeout)
        except TimeoutError:
            return
        finally:
            del self._log.high_watermark_listeners[wake]

    def wake_fetches(self) -> None:
        """Let every parked fetch answer now: the controller stops."""
        for listener in list(self._log.high_watermark_listeners):
            listener()

    # FetchSnapshot

    def read_snapshot(self, snapshot: SnapshotId, position: int, bytes_max: int) -> SnapshotChunk:
        """A piece of a snapshot, cut anywhere.  ApiException: not found (any more), or position out of range."""
        if not self._log.has_snapshot(snapshot):
            raise ApiException(ErrorCode.snapshot_not_found, f"There is no snapshot {snapshot.file_name}.")
        size_bytes, data = self._log.read_snapshot(snapshot, max(position, 0), max(bytes_max, 0))
        if not 0 <= position < size_bytes:
            raise ApiException(ErrorCode.position_out_of_range, f"The snapshot has {size_bytes} bytes.")
        return SnapshotChunk(size_bytes, position, data)

    # DescribeQuorum

    def _note_observer(self, request: MetadataFetchRequest) -> None:
        if request.replica_id < 0 or request.replica_id == self.node_id:
            return  # a consumer; or the broker of our own process, whose id is the voter's
        now_ms, now = self._clock.now_ms(), asyncio.get_running_loop().time()
        key = (request.replica_id, request.replica_directory_id)
        observer = self._observers.pop(key, None) or QuorumReplica(*key, request.fetch_offset, now_ms)
        if len(self._observers) >= OBSERVERS_MAX:
            del self._observers[next(iter(self._observers))]
        self._observers[key] = observer
        observer.log_end_offset = request.fetch_offset
        observer.last_fetch_ms, observer.seen_at = now_ms, now
        if request.fetch_offset >= self._log.high_watermark:
            observer.last_caught_up_ms = now_ms

    def describe(self) -> QuorumDescription:
        """The quorum: ourselves, and who fetched lately."""
        now_ms, now = self._clock.now_ms(), asyncio.get_running_loop().time()
        for key in [key for key, each in self._observers.items() if now - each.seen_at > OBSERVER_FORGOTTEN_AFTER_S]:
            del self._observers[key]
        voter = QuorumReplica(self.node_id, ZERO_UUID, self._log.end_offset, now_ms, now_ms)
        observers = tuple(self._observers[key] for key in sorted(self._observers))
        return QuorumDescription(self.node_id, self.leader_epoch, self._log.high_watermark, voter, observers)
