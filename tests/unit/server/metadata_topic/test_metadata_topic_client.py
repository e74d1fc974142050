"""The parts are tested by themselves, and the whole on clusters: here is what joins them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.errors import ErrorCode
from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.common.metadata_topic import MetadataRecord, MetadataTopic, MetadataTopicError
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import decode_request, encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.metadata_topic_client import MetadataTopicClient
from broker.server.metadata_topic.starting_policy import FromEarliest
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.topic_spec import TopicSpec
from tests.support.builders import SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.support.sim_network import SimNetwork
from tests.unit.server.link_support import FakeController, broker_record, config_holder, finder_with_leader, image_with
from tests.unit.server.metadata_topic_support import World


class _Answering(asyncio.Protocol):
    """A leader that lists the offset it is told."""

    def __init__(self, error: ErrorCode, client_ids: list[str | None]) -> None:
        self._error = error
        self._client_ids = client_ids

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        request = decode_request(bytes(self._received[4:]))
        self._client_ids.append(request.client_id)
        schema = ResponseSchema.of(ApiKey.LIST_OFFSETS, request.version)
        partition = schema.ListOffsetsPartitionResponse(
            partition_index=1, error_code=self._error, timestamp=-1, offset=77, leader_epoch=3
        )
        topic = schema.ListOffsetsTopicResponse(name=REMOTE_WAL_LOG_METADATA_TOPIC, partitions=(partition,))
        entity = schema.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))
        self._transport.writelines(
            encode_response(ApiKey.LIST_OFFSETS, request.version, request.correlation_id, entity)
        )


class Setup(World):
    def __init__(self, loop: SimLoop, *leaders: int, replicas: int = 1) -> None:
        super().__init__(*leaders)
        self.network = SimNetwork(loop)
        self.client_ids: list[str | None] = []
        self.channel = NodeToControllerChannel(
            "forwarding", finder_with_leader(), FakeController().connect, request_timeout_ms=1_000
        )
        self.told: list[MetadataRecord] = []
        self.replaced: list[UUID | None] = []
        self.topic = MetadataTopicClient(
            TopicSpec(REMOTE_WAL_LOG_METADATA_TOPIC, 2, replicas),
            2,
            config_holder(node__id="2"),
            self.cache,
            ForwardingManager(self.channel),
            self.address_of,
            FromEarliest(),
            self.on_metadata,
            lambda: self.replaced.append(self.routes.topic_id),
            client_id="me",
            acks=-1,
            network=self.network.host("host-2"),
            clock=SettableClock(),
            chance=Chance(1),
        )

    def on_metadata(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self.told += records

    async def listen(self, broker_id: int, error: ErrorCode = ErrorCode.none) -> None:
        host = self.network.host(f"host-{broker_id}")
        protocol: Any = partial(_Answering, error, self.client_ids)
        server, _ = await host.bind(protocol, f"host-{broker_id}", 9000 + broker_id, None)
        await server.start_serving()


def test_it_is_the_port() -> None:
    async def story(loop: SimLoop) -> None:
        port: MetadataTopic = Setup(loop, 1, 3).topic
        assert (port.partition_count, port.lag, port.position(0)) == (2, 0, None)
        assert Setup(loop).topic.partition_count is None

    simulate(story)


def test_the_end_is_asked_of_the_leader() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, 1, 3, -1)
        await setup.listen(3)
        assert await setup.topic.end_offset(1) == 77
        with pytest.raises(MetadataTopicError, match="partition 0 does not answer"):
            await setup.topic.end_offset(0)
        with pytest.raises(MetadataTopicError, match="partition 2 has no leader"):
            await setup.topic.end_offset(2)

    simulate(story)


def test_an_end_that_the_leader_refuses_to_tell() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, 1, 3)
        await setup.listen(3, ErrorCode.not_leader_or_follower)
        with pytest.raises(MetadataTopicError, match="answers not_leader_or_follower"):
            await setup.topic.end_offset(1)

    simulate(story)


def test_the_topic_could_be_there_once_this_broker_and_enough_others_are() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, replicas=3)
        assert setup.topic.could_exist
        for fenced in (2, 3):  # this one, another one
            setup.cache.set_image(image_with(*(broker_record(each, fenced=each == fenced) for each in (1, 2, 3))))
            assert not setup.topic.could_exist
        setup.cache.set_image(image_with(*(broker_record(each) for each in (1, 3, 4))))  # this one is not known
        assert not setup.topic.could_exist

    simulate(story)


def test_another_topic_of_that_name_is_told_of() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, 1, 3)
        async with setup.topic.running():
            setup.lead(3, 1)
            assert setup.replaced == []
            setup.lead(1, 3, topic_id=UUID(int=0xC0C1))
            assert setup.replaced == [UUID(int=0xC0C1)]

    simulate(story)


def test_it_tells_leaders_who_asks() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, 1, 3)
        await setup.listen(3)
        await setup.topic.end_offset(1)
        assert setup.client_ids == ["me"]

    simulate(story)
