"""LogManager: start, creation, deletion, checkpoints, shutdown."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor, ThreadDiskExecutor
from broker.common.errors import InconsistentTopicIdError, StorageFailure
from broker.common.file_system import FileSystem, OsFileSystem
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.log.log_manager import LogManager, NewPartition
from broker.log.offset_checkpoint_file import CLEANER_OFFSET_CHECKPOINT, OffsetCheckpointFile
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.records.memory_records_builder import records_batch
from tests.support.builders import parsed
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.log.log_world import LOG_DIRECTORY, NOW_MS, SettableClock, broker_config, topic_config

TP = TopicPartition("t", 0)
OTHER = TopicPartition("u", 3)
TOPIC_ID = UUID(int=0x1234)


class Node:
    """One disk, started and stopped as often as a test likes."""

    def __init__(self, **properties: object) -> None:
        self.holder = ConfigHolder(broker_config(**properties))
        self.clock = SettableClock()
        self.disk = SimFileSystem(self.clock.now_ms)
        self.disk.make_directories(LOG_DIRECTORY)
        self.disk.sync_everything()
        self.chance = Chance(3)
        self.config = topic_config(segment_bytes=200)

    async def start(self) -> LogManager:
        self.metrics = LogMetrics(MetricsRegistry())
        manager = LogManager(
            self.holder,
            clock=self.clock,
            file_system=self.disk,
            disk=InlineDiskExecutor(),
            chance=self.chance,
            metrics=self.metrics,
            topic_config=lambda topic: self.config,
        )
        await manager.start()
        return manager

    def files(self, name: str = "") -> list[str]:
        return self.disk.list_directory(LOG_DIRECTORY / name)


def append(log: UnifiedLog, count: int = 1, *, epoch: int = 0) -> None:
    for _ in range(count):
        (result,) = log.append_as_leader(parsed(records_batch((NOW_MS, b"k", b"v" * 10))), epoch)
        assert result.error is None
    log.update_high_watermark(log.log_end_offset)


async def test_what_a_cleaner_has_compacted_may_have_holes_though_its_topic_is_not_known_yet() -> None:
    node = Node()
    manager = await node.start()
    for topic_partition in (TP, OTHER):
        log = manager.get_or_create(topic_partition, UUID(int=1))
        append(log, 9)
        second = [name for name in node.files(str(topic_partition)) if name.endswith(".log")][1]
        path = log.directory / second
        content = node.disk.read(path)
        node.disk.overwrite(path, content[: len(content) // 2])
    OffsetCheckpointFile(node.disk, LOG_DIRECTORY / CLEANER_OFFSET_CHECKPOINT).write({TP: 4})
    node.disk.kill()
    manager = await node.start()
    assert {log.topic_partition: log.log_end_offset for log in manager.all()} == {TP: 9, OTHER: 3}


@pytest.mark.parametrize("content", [None, b"0\nmany\n"])
async def test_without_the_cleaners_checkpoint_what_follows_a_hole_is_not_given_up(content: bytes | None) -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, UUID(int=1)), 9)
    second = LOG_DIRECTORY / str(TP) / [name for name in node.files(str(TP)) if name.endswith(".log")][1]
    batch = len(node.disk.read(second)) // 2
    node.disk.overwrite(second, node.disk.read(second)[:batch])
    assert node.files().count(CLEANER_OFFSET_CHECKPOINT) == 1, "made where no log was yet"
    if content is None:
        node.disk.remove(LOG_DIRECTORY / CLEANER_OFFSET_CHECKPOINT)
    else:
        node.disk.overwrite(LOG_DIRECTORY / CLEANER_OFFSET_CHECKPOINT, content)
    node.disk.kill()
    manager = await node.start()
    assert [log.log_end_offset for log in manager.all()] == [9]
    await manager.checkpoints.write()
    node.disk.kill()
    manager = await node.start()
    assert [log.log_end_offset for log in manager.all()] == [9], "nor once there is a checkpoint again"


async def test_without_it_neither_by_a_log_that_is_opened_later() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID), 9)
    second = LOG_DIRECTORY / str(TP) / [name for name in node.files(str(TP)) if name.endswith(".log")][1]
    node.disk.overwrite(second, node.disk.read(second)[: len(node.disk.read(second)) // 2])
    node.disk.remove(LOG_DIRECTORY / CLEANER_OFFSET_CHECKPOINT)
    node.disk.kill()
    node.disk.fail(LOG_DIRECTORY / str(TP), "open")
    manager = await node.start()
    assert manager.get(TP) is None
    node.disk.heal()
    assert manager.get_or_create(TP, TOPIC_ID).log_end_offset == 9


async def test_6_a_clean_stop_and_start() -> None:
    node = Node()
    manager = await node.start()
    log = manager.get_or_create(TP, TOPIC_ID)
    append(log, 5, epoch=2)
    log.maybe_increment_log_start_offset(1, "test")
    append(manager.get_or_create(OTHER, UUID(int=0x5678)))
    await manager.shutdown(broker_epoch=9)
    assert len(manager) == 0
    assert node.disk.open_files == 0
    assert node.disk.read(LOG_DIRECTORY / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":9}'
    assert node.disk.read(LOG_DIRECTORY / "recovery-point-offset-checkpoint") == b"0\n2\nt 0 5\nu 3 1\n"
    assert node.disk.read(LOG_DIRECTORY / "replication-offset-checkpoint") == b"0\n2\nt 0 5\nu 3 1\n"
    assert node.disk.read(LOG_DIRECTORY / "log-start-offset-checkpoint") == b"0\n1\nt 0 1\n"
    node.disk.crash(node.chance)  # everything is on the device

    again = await node.start()
    assert again.previous_broker_epoch == 9
    found = again.get(TP)
    assert found is not None
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (1, 5, 5)
    assert (found.topic_id, found.latest_epoch) == (TOPIC_ID, 2)
    assert [each.topic_partition for each in again.all()] == [TP, OTHER]
    assert ".kafka_cleanshutdown" not in node.files()
    assert node.metrics.recovered_bytes.value == 0
    assert node.metrics.remaining_logs_to_recover == 0


async def test_17_a_kill_recovers_from_the_recovery_points() -> None:
    node = Node()
    manager = await node.start()
    log = manager.get_or_create(TP, TOPIC_ID)
    append(log, 5)
    await manager.housekeeper.run_requests()
    await manager.checkpoints.write_recovery_points()
    await manager.checkpoints.write_high_watermarks()
    append(log, 1)
    again = await node.start()
    found = again.get(TP)
    assert found is not None
    assert (found.log_end_offset, found.high_watermark, found.recovery_point) == (6, 5, 4)
    assert node.metrics.recovered_bytes.value == 2 * 79


async def test_logs_still_to_load_are_counted_down(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    manager = await node.start()
    for partition in range(3):
        manager.get_or_create(TopicPartition("t", partition), TOPIC_ID)
    await manager.shutdown(broker_epoch=1)
    seen = []
    load = LogManager._load_part

    def note_and_load(self: LogManager, *arguments: Any) -> Any:
        seen.append(node.metrics.remaining_logs_to_recover)
        return load(self, *arguments)

    monkeypatch.setattr(LogManager, "_load_part", note_and_load)
    monkeypatch.setattr("broker.log.log_manager.LOAD_SLICE", 1)
    await node.start()
    assert (seen, node.metrics.remaining_logs_to_recover) == ([3, 2, 1], 0)


async def test_a_power_cut_without_flush_keeps_the_directory_usable() -> None:
    for seed in range(30):
        node = Node()
        node.chance = Chance(seed)
        append((await node.start()).get_or_create(TP, TOPIC_ID), 5)
        node.disk.crash(node.chance)
        manager = await node.start()
        log = manager.get_or_create(TP, TOPIC_ID)
        append(log)
        assert 1 <= log.log_end_offset <= 6
        await manager.shutdown()
        assert ".kafka_cleanshutdown" in node.files()


async def test_topic_ids_must_agree() -> None:
    node = Node()
    manager = await node.start()
    log = manager.get_or_create(TP, TOPIC_ID)
    assert manager.get_or_create(TP, TOPIC_ID) is log
    with pytest.raises(InconsistentTopicIdError):
        manager.get_or_create(TP, UUID(int=0x9999))
    assert node.disk.read(LOG_DIRECTORY / "t-0" / "partition.metadata").endswith(b"AAAAAAAAAAAAAAAAAAASNA")


async def test_a_log_without_topic_id_gets_the_first_one_named() -> None:
    node = Node()
    manager = await node.start()
    manager.get_or_create(TP, TOPIC_ID)
    await manager.shutdown()
    node.disk.remove(LOG_DIRECTORY / "t-0" / "partition.metadata")
    again = await node.start()
    assert again.get_or_create(TP, UUID(int=0x9999)).topic_id == UUID(int=0x9999)


async def test_deletion_sets_aside_and_removes_later() -> None:
    node = Node()
    manager = await node.start()
    log = manager.get_or_create(TP, TOPIC_ID)
    append(log, 3)
    assert manager.mark_for_deletion(TP)
    assert not manager.mark_for_deletion(TP)
    assert manager.get(TP) is None
    assert log.is_closed
    (aside,) = [name for name in node.files() if name.endswith("-delete")]
    assert aside.startswith("t-0.")
    assert len(aside) == len("t-0.") + 32 + len("-delete")
    fresh = manager.get_or_create(TP, UUID(int=0x9999))
    assert (fresh.log_end_offset, fresh.topic_id) == (0, UUID(int=0x9999))
    await manager.housekeeper.delete_due_files(float("inf"))
    assert aside not in node.files()


async def test_a_stray_log_is_set_aside_and_stays() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID), 3)
    manager.set_stray_aside(TP)
    assert manager.get(TP) is None
    (aside,) = [name for name in node.files() if name.endswith("-stray")]
    await manager.housekeeper.delete_due_files(float("inf"))
    assert aside in node.files()


async def test_21_directories_at_start() -> None:
    node = Node()
    hexes = "0123456789abcdef0123456789abcdef"
    for name in (f"t-0.{hexes}-delete", f"t-1.{hexes}-future", f"t-2.{hexes}-stray", "__cluster_metadata-0"):
        node.disk.make_directories(LOG_DIRECTORY / name)
    manager = await node.start()
    assert len(manager) == 0
    await manager.housekeeper.delete_due_files(float("inf"))
    made = "cleaner-offset-checkpoint"
    assert node.files() == ["__cluster_metadata-0", made, f"t-1.{hexes}-future", f"t-2.{hexes}-stray"]
    node.disk.make_directories(LOG_DIRECTORY / "lost+found")
    with pytest.raises(StorageFailure, match=r"lost\+found"):
        await node.start()


async def test_19_the_high_watermark_of_the_checkpoint_is_held_in_bounds() -> None:
    for checkpoint, expected in ((b"0\n1\nt 0 99\n", 5), (b"0\n0\n", 2), (b"0\n1\nt 0 1\n", 2), (b"nonsense", 2)):
        node = Node()
        manager = await node.start()
        log = manager.get_or_create(TP, TOPIC_ID)
        append(log, 5)
        log.maybe_increment_log_start_offset(2, "test")
        await manager.shutdown()
        node.disk.overwrite(LOG_DIRECTORY / "replication-offset-checkpoint", checkpoint)
        found = (await node.start()).get(TP)
        assert found is not None
        assert found.high_watermark == expected


async def test_a_start_with_a_full_disk_works() -> None:
    node = Node()
    append((await node.start()).get_or_create(TP, TOPIC_ID), 5)
    node.disk.budget_bytes = 0
    manager = await node.start()
    log = manager.get(TP)
    assert log is not None
    assert log.log_end_offset == 5
    await manager.checkpoints.write_recovery_points()
    assert node.metrics.storage_failures.value == 1
    with pytest.raises(StorageFailure):
        manager.get_or_create(OTHER, TOPIC_ID)
    await manager.shutdown()
    assert ".kafka_cleanshutdown" not in node.files()
    node.disk.heal()
    manager = await node.start()
    assert manager.get(TP).log_end_offset == 5  # type: ignore[union-attr]
    append(manager.get_or_create(OTHER, TOPIC_ID))


async def test_a_log_that_cannot_be_opened_is_left_out_and_tried_again() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID), 5)
    append(manager.get_or_create(OTHER, TOPIC_ID), 1)
    node.disk.fail(LOG_DIRECTORY / "t-0", "open")
    manager = await node.start()
    assert [log.topic_partition for log in manager.all()] == [OTHER]
    node.disk.heal()
    assert manager.get_or_create(TP, TOPIC_ID).log_end_offset == 5


async def test_shutdown_is_not_clean_when_a_flush_fails() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID))
    node.disk.fail(LOG_DIRECTORY / "t-0", "sync")
    await manager.shutdown()
    assert ".kafka_cleanshutdown" not in node.files()


async def test_configs_reach_the_logs() -> None:
    node = Node()
    manager = await node.start()
    log, other = manager.get_or_create(TP, TOPIC_ID), manager.get_or_create(OTHER, TOPIC_ID)
    changed: TopicConfig = topic_config(max_message_bytes=100)
    manager.update_topic_configs({"t": changed})
    assert log.config is changed
    assert other.config is node.config
    node.config = topic_config(retention_ms=5)
    manager.update_default_config()
    assert (log.config.retention_ms, other.config.retention_ms) == (5, 5)


async def test_checkpoints_follow_in_the_background() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID), 3, epoch=4)
    await manager.checkpoints.write_recovery_points()
    assert node.disk.read(LOG_DIRECTORY / "t-0" / "leader-epoch-checkpoint") == b"0\n1\n4 0\n"
    assert node.disk.read(LOG_DIRECTORY / "recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n"
    writes = node.disk.operations["write"]
    await manager.checkpoints.write_recovery_points()
    assert node.disk.operations["write"] == writes
    await manager.checkpoints.write_log_start_offsets()
    assert node.disk.read(LOG_DIRECTORY / "log-start-offset-checkpoint") == b"0\n0\n"
    async with manager.running() as running:
        assert running is manager


async def test_on_a_real_disk_with_threads(tmp_path: Path) -> None:
    executor = ThreadDiskExecutor()
    file_system: FileSystem = OsFileSystem()

    async def start() -> LogManager:
        manager = LogManager(
            ConfigHolder(broker_config(log_dirs=tmp_path)),
            clock=SettableClock(),
            file_system=file_system,
            disk=executor,
            chance=Chance(1),
            metrics=LogMetrics(MetricsRegistry()),
            topic_config=lambda topic: topic_config(segment_bytes=200, index_interval_bytes=0),
        )
        await manager.start()
        return manager

    manager = await start()
    async with manager.running():
        for partition in range(5):
            append(manager.get_or_create(TopicPartition("t", partition), TOPIC_ID), 7)
        manager.mark_for_deletion(TopicPartition("t", 4))
    await manager.shutdown(1)
    again = await start()
    assert sorted(log.topic_partition.partition for log in again.all()) == [0, 1, 2, 3]
    assert {log.log_end_offset for log in again.all()} == {7}
    await again.shutdown(2)
    executor.close()


async def test_producers_are_forgotten_after_the_time_of_the_settings() -> None:
    node = Node(producer_id_expiration_ms=5000)
    manager = await node.start()
    log = manager.get_or_create(TP, TOPIC_ID)
    log.append_as_leader(
        parsed(records_batch((NOW_MS, b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0)), 0
    )
    log.remove_expired_producers(NOW_MS + 4999)
    assert log.producer_count == 1
    node.holder.update(broker_config(producer_id_expiration_ms=1000))
    manager.update_default_config()
    log.remove_expired_producers(NOW_MS + 1001)
    assert log.producer_count == 0


def test_the_times_of_checkpoints_are_settings() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(
            log_flush_offset_checkpoint_interval_ms=20_000, replica_high_watermark_checkpoint_interval_ms=50_000
        )
        manager = await node.start()
        append(manager.get_or_create(TP, TOPIC_ID))
        async with manager.running():
            await asyncio.sleep(19)
            assert "recovery-point-offset-checkpoint" not in node.files()
            await asyncio.sleep(2)
            assert "recovery-point-offset-checkpoint" in node.files()
            await asyncio.sleep(28)
            assert "replication-offset-checkpoint" not in node.files()
            await asyncio.sleep(2)
            assert "replication-offset-checkpoint" in node.files()

    simulate(story)


def new_partitions(node: Node, count: int) -> list[NewPartition]:
    return [NewPartition(TopicPartition("t", index), TOPIC_ID, node.config) for index in range(count)]


async def test_logs_made_ahead_are_found_later() -> None:
    node = Node()
    manager = await node.start()
    there = manager.get_or_create(TP, TOPIC_ID)
    await manager.create_ahead(new_partitions(node, 3))
    assert len(manager) == 3
    assert manager.get(TP) is there
    made = manager.get(TopicPartition("t", 2))
    assert made is not None
    assert (made.topic_id, made.config) == (TOPIC_ID, node.config)
    operations = dict(node.disk.operations)
    assert manager.get_or_create(TopicPartition("t", 2), TOPIC_ID) is made
    assert node.disk.operations == operations


async def test_what_is_there_or_fails_is_not_made_ahead() -> None:
    node = Node()
    manager = await node.start()
    append(manager.get_or_create(TP, TOPIC_ID), 5)
    manager = await node.start()
    node.disk.fail(LOG_DIRECTORY / "t-0", "open")
    manager = await node.start()
    node.disk.heal()
    node.disk.fail(LOG_DIRECTORY / "t-1", "mkdir")
    await manager.create_ahead(new_partitions(node, 3))
    assert len(manager) == 0, "the first has a directory, the second none, and then it gave up"
    node.disk.heal()
    assert manager.get_or_create(TP, TOPIC_ID).log_end_offset == 5


async def test_what_a_log_costs_the_disk() -> None:
    """Ten thousand partitions multiply each of these."""
    count = 20
    node = Node()
    manager = await node.start()
    before = dict(node.disk.operations)

    def cost() -> dict[str, int]:
        """Operations for each log; the few for the directory as a whole are left out."""
        done = {name: number - before.get(name, 0) for name, number in node.disk.operations.items()}
        before.update(node.disk.operations)
        return {name: number // count for name, number in done.items() if number >= count}

    await manager.create_ahead(new_partitions(node, count))
    assert cost() == {"mkdir": 1, "open": 2, "create": 2, "write": 1, "rename": 1}
    await manager.shutdown()
    assert cost() == {"open": 2, "sync": 3}
    manager = await node.start()
    assert cost() == {"open": 1}
    for each in manager.all():
        each.maybe_assign_epoch_start_offset(1, 0)
    await manager.checkpoints.write_recovery_points()
    await manager.shutdown()
    assert cost() == {}


async def test_closing_lets_others_run() -> None:
    node = Node()
    manager = await node.start()
    await manager.create_ahead(new_partitions(node, 500))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(count_turns())
    await manager.shutdown()
    other.cancel()
    assert turns >= 3, "500 logs in ten slices, four at a time"
    assert ".kafka_cleanshutdown" in node.files()


TIERED_TOPIC = topic_config(segment_bytes=200, remote_storage_enable=True, local_retention_bytes=79)


class TieredNode(Node):
    """Its topics are tiered, which it does not know when it starts."""

    def __init__(self, **properties: object) -> None:
        super().__init__(
            remote_log_storage_system_enable=True,
            remote_log_storage_manager_class_name="LocalTieredStorage",
            rsm_config_bucket="file:///bucket",
            **properties,
        )
        self.topics: dict[str, TopicConfig] = {}

    async def start(self) -> LogManager:
        self.topics = {}
        manager = await super().start()
        manager._topic_config = lambda topic: self.topics.get(topic, self.config)
        return manager

    async def place(self, manager: LogManager, config: TopicConfig = TIERED_TOPIC) -> UnifiedLog:
        self.topics = {TP.topic: config}
        return manager.get_or_create(TP, TOPIC_ID)

    async def drained(self) -> LogManager:
        """Five records, of which the last is on the disk alone, the others in remote storage alone."""
        manager = await self.start()
        log = await self.place(manager)
        assert log.is_tiered
        append(log, 5)
        log.update_highest_remote_offset(3)
        assert await manager.housekeeper.delete_old_segments() == 2
        assert starts(log) == (0, 4, 5)
        return manager


def starts(log: UnifiedLog | None) -> tuple[int, int, int]:
    assert log is not None
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


@pytest.mark.parametrize("is_tiered", [True, False])
async def test_where_a_log_starts_is_settled_when_its_topic_is_known(is_tiered: bool) -> None:
    node = TieredNode()
    manager = await node.drained()
    await manager.shutdown()
    manager = await node.start()
    assert starts(manager.get(TP)) == (0, 4, 5)
    node.clock.ms += 10**10
    assert await manager.housekeeper.delete_old_segments() == 0
    log = await node.place(manager, TIERED_TOPIC if is_tiered else node.config)
    assert starts(log) == ((0, 4, 5) if is_tiered else (4, 4, 5))
    assert log.config is node.topics["t"]
    assert log.leader_epochs.entries == ((0, 0 if is_tiered else 4),)


async def test_51_a_start_without_any_checkpoint_keeps_the_remote_part() -> None:
    node = TieredNode()
    manager = await node.drained()
    await manager.shutdown()
    for name in node.files():
        if not node.disk.is_directory(LOG_DIRECTORY / name):
            node.disk.remove(LOG_DIRECTORY / name)
    assert starts(await node.place(await node.start())) == (0, 4, 5)


async def test_the_start_of_a_tiered_log_is_always_in_the_checkpoint() -> None:
    """Its first segment may be gone at the next start, and would not tell."""
    node = TieredNode()
    manager = await node.drained()
    log = await node.place(manager)
    path = LOG_DIRECTORY / "log-start-offset-checkpoint"
    await manager.checkpoints.write_log_start_offsets()
    assert node.disk.read(path) == b"0\n1\nt 0 0\n"
    log.maybe_increment_log_start_offset(4, "test")
    await manager.shutdown()
    assert node.disk.read(path) == b"0\n1\nt 0 4\n"
    manager = await node.start()
    await manager.checkpoints.write_log_start_offsets()  # though its topic is not known yet
    assert node.disk.read(path) == b"0\n1\nt 0 4\n"


async def test_epochs_leave_their_file_after_the_log_start_is_on_the_device() -> None:
    node = TieredNode()
    manager = await node.drained()
    log = await node.place(manager)
    await manager.checkpoints.write()
    log.maybe_increment_log_start_offset(3, "test")
    path = log.leader_epochs.path
    node.disk.fail(LOG_DIRECTORY / "log-start-offset-checkpoint.tmp", "open")
    await manager.checkpoints.write()
    await manager.checkpoints.write()
    assert node.disk.read(path) == b"0\n1\n0 0\n"
    node.disk.heal()
    await manager.checkpoints.write()
    await manager.checkpoints.write()
    assert node.disk.read(path) == b"0\n1\n0 3\n"


async def test_what_the_checkpoint_says_is_not_about_the_next_log_of_that_name() -> None:
    node = TieredNode()
    manager = await node.drained()
    log = await node.place(manager)
    log.maybe_increment_log_start_offset(4, "test")
    await manager.checkpoints.write()
    manager.mark_for_deletion(TP)
    await manager.housekeeper.run_requests()
    append(await node.place(manager))
    node.disk.kill()
    assert starts(await node.place(await node.start())) == (0, 0, 1)


async def test_a_tiered_log_that_became_stray_goes_as_others_do() -> None:
    node = TieredNode()
    manager = await node.drained()
    await manager.shutdown()
    manager = await node.start()
    manager.set_stray_aside(TP)
    assert manager.get(TP) is None
    manager.get_or_create(TP, UUID(int=0x9999))
    assert starts(manager.get(TP)) == (0, 0, 0)
    await manager.shutdown()


async def test_a_broker_that_lost_the_setting_forgets_nothing_of_tiered_logs() -> None:
    """It refuses to start when it hears of such a topic; with the setting it finds everything again."""
    node = TieredNode()
    manager = await node.drained()
    (await node.place(manager)).maybe_increment_log_start_offset(1, "test")
    await manager.shutdown()
    with_remote_storage, node.holder = node.holder, ConfigHolder(broker_config())
    manager = await node.start()
    await node.place(manager)
    await manager.shutdown()
    node.holder = with_remote_storage
    log = await node.place(await node.start())
    assert starts(log) == (1, 4, 5)
    assert log.leader_epochs.entries == ((0, 1),)


async def test_deleted_records_leave_the_disk_when_the_checkpoint_says_so() -> None:
    node = TieredNode()
    manager = await node.start()
    log = await node.place(manager)
    append(log, 5)
    log.maybe_increment_log_start_offset(3, "delete records")
    assert await manager.housekeeper.delete_old_segments() == 1
    assert node.disk.read(LOG_DIRECTORY / "log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"
    assert log.segments.base_offsets == [2, 4]


async def test_a_tiered_log_that_cannot_be_opened_keeps_its_start() -> None:
    node = TieredNode()
    manager = await node.drained()
    (await node.place(manager)).maybe_increment_log_start_offset(3, "test")
    await manager.shutdown()
    node.disk.fail(LOG_DIRECTORY / "t-0", "open")
    manager = await node.start()
    assert manager.get(TP) is None
    await manager.checkpoints.write()
    node.disk.heal()
    assert starts(await node.place(manager)) == (3, 4, 5)
    await manager.checkpoints.write()
    assert starts((await node.start()).get(TP)) == (3, 4, 5)


async def test_the_start_of_a_log_that_becomes_tiered_is_in_the_checkpoint_soon() -> None:
    node = TieredNode()
    manager = await node.start()
    log = await node.place(manager, node.config)
    append(log, 5)
    log.delete_segments_below(4, "test")
    await manager.checkpoints.write()
    path = LOG_DIRECTORY / "log-start-offset-checkpoint"
    assert node.disk.read(path) == b"0\n0\n"
    manager.update_topic_configs({"t": TIERED_TOPIC})
    await manager.housekeeper.run_requests()
    assert node.disk.read(path) == b"0\n1\nt 0 4\n"
    assert starts(await node.place(await node.start())) == (4, 4, 5)
