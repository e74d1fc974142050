"""LogFlush: what of a log is on the device, and the recovery point that says so."""

import time
from typing import TYPE_CHECKING

from broker.common.errors import StorageFailure
from broker.log.flush_plan import FlushPlan
from broker.log.log_environment import LogEnvironment
from broker.log.partition_metadata_file import PartitionMetadataFile

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


class LogFlush:
    """Plans are made and completed in the loop; running one waits for the device and may be done in a thread.

    After a flush that failed Linux counts what it held as clean: the next one succeeds, and the device never gets
    those bytes.  So nothing from there on is vouched for any more; the next start recovers it.
    """

    __slots__ = ("_environment", "_log", "is_name_synced", "last_flush_ms")

    def __init__(self, unified_log: "UnifiedLog", environment: LogEnvironment, *, is_name_synced: bool) -> None:
        self._log = unified_log
        self._environment = environment
        self.is_name_synced = is_name_synced  # the device has the directory's own name, and the topic id in it
        self.last_flush_ms = environment.clock.now_ms()

    @property
    def recovery_point(self) -> int:
        """Not above the base of a segment whose indexes may change once more, when it is sealed, even if all its
        records are on the device: the checkpoint may not be newer than the files it vouches for.

        Segments below the log start need no flush.  Of a tiered log they do: the log start may go back in a crash, to
        records that are in remote storage, whose leader epochs and producers are told here alone.
        """
        segments = self._log.segments
        start = 0 if self._log.is_tiered else self._log.local_log_start_offset
        flushed = max(start, min(self._log.local_log.recovery_point, self._log.local_log.doubtful_from))
        segment = segments.floor(flushed - 1)
        if segment is None or segment.is_flushed:
            return flushed
        with_start = segments.floor(start)
        return segment.base_offset if with_start is None else max(segment.base_offset, with_start.base_offset)

    def plan(self, offset: int | None) -> FlushPlan | None:
        """What the device lacks below `offset` (None: the log end); None when it has it all.  Writes pending index
        entries and producer snapshots.  StorageFailure."""
        local_log, epochs = self._log.local_log, self._log.leader_epochs
        producers = self._log.producer_state_manager
        if producers.write_missed():
            local_log.unsynced_directory = True
        offset = local_log.log_end_offset if offset is None else offset
        segments = [
            segment
            for segment in local_log.segments.from_offset(self.recovery_point)
            if not segment.is_flushed
            and segment.base_offset < offset
            and (segment.is_sealed or local_log.recovery_point < offset)
        ]
        are_epochs_written = epochs.is_written_below(local_log.log_end_offset)
        if not segments and not local_log.unsynced_directory and are_epochs_written:
            return None
        plan = FlushPlan(self._environment.file_system, epochs, offset, self._log.truncation_count)
        plan.base_offset = segments[0].base_offset if segments else offset
        for segment in segments:
            segment.write_indexes()
            plan.files.append(segment.records.file)
            plan.paths += segment.index_paths()
            if segment.is_sealed:
                plan.sealed.append(segment)
        plan.snapshots = list(producers.unsynced_snapshots)
        plan.paths += [producers.snapshot_path(snapshot) for snapshot in plan.snapshots]
        plan.epoch_write = None if are_epochs_written else epochs.pending_write()
        if not self.is_name_synced:
            plan.paths.append(PartitionMetadataFile(self._environment.file_system, local_log.directory).path)
            plan.directories.append(local_log.directory.parent)
        if local_log.unsynced_directory:
            plan.directories.append(local_log.directory)
            local_log.unsynced_directory = False
        return plan

    def complete(self, plan: FlushPlan) -> None:
        """The plan ran."""
        log = self._log
        self.last_flush_ms = self._environment.clock.now_ms()
        if plan.epoch_write is not None:
            log.leader_epochs.written(plan.epoch_write[0])
        if log.directory.parent in plan.directories:
            self.is_name_synced = True
        if plan.truncation_count != log.truncation_count:
            return  # made before a truncation, it must not move the recovery point after it
        for segment in plan.sealed:
            segment.is_flushed = True
        unsynced = log.producer_state_manager.unsynced_snapshots
        unsynced[:] = [snapshot for snapshot in unsynced if snapshot not in plan.snapshots]
        local_log = log.local_log
        local_log.recovery_point = max(local_log.recovery_point, min(plan.offset, local_log.log_end_offset))

    def abandon(self, plan: FlushPlan) -> None:
        """The plan failed: the next one must not leave out what this one meant to do, nor be believed."""
        self._doubt(plan.base_offset)
        self._environment.metrics.storage_failures.increment()
        if self._log.directory in plan.directories:
            self._log.local_log.unsynced_directory = True

    def _doubt(self, offset: int) -> None:
        local_log = self._log.local_log
        local_log.doubtful_from = min(local_log.doubtful_from, offset)

    def run_now(self, offset: int | None) -> None:
        """Plan, run and complete in one: waits for the device.  StorageFailure."""
        plan = self.plan(offset)
        if plan is not None:
            try:
                plan.run()
            except StorageFailure:
                self.abandon(plan)
                raise
            self.complete(plan)

    def run_inline(self) -> None:
        """For `flush.messages`: everything written so far is on the device before anyone hears of it.

        Index files of the active segment may follow later: recovery rebuilds them.  StorageFailure.
        """
        started = time.perf_counter()
        local_log = self._log.local_log
        active = local_log.segments.active
        if local_log.unsynced_directory or self.recovery_point < active.base_offset:
            self.run_now(active.base_offset)
        try:
            active.records.sync()
        except StorageFailure:
            self._doubt(active.base_offset)
            raise
        self._environment.metrics.flush_seconds.observe(time.perf_counter() - started)

    def prepare_close(self) -> FlushPlan | None:
        """Write the last time entry, the indexes and a producer snapshot at the log end, and plan to flush them."""
        log = self._log
        if log.local_log.is_in_doubt:
            raise StorageFailure(f"{log.topic_partition}: a flush has failed, and only recovery can tell what is there")
        if not log.is_dirty:
            return self._plan_epochs()
        active = log.segments.active
        active.add_last_time_entry()
        active.write_indexes()
        producers = log.producer_state_manager
        producers.take_snapshot()
        if producers.map_end_offset > (producers.latest_snapshot_offset or 0) and not producers.is_empty:
            raise StorageFailure(f"{log.topic_partition}: the producer snapshot could not be written")
        log.local_log.unsynced_directory = True  # makes a plan even if every record is flushed
        plan = self.plan(None)
        assert plan is not None, f"{log.topic_partition}: nothing to flush at close"
        if active.records.file not in plan.files:
            plan.files.append(active.records.file)
            plan.paths += active.index_paths()
        plan.sealed.append(active)  # nothing changes it any more
        return plan

    def _plan_epochs(self) -> FlushPlan | None:
        """Only the epochs changed: this broker led, and nobody wrote."""
        epochs = self._log.leader_epochs
        if epochs.is_written_below(self._log.log_end_offset):
            return None
        plan = FlushPlan(
            self._environment.file_system, epochs, self._log.local_log.recovery_point, self._log.truncation_count
        )
        plan.epoch_write = epochs.pending_write()
        return plan
