"""ControllerMaintenance: what the controller does without being asked."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem
from broker.config.broker_config import BrokerConfig
from broker.controller.cluster_control_manager import ClusterControlManager
from broker.controller.command_queue import CommandQueue
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.metadata_log import MetadataLog
from broker.controller.metadata_snapshot import SnapshotId, write_checkpoint
from broker.controller.replication_control_manager import ReplicationControlManager
from broker.metadata.metadata_records import to_records
from broker.metrics.controller_metrics import ControllerMetrics

SESSION_CHECK_MAX_S: Final = 1.0  # a broker may be unfenced between two checks, and its session is the shorter one
SNAPSHOT_CHECK_S: Final = 1.0
BALANCE_AGAIN_S: Final = 0.1  # a run was cut short: let other commands pass, then go on
SNAPSHOT_RETRY_S: Final = 60.0
RESERVE_CHECK_S: Final = 60.0

log = structlog.get_logger(__name__)


class ControllerMaintenance:
    """Endless tasks: sessions, balance, unclean elections, snapshots, the disk reserve."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        state: ControllerState,
        queue: CommandQueue,
        metadata_log: MetadataLog,
        cluster_control: ClusterControlManager,
        replication_control: ReplicationControlManager,
        clock: Clock,
        disk: DiskExecutor,
        file_system: FileSystem,
        metrics: ControllerMetrics,
    ) -> None:
        self._config = config
        self._state = state
        self._queue = queue
        self._log = metadata_log
        self._cluster_control = cluster_control
        self._replication_control = replication_control
        self._clock = clock
        self._disk = disk
        self._file_system = file_system
        self._metrics = metrics
        self._last_snapshot_ms = clock.now_ms()

    async def fence_stale_brokers(self) -> None:
        """The task: fence brokers whose session expired, one per command."""
        loop = asyncio.get_running_loop()
        heartbeats = self._cluster_control.heartbeats
        while True:
            now = loop.time()
            wake_at = min(heartbeats.next_check_at(self._state.image.brokers.values(), now), now + SESSION_CHECK_MAX_S)
            await asyncio.sleep(max(wake_at - now, 0.01))
            late = loop.time() - wake_at
            if late > heartbeats.session_timeout / 2:
                # We were stopped, and could not have heard anybody: their sessions begin again.
                log.warning("controller_was_stopped", seconds=round(late, 3))
                self._touch_unfenced_brokers(loop.time())
                continue
            await self._fence_until_none_is_stale()

    def _touch_unfenced_brokers(self, now: float) -> None:
        for broker in self._state.image.brokers.values():
            if not broker.fenced:
                self._cluster_control.heartbeats.touch(broker.id, now)

    async def _fence_until_none_is_stale(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                fenced = await self._queue.run(lambda: self._cluster_control.fence_stalest_broker(loop.time()))
            except StorageFailure:
                await asyncio.sleep(SESSION_CHECK_MAX_S)  # the next round tries again
                return
            if fenced is None:
                return
            self._metrics.timed_out_heartbeats.increment()

    async def balance_leaders(self) -> None:
        """The task: give leadership back to preferred replicas (auto.leader.rebalance.enable)."""
        if not self._config.auto_leader_rebalance_enable:
            return
        while True:
            await asyncio.sleep(self._config.leader_imbalance_check_interval_seconds)
            await self._run_until_done(self._replication_control.balance_partition_leaders)

    async def elect_unclean_leaders(self) -> None:
        """The task: leaders for partitions of topics that prefer a lossy one to none."""
        while True:
            await asyncio.sleep(self._config.unclean_leader_election_interval_ms / 1000)
            await self._run_until_done(self._replication_control.elect_unclean_leaders)

    async def _run_until_done(self, command: Callable[[], ControllerResult[bool]]) -> None:
        """Repeat a command that answers whether more is left; the next interval tries again what the disk refused."""
        with contextlib.suppress(StorageFailure):
            has_more = True
            while has_more:
                has_more = await self._queue.run(command)
                await asyncio.sleep(BALANCE_AGAIN_S)

    async def keep_disk_reserve(self) -> None:
        """The task: take the reserve, again after it was needed and the disk has room once more."""
        while True:
            await self._disk.run(self._log.reserve.ensure)
            await asyncio.sleep(RESERVE_CHECK_S)

    async def take_snapshots(self) -> None:
        """The task: a snapshot when enough was written or enough time has passed."""
        while True:
            await asyncio.sleep(SNAPSHOT_CHECK_S)
            if not self._is_snapshot_due():
                continue
            try:
                await self.take_snapshot()
            except StorageFailure as failure:
                log.error("metadata_snapshot_failed", error=str(failure))
                await asyncio.sleep(SNAPSHOT_RETRY_S)

    def _is_snapshot_due(self) -> bool:
        written = self._log.bytes_since_snapshot
        if written >= self._config.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        return bool(written) and 0 < interval_ms <= self._clock.now_ms() - self._last_snapshot_ms

    async def take_snapshot(self) -> SnapshotId | None:
        """Write a snapshot of the durable state, unless there is one already.

        The image is immutable, so a thread writes it while commands go on.
        """
        image = self._queue.durable_image
        snapshot = SnapshotId(image.offset + 1, image.epoch)
        latest = self._log.latest_snapshot
        if image.is_empty or (latest is not None and latest.end_offset >= snapshot.end_offset):
            return None
        started = asyncio.get_running_loop().time()
        metadata_version = image.features.metadata_version
        await self._disk.run(
            write_checkpoint,
            self._file_system,
            self._log.snapshot_path(snapshot),
            to_records(image, metadata_version),
            metadata_version=metadata_version,
            epoch=image.epoch,
            timestamp_ms=self._log.last_append_time_ms,
        )
        obsolete = self._log.add_snapshot(snapshot)
        self._queue.is_roll_wanted = True
        self._last_snapshot_ms = self._clock.now_ms()
        seconds = asyncio.get_running_loop().time() - started
        self._metrics.snapshot_seconds.observe(seconds)
        log.info("metadata_snapshot_taken", snapshot=snapshot.file_name, seconds=round(seconds, 3))
        for path in obsolete:
            await self._disk.run(self._file_system.remove, path)
        return snapshot
