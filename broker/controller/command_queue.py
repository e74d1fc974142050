"""CommandQueue: commands become records, records become batches, and answers wait for the disk."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.errors import KafkaError, NotControllerError, StorageFailure
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.metadata_log import MetadataLog
from broker.metadata.metadata_image import MetadataImage
from broker.records.control_record import ControlRecordType, control_batch
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.schemas import cluster_metadata
from broker.schemas.cluster_metadata import MetadataRecord
from broker.schemas.control_messages import LeaderChangeMessage, Voter, encode_control_message

# KafkaRaftClient.MAX_BATCH_SIZE_BYTES and the record bound of one append: what readers of the log are prepared for.
BATCH_BYTES_MAX: Final = 8 << 20
BATCH_RECORDS_MAX: Final = 10_000

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Staged:
    """Encoded records that belong into one batch, and the state once they are durable."""

    values: Sequence[bytes]
    end_offset: int
    image: MetadataImage
    registration_offsets: Mapping[int, int]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.values))


class CommandQueue:
    """A command runs to its end in one turn of the loop: decide, apply, stage.  Then one task writes what is staged.

    What is staged while a batch is being flushed becomes the next batch, so there is one flush for many commands and
    never more than one batch that a crash could tear.
    """

    def __init__(
        self,
        metadata_log: MetadataLog,
        state: ControllerState,
        disk: DiskExecutor,
        clock: Clock,
        segment_bytes_max: int,
        on_flushed: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.epoch = -1
        self.is_active = False
        self.is_roll_wanted = False
        self._log = metadata_log
        self._state = state
        self._disk = disk
        self._clock = clock
        self._segment_bytes_max = segment_bytes_max
        self._on_flushed = on_flushed
        self._staged: deque[_Staged] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._work = asyncio.Event()
        self._durable_image = MetadataImage.EMPTY
        self._durable_registration_offsets: Mapping[int, int] = {}
        self.storage_failures_count = 0

    @property
    def next_offset(self) -> int:
        """The offset the next record gets."""
        return self._staged[-1].end_offset if self._staged else self._log.end_offset

    @property
    def durable_image(self) -> MetadataImage:
        """The state that a crash cannot take away any more: what answers to reads are made from."""
        return self._durable_image

    @property
    def pending_count(self) -> int:
        return len(self._waiting)

    # Commands

    async def run(self, command: Callable[[], ControllerResult[T]]) -> T:
        """Run a command now and answer when its records, and all before them, are durable.

        NotControllerError unless this controller leads; StorageFailure when the records could not be written, in
        which case nothing of the command has happened.
        """
        if not self.is_active:
            raise NotControllerError("The controller does not lead the metadata quorum.")
        result = command()
        self._stage(result)
        if self.next_offset > self._log.high_watermark:
            await self._wait_for(self.next_offset)
        return result.response

    def _stage(self, result: ControllerResult[T]) -> None:
        records = result.records
        if not records:
            return
        assert not result.is_atomic or len(records) <= BATCH_RECORDS_MAX, f"{len(records)} records in one batch"
        for start in range(0, len(records), BATCH_RECORDS_MAX):
            self._stage_batch(records[start : start + BATCH_RECORDS_MAX])

    def _stage_batch(self, records: Sequence[MetadataRecord]) -> None:
        metadata_version = self._state.image.features.metadata_version
        values = [
            cluster_metadata.encode(record, cluster_metadata.record_version(type(record), metadata_version))
            for record in records
        ]
        base_offset = self.next_offset
        self._state.replay(records, base_offset, self.epoch)
        self._staged.append(
            _Staged(values, base_offset + len(values), self._state.image, self._state.registration_offsets)
        )
        self._work.set()

    def _wait_for(self, offset: int) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        return future

    # The log

    def become_leader(self, epoch: int, node_id: int) -> None:
        """Begin an epoch with its control record; durable only after `flush`."""
        self.epoch = epoch
        voter = Voter(voter_id=node_id)
        message = LeaderChangeMessage(leader_id=node_id, voters=(voter,), granting_voters=(voter,))
        batch = control_batch(
            [(ControlRecordType.LEADER_CHANGE, encode_control_message(message))],
            timestamp=self._clock.now_ms(),
            base_offset=self._log.end_offset,
            partition_leader_epoch=epoch,
        )
        self._log.append(batch)
        self._state.skip(self._log.end_offset - 1, epoch)

    def append_now(self, records: Sequence[MetadataRecord]) -> None:
        """Append one batch before there are commands; durable only after `flush`."""
        self._stage_batch(records)
        self._append(self._take_group())

    async def flush(self) -> None:
        """Make everything in the log durable: it is the state from now on."""
        image, registration_offsets = self._state.image, self._state.registration_offsets
        await self._sync(self._log.end_offset, image, registration_offsets)

    async def write_staged(self) -> None:
        """The task: until cancelled, write and flush what is staged.

        A flush that fails ends it, and with it the node: nobody knows what the disk has then.
        """
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                await self._write_all_staged()
        finally:
            self.is_active = False
            self._fail_waiting(NotControllerError("The controller has stopped."))

    async def _write_all_staged(self) -> None:
        while self._staged:
            group = self._take_group()
            try:
                self._append(group)
            except StorageFailure as failure:
                self._revert(failure)
                return
            last = group[-1]
            await self._sync(last.end_offset, last.image, last.registration_offsets)

    def _take_group(self) -> list[_Staged]:
        """As many commands as fit one batch, one at least."""
        group = [self._staged.popleft()]
        size_bytes, count = group[0].size_bytes, len(group[0].values)
        while self._staged:
            size_bytes += self._staged[0].size_bytes
            count += len(self._staged[0].values)
            if size_bytes > BATCH_BYTES_MAX or count > BATCH_RECORDS_MAX:
                break
            group.append(self._staged.popleft())
        return group

    def _append(self, group: Sequence[_Staged]) -> None:
        if self.is_roll_wanted or self._log.active_size_bytes >= self._segment_bytes_max:
            self._log.roll()
            self.is_roll_wanted = False
        builder = MemoryRecordsBuilder(self._log.end_offset, partition_leader_epoch=self.epoch)
        now_ms = self._clock.now_ms()
        for staged in group:
            for value in staged.values:
                builder.append(now_ms, None, value)
        self._log.append(builder.build())
        assert self._log.end_offset == group[-1].end_offset, (self._log.end_offset, group[-1].end_offset)

    async def _sync(self, end_offset: int, image: MetadataImage, registration_offsets: Mapping[int, int]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._disk.run(self._log.active_file.sync)
        self._on_flushed(loop.time() - started)
        self._durable_image = image
        self._durable_registration_offsets = registration_offsets
        self._log.advance_high_watermark(end_offset)
        while self._waiting and self._waiting[0][0] <= end_offset:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def _revert(self, failure: StorageFailure) -> None:
        """The disk took nothing of the group: it, and all that was decided on top of it, never happened."""
        self.storage_failures_count += 1
        log.error("metadata_append_failed", error=str(failure), commands=len(self._waiting))
        self._staged.clear()
        self._state.revert(self._durable_image, self._durable_registration_offsets)
        self._fail_waiting(failure)

    def _fail_waiting(self, error: KafkaError) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)

    async def drain(self) -> None:
        """Refuse commands from now on, and wait for the answers of those that run and are waited for."""
        self.is_active = False
        while waiting := [future for _, future in self._waiting if not future.done()]:
            await asyncio.wait(waiting)
