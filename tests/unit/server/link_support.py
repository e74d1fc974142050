"""For tests of the broker's link to its cluster: images from records, requests over the wire, a fake controller."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode, KafkaError
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request, decode_request, decode_response, encode_request, encode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from broker.schemas import cluster_metadata as records
from broker.server.broker_identity import BrokerIdentity
from broker.server.controller_finder import ControllerFinder, Endpoint
from broker.server.request_context import RequestContext

CLUSTER_ID = "Nk018hRAQFytWskYqtQduw"
DIRECTORIES = {broker: UUID(int=1000 + broker) for broker in range(100)}
TOPIC_ID = UUID(int=0xA0A0)
OTHER_TOPIC_ID = UUID(int=0xB0B0)
CONTROLLER = Endpoint("controller", 9190)
IDENTITY = BrokerIdentity(CLUSTER_ID, 1, UUID(int=77), DIRECTORIES[1])
CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "192.0.2.7", 50000, 9092, "c-1")


def broker_record(
    broker_id: int, *, fenced: bool = False, rack: str | None = None, listeners: Sequence[str] = ("PLAINTEXT",)
) -> Any:
    return records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id + 500),
        broker_epoch=broker_id * 10,
        end_points=tuple(
            records.BrokerEndpoint(name=name, host=f"host-{broker_id}", port=9000 + broker_id, security_protocol=0)
            for name in listeners
        ),
        rack=rack,
        fenced=fenced,
        log_dirs=(DIRECTORIES[broker_id],),
    )


def partition_record(topic_id: UUID, index: int, replicas: tuple[int, ...], **fields: Any) -> Any:
    values: dict[str, Any] = {
        "isr": replicas,
        "leader": replicas[0],
        "leader_epoch": 3,
        "partition_epoch": 5,
        "directories": tuple(DIRECTORIES[replica] for replica in replicas),
    }
    return records.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=replicas, **values | fields)


def topic_records(name: str, topic_id: UUID, *replicas: tuple[int, ...]) -> list[Any]:
    """A topic with a partition for each tuple of replicas."""
    partitions = [partition_record(topic_id, index, each) for index, each in enumerate(replicas)]
    return [records.TopicRecord(name=name, topic_id=topic_id), *partitions]


def image_with(*given: Any, base: MetadataImage = MetadataImage.EMPTY, offset: int = 100) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in given:
        delta.replay(record)
    return delta.apply(offset, 1)


def cache_with(*given: Any) -> MetadataCache:
    cache = MetadataCache()
    cache.set_image(image_with(*given))
    return cache


def config_holder(**properties: str) -> ConfigHolder[BrokerConfig]:
    """The default single node with some properties (`a__b` for `a.b`) in place."""
    given = {name.replace("__", "."): value for name, value in properties.items()}
    return ConfigHolder(BrokerConfig({**DEFAULT_SINGLE_NODE, **given}))


def request_of(api_key: ApiKey, version: int, **fields: Any) -> Request:
    """A request that has been over the wire; nested entities are built by `schema_of`."""
    entity = getattr(schema_of(api_key, version), f"{api_key.title}Request")(**fields)
    return decode_request(encode_request(api_key, version, 7, "tester", entity)[4:])


def schema_of(api_key: ApiKey, version: int) -> RequestSchema:
    return RequestSchema.of(api_key, version)


async def ask(
    function: Callable[..., Any], request: Request, *services: object, context: RequestContext = CONTEXT
) -> Any:
    """What a client gets: the handler's answer, or that to its error, encoded and decoded again."""
    try:
        entity = function(request, context, *services)
        if inspect.isawaitable(entity):
            entity = await entity
    except KafkaError as error:
        on_error = function.__api_handler__.on_error  # type: ignore[attr-defined]
        if on_error is None:
            raise
        entity = on_error(request, error)
    frame = b"".join(encode_response(request.api_key, request.version, request.correlation_id, entity))
    correlation_id, answer = decode_response(request.api_key, request.version, frame[4:])
    assert correlation_id == 7
    return answer


def finder_with_leader(node_id: int = 1, epoch: int = 1, endpoint: Endpoint = CONTROLLER) -> ControllerFinder:
    finder = ControllerFinder([endpoint])
    finder.observe(node_id, epoch, {node_id: endpoint})
    return finder


class FakeController:
    """Controllers in this process: answers by api key, everything they were asked, and who cannot be reached."""

    def __init__(self) -> None:
        self.answers: dict[ApiKey, Callable[[Any], Any]] = {}
        self.asked: list[tuple[Endpoint, Any]] = []
        self.unreachable: set[Endpoint] = set()
        self.connections = 0
        self.offered = dict.fromkeys((ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT), (0, 99))

    def connect(self, endpoint: Endpoint) -> "FakeConnection":
        self.connections += 1
        return FakeConnection(self, endpoint)

    def requests(self, api_key: ApiKey) -> list[Any]:
        return [entity for _, entity in self.asked if entity.__api_key__ == api_key]


class FakeConnection:
    def __init__(self, controller: FakeController, endpoint: Endpoint) -> None:
        self.controller = controller
        self.endpoint = endpoint
        self.is_closed = False

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        self._check()
        assert (entity.__api_key__, entity.__version__) == (api_key, version)
        sent = decode_request(encode_request(api_key, version, 1, "broker", entity)[4:]).body
        self.controller.asked.append((self.endpoint, sent))
        answer = self.controller.answers[ApiKey(api_key)](sent)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def versions(self, timeout_ms: int) -> dict[int, tuple[int, int]]:
        self._check()
        return {int(key): versions for key, versions in self.controller.offered.items()}

    async def close(self) -> None:
        self.is_closed = True

    def _check(self) -> None:
        if self.endpoint in self.controller.unreachable or self.is_closed:
            raise ConnectionRefusedError(f"{self.endpoint} refuses")


def response_of(api_key: ApiKey, version: int, **fields: Any) -> Any:
    """A response of a fake controller; NONE unless an error is given."""
    schema = ResponseSchema.of(api_key, version)
    return getattr(schema, f"{api_key.title}Response")(**{"error_code": ErrorCode.none} | fields)
