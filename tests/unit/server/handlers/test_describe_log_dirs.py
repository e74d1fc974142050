from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode, StorageFailure
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_log_dirs import describe_log_dirs
from tests.support.builders import batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier


async def describe(world: RequestWorld, version: int, topics: dict[str, tuple[int, ...]] | None) -> Any:
    classes = schema(ApiKey.DESCRIBE_LOG_DIRS, version)
    asked = (
        None
        if topics is None
        else tuple(classes.DescribableLogDirTopic(topic=name, partitions=each) for name, each in topics.items())
    )
    entity = classes.DescribeLogDirsRequest(topics=asked)
    response = await world.call(describe_log_dirs, ApiKey.DESCRIBE_LOG_DIRS, version, entity)
    (result,) = response.results
    return result


def sizes_of(result: Any) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (topic.name, each.partition_index): (each.partition_size, each.offset_lag)
        for topic in result.topics
        for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_and_lags(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t", partitions=2, replicas=(1, 2))
        world.append(batch("a"))
        size = len(batch("a"))
        result = await describe(world, version, None)
        assert (result.error_code, result.log_dir) == (ErrorCode.none, str(tmp_path))
        assert sizes_of(result) == {("t", 0): (size, 1), ("t", 1): (0, 0)}
        if version >= 4:
            assert 0 <= result.usable_bytes <= result.total_bytes
        assert sizes_of(await describe(world, version, {"t": (0, 9), "x": (0,)})) == {("t", 0): (size, 1)}
        assert sizes_of(await describe(world, version, {})) == {}

    simulate(story)


def test_remote_segments_are_on_no_disk(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = TieredWorld(tmp_path, 0, 10, 20)
        tier(world.partition().log, 2)
        world.partition().log.delete_old_segments()
        assert sizes_of(await describe(world, 4, None)) == {("t", 0): (len(batch("2")), 0)}

    simulate(story)


def test_a_relative_directory_is_told_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def story(loop: SimLoop) -> None:
        result = await describe(RequestWorld(Path("logs")), 4, None)
        assert result.log_dir == str(tmp_path / "logs")

    simulate(story)


def test_a_volume_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> tuple[int, int]:
        raise StorageFailure("gone")

    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        monkeypatch.setattr(world.replicas, "volume_bytes", fail)
        result = await describe(world, 4, None)
        assert (result.error_code, result.total_bytes, result.usable_bytes) == (ErrorCode.kafka_storage_error, -1, -1)

    simulate(story)
