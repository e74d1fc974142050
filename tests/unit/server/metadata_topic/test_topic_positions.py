from pathlib import Path
from uuid import UUID

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.server.metadata_topic.topic_positions import MetadataPosition, TopicPositions
from tests.unit.server.metadata_topic_support import TOPIC_ID

FILE_NAME = "positions"


def positions(directory: Path, read_again_seconds: float = 60) -> TopicPositions:
    return TopicPositions(
        OsFileSystem(), InlineDiskExecutor(), directory / FILE_NAME, read_again_seconds=read_again_seconds
    )


async def remembered(directory: Path, *partitions: int, topic_id: UUID = TOPIC_ID) -> list[MetadataPosition | None]:
    later = positions(directory)
    await later.load()
    return [later.take(topic_id, partition) for partition in partitions]


async def test_the_next_run_begins_where_this_one_was_a_while_ago(tmp_path: Path) -> None:
    here = positions(tmp_path)
    for step in range(13):
        now = {4: MetadataPosition(100 * step, 3), 5: MetadataPosition(7, -1)}
        await here.save(TOPIC_ID, now, 1000.0 + 10 * step)

    assert await remembered(tmp_path, 4, 5, 6) == [MetadataPosition(600, 3), MetadataPosition(7, -1), None]
    assert (tmp_path / FILE_NAME).read_text() == "1\nAAAAAAAAAAAAAAAAAADAwA\n2\n4 600 3\n5 7 -1\n"


async def test_a_short_run_leaves_the_file_of_the_one_before(tmp_path: Path) -> None:
    here = positions(tmp_path, read_again_seconds=0)
    await here.save(TOPIC_ID, {4: MetadataPosition(100, 3)}, 0.0)
    later = positions(tmp_path)
    for now in (10.0, 50.0, 69.9):
        await later.save(TOPIC_ID, {4: MetadataPosition(500, 3)}, now)
    assert await remembered(tmp_path, 4) == [MetadataPosition(100, 3)]
    await later.save(TOPIC_ID, {4: MetadataPosition(900, 3)}, 70.0)
    assert await remembered(tmp_path, 4) == [MetadataPosition(500, 3)]


async def test_a_partition_that_was_begun_again_is_remembered_where_it_is(tmp_path: Path) -> None:
    here = positions(tmp_path)
    await here.save(TOPIC_ID, {4: MetadataPosition(100, 3), 5: MetadataPosition(100, 3)}, 0.0)
    await here.save(TOPIC_ID, {4: MetadataPosition(20, 3), 6: MetadataPosition(1, 3)}, 60.0)
    assert await remembered(tmp_path, 4, 5, 6) == [MetadataPosition(20, 3), None, None]


async def test_it_is_used_once_and_not_for_another_topic(tmp_path: Path) -> None:
    await positions(tmp_path, 0).save(TOPIC_ID, {4: MetadataPosition(100, 3), 5: MetadataPosition(1, 1)}, 0.0)
    assert await remembered(tmp_path, 4, 4) == [MetadataPosition(100, 3), None]
    assert await remembered(tmp_path, 4, topic_id=UUID(int=5)) == [None]
    later = positions(tmp_path)
    await later.load()
    later.forget(4)
    assert (later.take(TOPIC_ID, 4), later.take(TOPIC_ID, 5)) == (None, MetadataPosition(1, 1))


@pytest.mark.parametrize(
    "content",
    ["", "2\nAAAAAAAAAAAAAAAAAADAwA\n0\n", "1\nAAAA\n0\n", "1\nAAAAAAAAAAAAAAAAAADAwA\n2\n4 600 3\n", "1\nx\n", "\0"],
)
async def test_a_file_that_is_none_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert await remembered(tmp_path, 4) == [None]


async def test_without_a_file_or_a_place_for_it_life_goes_on(tmp_path: Path) -> None:
    assert await remembered(tmp_path, 4) == [None]
    nowhere = positions(tmp_path / "missing", 0)
    await nowhere.save(TOPIC_ID, {4: MetadataPosition(100, 3)}, 0.0)
