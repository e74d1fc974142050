"""The parts are tested by themselves, and the whole on clusters: here is what joins them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import ErrorCode
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import decode_request, encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.server.forwarding_manager import ForwardingManager
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.wal.wal_metadata_positions import WalMetadataPositions
from broker.server.wal.wal_metadata_topic import WalMetadataTopic
from broker.wal.announce.metadata_topic import MetadataRecord, MetadataTopic, MetadataTopicError
from tests.support.builders import SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.support.sim_network import SimNetwork
from tests.unit.server.link_support import FakeController, config_holder, finder_with_leader
from tests.unit.server.wal_metadata_support import World


class _Answering(asyncio.Protocol):
    """A leader that lists the offset it is told."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        request = decode_request(bytes(self._received[4:]))
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
    def __init__(self, loop: SimLoop, directory: Path, *leaders: int, acks: str = "all") -> None:
        super().__init__(*leaders)
        self.network = SimNetwork(loop)
        config = config_holder(node__id="2", rwlmm__config__remote__wal__log__metadata__producer__acks=acks)
        self.channel = NodeToControllerChannel(
            "forwarding", finder_with_leader(), FakeController().connect, request_timeout_ms=1_000
        )
        self.told: list[MetadataRecord] = []
        self.topic = WalMetadataTopic(
            2,
            config,
            self.cache,
            ForwardingManager(self.channel),
            self.address_of,
            WalMetadataPositions(OsFileSystem(), InlineDiskExecutor(), directory),
            self.on_metadata,
            network=self.network.host("host-2"),
            clock=SettableClock(),
            chance=Chance(1),
        )

    def on_metadata(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self.told += records

    async def listen(self, broker_id: int, error: ErrorCode = ErrorCode.none) -> None:
        host = self.network.host(f"host-{broker_id}")
        server, _ = await host.bind(lambda: _Answering(error), f"host-{broker_id}", 9000 + broker_id, None)  # type: ignore[arg-type]
        await server.start_serving()


def test_it_is_the_port(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        port: MetadataTopic = Setup(loop, tmp_path, 1, 3).topic
        assert (port.partition_count, port.lag, port.position(0)) == (2, 0, None)
        assert Setup(loop, tmp_path).topic.partition_count is None

    simulate(story)


def test_the_end_is_asked_of_the_leader(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, tmp_path, 1, 3, -1)
        await setup.listen(3)
        assert await setup.topic.end_offset(1) == 77
        with pytest.raises(MetadataTopicError, match="partition 0 does not answer"):
            await setup.topic.end_offset(0)
        with pytest.raises(MetadataTopicError, match="partition 2 has no leader"):
            await setup.topic.end_offset(2)

    simulate(story)


def test_an_end_that_the_leader_refuses_to_tell(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, tmp_path, 1, 3)
        await setup.listen(3, ErrorCode.not_leader_or_follower)
        with pytest.raises(MetadataTopicError, match="answers not_leader_or_follower"):
            await setup.topic.end_offset(1)

    simulate(story)


@pytest.mark.parametrize(("setting", "acks"), [("all", -1), ("-1", -1), ("1", 1)])
def test_acks_are_those_of_the_setting(tmp_path: Path, setting: str, acks: int) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(loop, tmp_path, 1, acks=setting)
        assert setup.topic.producer._acks == acks

    simulate(story)
