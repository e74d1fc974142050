from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.metadata_topic.topic_positions import MetadataPosition, TopicPositions
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.outside import Outside
from broker.server.wal.wal_metadata_topic import POSITIONS_FILE, wal_metadata_topic
from tests.support.builders import NOW_MS, SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.support.sim_network import SimNetwork
from tests.unit.server.link_support import FakeController, config_holder, finder_with_leader
from tests.unit.server.metadata_topic_support import TOPIC_ID, World

PARTITIONS = 5
PREFIX = "rwlmm__config__remote__wal__log__metadata__"


def made(loop: SimLoop, directory: Path, **settings: str) -> MetadataTopicClient:
    world = World(*[1] * PARTITIONS)
    channel = NodeToControllerChannel(
        "forwarding", finder_with_leader(), FakeController().connect, request_timeout_ms=1_000
    )
    network = SimNetwork(loop).host("host-2")
    return wal_metadata_topic(
        2,
        config_holder(node__id="2", log__dirs=str(directory), **settings),
        world.cache,
        ForwardingManager(channel),
        world.address_of,
        lambda partition, records: None,
        Outside(SettableClock(), Chance(1), OsFileSystem(), InlineDiskExecutor(), network),
    )


@pytest.mark.parametrize(("setting", "acks"), [("all", -1), ("-1", -1), ("1", 1)])
def test_acks_are_those_of_the_setting(tmp_path: Path, setting: str, acks: int) -> None:
    async def story(loop: SimLoop) -> None:
        assert made(loop, tmp_path, **{f"{PREFIX}producer__acks": setting}).producer._acks == acks

    simulate(story)


def test_reading_begins_one_retention_ago_or_where_an_earlier_run_was(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        earlier = TopicPositions(OsFileSystem(), InlineDiskExecutor(), tmp_path / POSITIONS_FILE, read_again_seconds=0)
        await earlier.save(TOPIC_ID, {4: MetadataPosition(100, 3)}, 0.0)
        topic = made(loop, tmp_path, **{f"{PREFIX}topic__retention__ms": "9000"})
        start = topic.consumer._start
        await start.load()
        assert start.oldest_timestamp() == NOW_MS - 9_000
        assert start.take(TOPIC_ID, 4) == MetadataPosition(100, 3)

    simulate(story)


def test_what_is_told_of_own_objects_is_read_whole(tmp_path: Path) -> None:
    """Who may delete them has to know of all there are, also of those an earlier process uploaded."""

    async def story(loop: SimLoop) -> None:
        earlier = TopicPositions(OsFileSystem(), InlineDiskExecutor(), tmp_path / POSITIONS_FILE, read_again_seconds=0)
        await earlier.save(TOPIC_ID, {each: MetadataPosition(100, 3) for each in range(PARTITIONS)}, 0.0)
        topic = made(loop, tmp_path)
        assert topic.partition_count == PARTITIONS
        start = topic.consumer._start
        await start.load()
        whole = [each for each in range(PARTITIONS) if start.take(TOPIC_ID, each) is None]
        assert whole == [combined_event_partition_of(2, PARTITIONS)]

    simulate(story)
