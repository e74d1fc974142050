from pathlib import Path

from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.server.metadata_topic.starting_policy import FromEarliest, StartingPolicy, WithinRetention
from broker.server.metadata_topic.topic_positions import MetadataPosition, TopicPositions
from tests.support.builders import NOW_MS, SettableClock
from tests.unit.server.metadata_topic_support import TOPIC_ID


def within_retention(directory: Path, retention_ms: int = 60_000, whole: int | None = None) -> StartingPolicy:
    positions = TopicPositions(OsFileSystem(), InlineDiskExecutor(), directory / "positions", read_again_seconds=0)
    return WithinRetention(
        positions, SettableClock(), retention_ms=retention_ms, is_wanted_whole=lambda partition: partition == whole
    )


async def test_within_a_retention_an_earlier_run_is_remembered_once(tmp_path: Path) -> None:
    earlier = within_retention(tmp_path)
    await earlier.save(TOPIC_ID, {4: MetadataPosition(100, 3), 5: MetadataPosition(7, 3)}, 0.0)
    start = within_retention(tmp_path)
    await start.load()
    start.forget(5)
    assert start.oldest_timestamp() == NOW_MS - 60_000
    assert [start.take(TOPIC_ID, each) for each in (4, 4, 5)] == [MetadataPosition(100, 3), None, None]


async def test_what_only_memory_knows_is_read_from_the_oldest_again(tmp_path: Path) -> None:
    earlier = within_retention(tmp_path)
    await earlier.save(TOPIC_ID, {4: MetadataPosition(100, 3), 5: MetadataPosition(7, 3)}, 0.0)
    start = within_retention(tmp_path, whole=4)
    await start.load()
    assert [start.take(TOPIC_ID, each) for each in (4, 5)] == [None, MetadataPosition(7, 3)]


def test_no_retention_is_longer_than_time_itself(tmp_path: Path) -> None:
    assert within_retention(tmp_path, NOW_MS + 1).oldest_timestamp() == 0


async def test_what_is_read_whole_is_not_remembered() -> None:
    start: StartingPolicy = FromEarliest()
    await start.save(TOPIC_ID, {4: MetadataPosition(100, 3)}, 0.0)
    await start.load()
    start.forget(5)
    assert (start.oldest_timestamp(), start.take(TOPIC_ID, 4)) == (-2, None)
