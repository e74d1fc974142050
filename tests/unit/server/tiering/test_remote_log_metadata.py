from collections.abc import Callable
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.server.forwarding_manager import ForwardingManager
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.outside import Outside
from broker.server.tiering.remote_log_metadata import RemoteLogMetadata, remote_log_metadata
from tests.support.builders import SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.support.sim_network import SimNetwork
from tests.unit.server.link_support import (
    FakeController,
    broker_record,
    config_holder,
    finder_with_leader,
    image_with,
    partition_record,
    topic_records,
)
from tests.unit.server.metadata_topic_support import TOPIC_ID, World

SETTINGS = {
    "remote__log__storage__system__enable": "true",
    "remote__log__storage__manager__class__name": "LocalTieredStorage",
    "rsm__config__bucket": "file:///bucket",
    "rlmm__config__remote__log__metadata__topic__num__partitions": "7",
}
LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,METADATA://127.0.0.1:9093,CONTROLLER://127.0.0.1:9190",
    "listener__security__protocol__map": "PLAINTEXT:PLAINTEXT,METADATA:PLAINTEXT,CONTROLLER:PLAINTEXT",
}


def with_made(play: Callable[[World, RemoteLogMetadata], None], **settings: str) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(1)
        channel = NodeToControllerChannel(
            "forwarding", finder_with_leader(), FakeController().connect, request_timeout_ms=1_000
        )
        network = SimNetwork(loop).host("host-1")
        made = remote_log_metadata(
            1,
            config_holder(**SETTINGS, **settings),
            world.cache,
            ForwardingManager(channel),
            Outside(SettableClock(), Chance(1), OsFileSystem(), InlineDiskExecutor(), network),
            lambda error: None,
        )
        play(world, made)

    simulate(story)


def _lead(world: World, *listeners: str) -> None:
    partition: Any = partition_record(TOPIC_ID, 0, (2,), leader=2)
    topic = topic_records("__remote_log_metadata", TOPIC_ID)
    world.cache.set_image(image_with(broker_record(1), broker_record(2, listeners=listeners), *topic, partition))


def test_all_replicas_have_an_event_that_is_acknowledged_and_all_events_are_read() -> None:
    def play(world: World, made: RemoteLogMetadata) -> None:
        assert made.topic.producer._acks == -1
        assert made.topic.consumer._start.oldest_timestamp() == -2
        assert made.topic._creator._spec.partition_count == made.manager._settings.partition_count == 7

    with_made(play)


@pytest.mark.parametrize(
    ("settings", "listener"),
    [({}, "PLAINTEXT"), ({"remote__log__metadata__manager__listener__name": "METADATA"}, "METADATA")],
)
def test_it_is_reached_through_the_listener_of_the_settings(settings: dict[str, str], listener: str) -> None:
    def play(world: World, made: RemoteLogMetadata) -> None:
        for listeners in (("PLAINTEXT",), ("METADATA",), ()):
            _lead(world, *listeners)
            is_reached = made.topic._routes.route(0) is not None
            assert is_reached == (listener in listeners)

    with_made(play, **LISTENERS, **settings)
