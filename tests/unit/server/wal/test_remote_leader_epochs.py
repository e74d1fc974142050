from collections.abc import Callable
from typing import Any

import pytest

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.response_schema import ResponseSchema
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.wal.remote_leader_epochs import RemoteLeaderEpochs
from tests.support.builders import broker_config

T = TopicPartition("t", 4)


class Connection:
    """Answers as the test says."""

    def __init__(self, respond: Callable[[Any], Any]) -> None:
        self.sent: list[tuple[int, int, Any, int]] = []
        self.closed = 0
        self._respond = respond

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        self.sent.append((api_key, version, entity, timeout_ms))
        return self._respond(entity)

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1


class World:
    """One leader, 2, which may move or leave."""

    def __init__(self, respond: Callable[[Any], Any], properties: dict[str, str] | None = None) -> None:
        self.addresses: dict[int, LeaderAddress] = {2: LeaderAddress(2, "b2", 9092)}
        self.connections: list[tuple[LeaderAddress, Connection]] = []
        self._respond = respond
        self.epochs = RemoteLeaderEpochs(1, ConfigHolder(broker_config(properties)), self.addresses.get, self._connect)

    def _connect(self, address: LeaderAddress) -> Connection:
        connection = Connection(self._respond)
        self.connections.append((address, connection))
        return connection

    async def ask(self, epoch: int = 3) -> EpochEndOffset:
        return await self.epochs.end_offset(2, T, epoch, current_leader_epoch=6)


def answers(
    epoch: int = 3, end_offset: int = 40, *, error: ErrorCode = ErrorCode.none, topic: str = "t", partition: int = 4
) -> Callable[[Any], Any]:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
        answer = schema.EpochEndOffset(error_code=error, partition=partition, leader_epoch=epoch, end_offset=end_offset)
        result = schema.OffsetForLeaderTopicResult(topic=topic, partitions=(answer,))
        return schema.OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=(result,))

    return respond


async def test_it_says_who_asks_and_in_which_epoch() -> None:
    world = World(answers())
    assert await world.ask() == EpochEndOffset(3, 40)
    ((_, connection),) = world.connections
    ((api_key, version, request, timeout_ms),) = connection.sent
    assert (api_key, version, timeout_ms, request.replica_id) == (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, 5000, 1)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic, partition.partition) == ("t", 4)
    assert (partition.current_leader_epoch, partition.leader_epoch) == (6, 3)


async def test_a_shorter_socket_timeout_is_the_deadline() -> None:
    world = World(answers(), {"replica.socket.timeout.ms": "2500"})
    await world.ask()
    assert world.connections[0][1].sent[0][3] == 2500


async def test_nothing_known_is_an_answer() -> None:
    assert await World(answers(-1, -1)).ask() == EpochEndOffset(-1, -1)


@pytest.mark.parametrize("error", [ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower])
async def test_the_leaders_refusal_has_its_code(error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        await World(answers(error=error)).ask()
    assert raised.value.code is error


@pytest.mark.parametrize("failure", [ConnectionError("refused"), TimeoutError()])
async def test_no_answer_is_unavailable(failure: Exception) -> None:
    def fail(request: Any) -> Any:
        raise failure

    with pytest.raises(LeaderUnavailableError):
        await World(fail).ask()


@pytest.mark.parametrize("other", [{"topic": "u"}, {"partition": 5}])
async def test_an_answer_about_something_else_is_none(other: dict[str, Any]) -> None:
    with pytest.raises(LeaderUnavailableError, match="nothing of t-4"):
        await World(answers(**other)).ask()


async def test_one_connection_per_leader_until_it_moves_or_leaves() -> None:
    world = World(answers())
    await world.ask()
    await world.ask()
    assert [address for address, _ in world.connections] == [LeaderAddress(2, "b2", 9092)]
    world.addresses[2] = LeaderAddress(2, "b2", 9093)
    await world.ask()
    assert [(address.port, connection.closed) for address, connection in world.connections] == [(9092, 1), (9093, 0)]
    del world.addresses[2]
    with pytest.raises(LeaderUnavailableError, match="broker 2 is not registered"):
        await world.ask()
    assert [connection.closed for _, connection in world.connections] == [1, 1]
    with pytest.raises(LeaderUnavailableError):
        await world.ask()
    assert [connection.closed for _, connection in world.connections] == [1, 1]


async def test_connections_are_closed_at_the_end() -> None:
    world = World(answers())
    async with world.epochs.running():
        await world.ask()
    assert world.connections[0][1].closed == 1
