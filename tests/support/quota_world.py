"""A broker's connections, handlers and quotas in virtual time: clients that write requests and read answers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.common.identifiers import TopicPartition
from broker.metadata.metadata_delta import MetadataDelta
from broker.metrics.client_quota_metrics import ClientQuotaMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response, encode_request
from broker.replication.replica_manager import monotonic_ms
from broker.schemas.cluster_metadata import ClientQuotaEntity, ClientQuotaRecord
from broker.server.api_registry import ApiRegistry
from broker.server.dispatcher import Dispatcher
from broker.server.handlers.fetch import fetch
from broker.server.handlers.produce import produce
from broker.server.quota_managers import QuotaManagers
from broker.server.socket_server import SocketServer
from tests.support.builders import batch, settle
from tests.support.replica_requests import RequestWorld
from tests.support.sim_loop import SimLoop
from tests.support.socket_harness import connected, handler_of, receive
from tests.unit.server.handlers.test_fetch import request as fetch_request
from tests.unit.server.handlers.test_produce import request as produce_request

CLIENT = "app"


class QuotaWorld(RequestWorld):
    """Broker 1 leads t-0; `work_seconds` is what each request is said to take of the event loop."""

    def __init__(self, directory: Path, loop: SimLoop, *handlers: Callable[..., Any], services: Any = ()) -> None:
        super().__init__(directory)
        self.create_topic("t", partitions=1)
        self.loop = loop
        self.work_seconds = 0.0
        self.registry = MetricsRegistry()
        metrics = RequestMetrics(self.registry, self._read_stopwatch)
        self._stopwatch = 0.0
        self.quotas = QuotaManagers(self.config.current, monotonic_ms, self._read_stopwatch)
        ClientQuotaMetrics(self.registry).observe(self.quotas)
        apis = ApiRegistry(handler_of(each) for each in (produce, fetch, *handlers))
        known = (self.replicas, self.sessions, self.metadata, self.config, *services)
        self.server = SocketServer(self.config, Dispatcher(apis, known, metrics, quotas=self.quotas))

    def _read_stopwatch(self) -> float:
        """Each reading is `work_seconds` later than the one before."""
        self._stopwatch += self.work_seconds
        return self._stopwatch

    @asynccontextmanager
    async def running(self) -> AsyncIterator["QuotaWorld"]:
        async with self.server.dispatcher.running(), self.server.running():
            yield self

    def set_quota(self, values: Mapping[str, float | None], **entity: str | None) -> None:
        """As the metadata brings it; `client_id` by default."""
        named = entity or {"client_id": CLIENT}
        parts = tuple(
            ClientQuotaEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in named.items()
        )
        delta = MetadataDelta(self.metadata.image)
        for key, value in values.items():
            delta.replay(ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None))
        image = delta.apply(self.metadata.image.offset + 1, 1)
        self.metadata.set_image(image)
        self.quotas.on_metadata(delta, image)

    def client(self, client_id: str | None = CLIENT) -> "QuotaClient":
        return QuotaClient(self, client_id)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.prometheus.get_sample_value(name, labels)

    async def fill(self, count: int, size: int) -> None:
        for _ in range(count):
            await self.produce([(TopicPartition("t", 0), batch(b"x" * size))])


class QuotaClient:
    """One connection, one request at a time; it waits like a client that knows nothing of throttling."""

    def __init__(self, world: QuotaWorld, client_id: str | None) -> None:
        self.world = world
        self.client_id = client_id
        self.connection, self.transport = connected(world.server)
        self.answered = 0

    @property
    def is_read(self) -> bool:
        return self.transport.is_reading

    def send(self, api_key: ApiKey, version: int, entity: Any) -> int:
        """The size of the request as quotas count it: what follows the client id."""
        data = encode_request(api_key, version, 7, self.client_id, entity)
        assert receive(self.connection, data) == len(data)
        return len(data) - 4 - 10 - len((self.client_id or "").encode())

    async def answer(self, api_key: ApiKey, version: int) -> Any:
        """The next answer, which must have come without any time going by."""
        for _ in range(4):
            await settle()
        frame = self.transport.responses()[self.answered]
        self.answered += 1
        return decode_response(api_key, version, frame)[1]

    async def wait_until_read(self) -> float:
        """How long it takes until the broker reads from the connection."""
        began = self.world.loop.time()
        while not self.is_read:
            await asyncio.sleep(0.001)
        return self.world.loop.time() - began

    async def produce(self, size: int, acks: int = 1) -> tuple[int, Any]:
        """The counted size of the request and the answer, None without one."""
        sent = self.send(ApiKey.PRODUCE, 9, produce_request(9, ("t", 0, bytes(batch(b"x" * size))), acks=acks))
        await settle()
        return sent, await self.answer(ApiKey.PRODUCE, 9) if acks else None

    async def fetch(self, offset: int, version: int = 12, **options: Any) -> Any:
        self.send(ApiKey.FETCH, version, fetch_request(version, ("t", 0, offset), **options))
        return await self.answer(ApiKey.FETCH, version)
