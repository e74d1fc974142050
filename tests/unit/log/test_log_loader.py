"""LogLoader: what is trusted, what is read again, what is cut, set aside or refused."""

import pytest

from broker.common.chance import Chance
from broker.common.identifiers import TopicPartition
from broker.log.log_loader import load_log, partition_directory, settle_interrupted_work
from broker.log.transaction_index import AbortedTransaction
from tests.unit.log.log_world import LOG_DIRECTORY, NOW_MS, TP, LogWorld, topic_config


def filled(**config: object) -> LogWorld:
    """Nine batches in three segments, epochs 1 and 2, one idempotent producer."""
    world = LogWorld(segment_bytes=250, index_interval_bytes=0, **config)
    for number in range(9):
        world.append(
            epoch=1 if number < 5 else 2,
            timestamp=NOW_MS + number,
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
        )
    assert world.log.segments.base_offsets == [0, 3, 6]
    return world


EVERYTHING = [(number, number) for number in range(9)]


def test_6_a_clean_stop_comes_back_the_same_without_a_scan() -> None:
    world = filled()
    before = world.log
    before.maybe_increment_log_start_offset(1, "test")
    log = world.reload(clean=True, log_start_offset=1)
    assert world.loaded.recovery == (0, 0, 0)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (1, 9, 2)
    assert log.leader_epochs.entries == ((1, 1), (2, 5))
    assert world.offsets(1) == EVERYTHING[1:]
    assert not log.is_dirty
    assert log.recovery_point == 6
    assert world.append(producer_id=1, producer_epoch=0, base_sequence=9, epoch=2) == 9


def test_10_11_what_a_clean_stop_leaves_on_the_disk() -> None:
    world = filled()
    world.close()
    for base in (0, 3, 6):
        assert world.disk.size(world.path(base, ".index")) == 2 * 8
        assert world.disk.size(world.path(base, ".timeindex")) == 3 * 12 - 12
    assert "00000000000000000009.snapshot" in world.names()
    world.disk.crash(world.chance)  # all of it is on the device
    log = world.reload(clean=True, close=False)
    assert world.offsets() == EVERYTHING
    assert log.offset_for_timestamp(NOW_MS + 8) == (NOW_MS + 8, 8, 2)


def test_closing_an_unchanged_log_does_nothing() -> None:
    world = filled()
    world.reload(clean=True)
    operations = dict(world.disk.operations)
    assert world.log.prepare_close() is None
    assert world.disk.operations == operations


def test_8_an_unclean_stop_reads_from_the_segment_of_the_recovery_point() -> None:
    world = filled()
    for base in (0, 3, 6):  # as Kafka leaves them when it is killed
        world.disk.open(world.path(base, ".index"), create=True).truncate(10 * 1024 * 1024)
    world.log.leader_epochs.write()
    log = world.reload(recovery_point=4)
    assert world.loaded.recovery.segments == 2
    assert log.recovery_point == 3
    assert world.offsets() == EVERYTHING
    assert [segment.offset_index.entry_count for segment in log.segments] == [2, 2, 2]
    assert world.disk.size(world.path(3, ".index")) == 16
    assert log.leader_epochs.entries[-1] == (2, 5)


def test_16_corruption_below_the_recovery_point_is_not_noticed_above_it_cuts() -> None:
    world = filled()
    world.log.flush()
    content = bytearray(world.disk.read(world.path(3, ".log")))
    content[-1] ^= 1
    world.disk.overwrite(world.path(3, ".log"), bytes(content))
    assert world.reload(recovery_point=6).log_end_offset == 9
    log = world.reload(recovery_point=3)
    assert log.log_end_offset == 5
    assert log.segments.base_offsets == [0, 3]
    assert world.loaded.recovery.cut_bytes > 0
    assert world.offsets() == EVERYTHING[:5]
    assert log.latest_epoch == 1
    assert not [name for name in world.names() if "0006" in name]
    assert world.append(producer_id=1, producer_epoch=0, base_sequence=5) == 5


def test_15_a_batch_cut_in_the_middle() -> None:
    world = filled()
    path = world.path(6, ".log")
    world.disk.overwrite(path, world.disk.read(path)[:-5])
    log = world.reload()
    assert log.log_end_offset == 8
    assert world.disk.size(path) == 2 * 79
    assert [tuple(entry) for entry in log.segments.active.offset_index.entries()] == [(7, 79)]


def test_a_zero_filled_tail_is_cut() -> None:
    world = filled()
    path = world.path(6, ".log")
    world.disk.overwrite(path, world.disk.read(path) + bytes(4096))
    assert world.reload().log_end_offset == 9
    assert world.disk.size(path) == 3 * 79


@pytest.mark.parametrize(
    ("compact", "was_compacted", "log_end_offset"), [(False, False, 5), (True, False, 9), (False, True, 9)]
)
def test_a_hole_between_segments_drops_what_follows_except_where_a_cleaner_has_been(
    compact: bool, was_compacted: bool, log_end_offset: int
) -> None:
    world = filled(compact=compact)
    path = world.path(3, ".log")
    world.disk.overwrite(path, world.disk.read(path)[: 2 * 79])
    world.log.close()
    loaded = load_log(
        world.environment, world.directory, TP, world.config, had_clean_shutdown=False, was_compacted=was_compacted
    )
    assert loaded.log.log_end_offset == log_end_offset


def test_an_epoch_that_was_cut_before_a_crash_is_not_known_again_where_a_cleaner_has_been() -> None:
    """The file is from before the cut: the leader's records there are of an older epoch."""
    world = LogWorld(segment_bytes=1 << 20)
    world.append(3, epoch=3)
    world.append(3, epoch=5)
    world.log.flush()
    world.log.truncate_to(3)
    leader = LogWorld()
    leader.append(3, epoch=3)
    leader.append(3, epoch=3)
    leader.append(3, epoch=6)
    for batch in leader.batches(3):
        world.log.append_as_follower(bytes(batch.buffer), 6)
    expected = [(3, 0), (6, 6)]
    assert list(world.log.leader_epochs.entries) == expected
    world.disk.kill()
    assert list(world.reload(close=False, was_compacted=True).leader_epochs.entries) == expected


def test_epochs_of_a_compacted_log_begin_where_they_began_though_the_batches_there_are_gone() -> None:
    world = filled()
    world.log.leader_epochs.write()
    path = world.path(3, ".log")
    world.disk.overwrite(path, world.disk.read(path)[: 2 * 79])
    world.log.close()
    loaded = load_log(
        world.environment, world.directory, TP, world.config, had_clean_shutdown=False, was_compacted=True
    )
    assert list(loaded.log.leader_epochs.entries) == [(1, 0), (2, 5)]


def test_a_leftover_of_a_truncation_is_dropped() -> None:
    world = filled()
    stale = world.disk.read(world.path(3, ".log"))
    world.log.truncate_to(3)
    for _ in range(2):
        world.append(size=1, epoch=3)
    world.log.close()
    world.disk.open(world.path(4, ".log"), create=True).write_at(0, [stale])
    log = world.reload()
    assert log.segments.base_offsets == [0, 3]
    assert log.log_end_offset == 5


def test_14_a_missing_index_is_rebuilt_even_after_a_clean_stop() -> None:
    world = filled()
    world.close()
    world.disk.remove(world.path(3, ".index"))
    log = world.reload(clean=True, close=False)
    assert world.loaded.recovery.segments == 1
    assert world.disk.size(world.path(3, ".index")) == 16
    assert log.leader_epochs.entries == ((1, 0), (2, 5))
    assert log.recovery_point == 3
    assert world.offsets() == EVERYTHING


def test_14_missing_time_and_transaction_indexes() -> None:
    world = filled()
    world.close()
    for base in (0, 3, 6):
        world.disk.remove(world.path(base, ".timeindex"))
    log = world.reload(clean=True, close=False)
    assert world.loaded.recovery.segments == 0
    assert log.offset_for_timestamp(NOW_MS + 4) == (NOW_MS + 4, 4, 1)
    assert log.offset_of_max_timestamp() == (NOW_MS + 8, 8, 2)


def test_an_index_that_lies_about_the_active_segment_is_rebuilt() -> None:
    world = filled()
    world.close()
    world.disk.overwrite(world.path(6, ".index"), world.disk.read(world.path(6, ".index"))[:-3])
    log = world.reload(clean=True, close=False)
    assert world.loaded.recovery.segments == 1
    assert log.log_end_offset == 9
    world.close()
    world.disk.overwrite(world.path(6, ".index"), bytes.fromhex("00000001 00ffffff"))
    assert world.reload(clean=True, close=False).log_end_offset == 9


def test_a_damaged_transaction_index_is_rebuilt() -> None:
    world = LogWorld()
    world.append(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.marker(7, commit=False)
    world.close()
    world.disk.overwrite(world.path(0, ".txnindex"), b"\0\7" + bytes(32))
    log = world.reload(clean=True, close=False)
    assert log.local_log.collect_aborted(0, 2) == [AbortedTransaction(7, 0, 1, 2)]


def test_recovery_rebuilds_the_transaction_index() -> None:
    world = LogWorld()
    for producer_id in (7, 8):
        world.append(producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.marker(7, commit=False)
    world.marker(8, commit=True)
    expected = world.disk.read(world.path(0, ".txnindex"))
    world.disk.remove(world.path(0, ".txnindex"))
    log = world.reload()
    assert world.disk.read(world.path(0, ".txnindex")) == expected
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_an_open_transaction_survives() -> None:
    for clean in (True, False):
        world = LogWorld()
        world.append()
        world.append(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
        log = world.reload(clean=clean)
        log.update_high_watermark(2)
        assert log.last_stable_offset == 1
        world.marker(7, commit=True)
        assert log.last_stable_offset == 3


def test_18_a_log_start_above_the_end_empties_the_log() -> None:
    world = filled()
    log = world.reload(clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (50, 50, [50])
    assert log.latest_epoch is None
    assert world.append(epoch=3) == 50


def test_18_a_log_start_inside_the_first_segment() -> None:
    world = filled()
    for clean in (True, False):
        log = world.reload(clean=clean, log_start_offset=2)
        assert (log.log_start_offset, log.segments.first.base_offset) == (2, 0)
        assert log.leader_epochs.entries[0] == (1, 2)


def test_31_corrupt_snapshots_fall_back_to_the_same_state() -> None:
    world = filled()
    world.close()
    for base in (3, 6, 9):
        path = world.path(base, ".snapshot")
        assert world.disk.exists(path)
        world.disk.overwrite(path, b"garbage")
        log = world.reload(clean=True, close=False)
        entry = log.producer_state_manager.last_entry(1)
        assert entry is not None
        assert (entry.last_sequence, entry.batches[-1].last_offset) == (8, 8)


def test_31_stray_snapshots_are_removed() -> None:
    world = filled()
    world.close()
    for offset in (1, 4, 12):
        world.disk.open(world.path(offset, ".snapshot"), create=True).write_at(0, [b"x"])
    world.reload(clean=True, close=False)
    snapshots = [name for name in world.names() if name.endswith(".snapshot")]
    assert [int(name.split(".")[0]) for name in snapshots] == [3, 6]
    assert world.log.producer_state_manager.last_entry(1).last_sequence == 8  # type: ignore[union-attr]


def test_21_orphan_indexes_and_leftovers_are_removed() -> None:
    world = filled()
    world.close()
    for name in ("00000000000000000099.index", "00000000000000000003.log.deleted", "leader-epoch-checkpoint.tmp"):
        world.disk.open(world.directory / name, create=True)
    world.reload(clean=True, close=False)
    assert not [name for name in world.names() if "99" in name or name.endswith((".deleted", ".tmp"))]


@pytest.mark.parametrize("content", [b"nonsense", b"", b"0\n0\n", None])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("compact", [True, False])
def test_epochs_that_are_damaged_or_missing_are_read_from_the_batches(
    content: bytes | None, clean: bool, compact: bool
) -> None:
    world = filled(compact=compact)
    world.close()
    path = world.log.leader_epochs.path
    if content is None:
        world.disk.remove(path)
    else:
        world.disk.overwrite(path, content)
    log = world.reload(clean=clean, recovery_point=9, close=False)
    assert log.leader_epochs.entries == ((1, 0), (2, 5))
    world.reload(clean=True)
    assert world.loaded.recovery.segments == 0  # the file has them


def test_a_log_without_a_record_has_no_epochs_to_look_for() -> None:
    world = LogWorld()
    world.reload(clean=True)
    assert world.loaded.recovery.segments == 0


def test_epochs_beyond_the_end_are_forgotten() -> None:
    world = filled()
    world.close()
    world.disk.overwrite(world.directory / "leader-epoch-checkpoint", b"0\n3\n1 0\n2 5\n7 9\n")
    assert world.reload(clean=True, close=False).leader_epochs.entries == ((1, 0), (2, 5))


def test_a_damaged_partition_metadata_counts_as_none() -> None:
    world = filled()
    world.disk.open(world.directory / "partition.metadata", create=True).write_at(0, [b"version"])
    assert world.reload().topic_id is None


def test_a_start_with_a_full_disk_works() -> None:
    world = filled()
    path = world.path(6, ".log")
    world.disk.overwrite(path, world.disk.read(path)[:-5])
    for base in (0, 3, 6):
        world.disk.remove(world.path(base, ".index"))
    world.disk.budget_bytes = 0
    log = world.reload()
    assert log.log_end_offset == 8
    assert world.offsets() == EVERYTHING[:8]
    world.disk.heal()
    assert world.append(producer_id=1, producer_epoch=0, base_sequence=8) == 8
    world.log.flush()
    assert world.disk.size(world.path(3, ".index")) == 16


def test_an_unreadable_length_in_a_sealed_trusted_segment_does_not_stop_a_clean_start() -> None:
    world = filled()
    world.close()
    world.disk.overwrite(world.path(0, ".index"), world.disk.read(world.path(0, ".index"))[:-1])
    assert world.reload(clean=True, close=False).log_end_offset == 9
    assert world.offsets() == EVERYTHING


# -- interrupted swaps -------------------------------------------------------------------------------------------------


def names_after(*names: str, world: LogWorld | None = None) -> list[str]:
    world = world or LogWorld()
    for name in world.names():
        world.disk.remove(world.directory / name)
    for name in names:
        base = int(name.partition(".")[0])
        content = bytes(world.batch(base_offset=base)) if ".log" in name else b""
        world.disk.open(world.directory / name, create=True).write_at(0, [content])
    left = settle_interrupted_work(world.disk, world.directory)
    assert left == world.names()
    return left


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["0.log", "1.log", "0.log.cleaned", "0.index.cleaned"], ["0.log", "1.log"]),
        (["0.log", "1.log", "0.log.cleaned", "0.index.swap"], ["0.log", "1.log"]),
        (["0.log", "0.index", "1.log", "0.log.swap", "0.index.swap"], ["0.index", "0.log", "1.log"]),
        (["0.log.deleted", "1.log", "0.log.swap", "0.index.swap"], ["0.index", "0.log", "1.log"]),
        (["0.log", "1.log", "0.index.swap"], ["0.index", "0.log", "1.log"]),
    ],
    ids=["cleaned", "swap-incomplete", "swap", "old-set-aside", "log-already-renamed"],
)
def test_20_each_crash_point_of_a_swap(names: list[str], left: list[str]) -> None:
    assert names_after(*names) == left


def test_20_an_empty_swap_replaces_the_indexes_of_its_base_too() -> None:
    """An empty segment has none of its own."""
    world = LogWorld()
    world.disk.open(world.path(0, ".log.swap"), create=True)
    for name in (".log", ".index", ".timeindex", ".txnindex"):
        world.disk.open(world.path(0, name), create=True).write_at(0, [b"old"])
    world.disk.open(world.path(1, ".log"), create=True).write_at(0, [b"kept"])
    assert settle_interrupted_work(world.disk, world.directory) == [f"{0:020d}.log", f"{1:020d}.log"]
    assert world.disk.read(world.path(0, ".log")) == b""
    assert world.disk.read(world.path(1, ".log")) == b"kept"


def test_20_a_swap_replaces_all_the_segments_it_covers() -> None:
    world = LogWorld()
    for name in world.names():
        world.disk.remove(world.directory / name)
    for base in (0, 1, 2, 9):
        world.disk.open(world.path(base, ".log"), create=True).write_at(0, [b"old"])
    merged = b"".join(bytes(world.batch(base_offset=base)) for base in (0, 1, 2))
    world.disk.open(world.path(0, ".log.swap"), create=True).write_at(0, [merged])
    assert settle_interrupted_work(world.disk, world.directory) == [
        world.path(0, ".log").name,
        world.path(9, ".log").name,
    ]
    assert world.disk.read(world.path(0, ".log")) == merged


def test_directory_names() -> None:
    assert partition_directory(LOG_DIRECTORY, TopicPartition("a-b", 3)) == LOG_DIRECTORY / "a-b-3"
    assert partition_directory(LOG_DIRECTORY, TP).name == "t-0"


def test_nonsense_in_the_active_segment_after_a_clean_stop_is_cut() -> None:
    world = filled()
    world.close()
    path = world.path(6, ".log")
    world.disk.overwrite(path, world.disk.read(path) + b"\xff" * 40)
    assert world.reload(clean=True, close=False).log_end_offset == 9
    assert world.disk.size(path) == 3 * 79


def test_nonsense_below_the_recovery_point_does_not_stop_a_start() -> None:
    world = filled()
    world.log.flush()
    for base in (3, 6):
        world.disk.remove(world.path(base, ".snapshot"))
    content = bytearray(world.disk.read(world.path(3, ".log")))
    content[79 + 8 : 79 + 12] = b"\xff" * 4
    world.disk.overwrite(world.path(3, ".log"), bytes(content))
    log = world.reload(recovery_point=6)
    assert log.log_end_offset == 9
    assert log.producer_state_manager.last_entry(1).last_sequence == 8  # type: ignore[union-attr]


def test_a_log_start_that_went_back_in_a_crash_finds_its_epochs_in_the_batches() -> None:
    """Segments that were set aside came back, whose epochs the file does not tell any more."""
    world = filled()
    world.log.maybe_increment_log_start_offset(7, "test")
    assert world.log.leader_epochs.entries == ((2, 7),)
    world.log.leader_epochs.log_start_is_durable(7)
    world.log.leader_epochs.write()
    log = world.reload(recovery_point=9, log_start_offset=4)
    assert log.log_start_offset == 4
    assert log.leader_epochs.entries == ((1, 4), (2, 5))
    assert world.offsets(4) == EVERYTHING[4:]


def test_epochs_are_in_the_file_until_the_device_knows_the_log_start() -> None:
    world = filled()
    world.log.maybe_increment_log_start_offset(7, "test")
    log = world.reload(clean=True, log_start_offset=4)
    assert log.log_start_offset == 4
    assert log.leader_epochs.entries == ((1, 4), (2, 5))
    assert world.loaded.recovery.segments == 0


def drained() -> LogWorld:
    """As `filled`, of a tiered topic, of which only the last segment is on the disk."""
    world = filled(tiered=True, local_retention_bytes=79 * 3)
    world.copied_up_to(9)
    assert world.log.delete_old_segments() == 2
    assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 6)
    return world


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("log_start_offset", [0, 3])
def test_a_tiered_log_starts_where_the_checkpoint_says(clean: bool, log_start_offset: int) -> None:
    world = drained()
    world.log.maybe_increment_log_start_offset(log_start_offset, "test")
    lineage = world.log.leader_epochs.entries
    log = world.reload(clean=clean, recovery_point=9, log_start_offset=log_start_offset)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (log_start_offset, 6, 9)
    assert log.high_watermark == 6
    assert log.leader_epochs.entries == lineage
    assert log.producer_state_manager.last_entry(1).last_sequence == 8  # type: ignore[union-attr]


def test_51_without_any_checkpoint_a_tiered_log_starts_at_0() -> None:
    world = drained()
    lineage = world.log.leader_epochs.entries
    log = world.reload()
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 6, 9)
    assert log.leader_epochs.entries == lineage == ((1, 0), (2, 5))
    assert world.loaded.recovery.scanned_bytes > 0


def test_a_log_that_is_not_tiered_starts_with_its_first_segment() -> None:
    world = drained()
    world.config = topic_config(segment_bytes=300)
    log = world.reload(clean=True)
    assert (log.log_start_offset, log.local_log_start_offset) == (6, 6)
    assert log.leader_epochs.entries == ((2, 6),)


def test_a_tiered_log_whose_epochs_are_lost_finds_those_of_its_disk() -> None:
    world = drained()
    world.close()
    world.disk.overwrite(world.log.leader_epochs.path, b"what is this")
    log = world.reload(clean=True, close=False)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 6)
    assert log.leader_epochs.entries == ((2, 6),)


def test_segments_that_come_back_after_a_power_cut_belong_to_the_log_again() -> None:
    """Between the raise of the local start and the last name that the device hears of."""
    found = set()
    for seed in range(40):
        world = drained()
        world.chance = Chance(seed)
        lineage = world.log.leader_epochs.entries
        world.disk.crash(world.chance)
        log = world.reload(recovery_point=9)
        found.add(log.local_log_start_offset)
        assert (log.log_start_offset, log.log_end_offset) == (0, 9)
        assert log.leader_epochs.entries == lineage
        assert world.offsets() == EVERYTHING[log.local_log_start_offset :]
    assert found == {0, 3, 6}
