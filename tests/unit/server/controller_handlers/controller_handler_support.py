"""Handlers of the controller's listeners, asked over the codec through the real dispatcher."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from broker.controller.controller import Controller
from broker.controller_server import build_controller_dispatcher
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.requests import decode_response
from broker.protocol.response_schema import RequestSchema
from broker.server.dispatcher import Dispatcher
from broker.server.request_context import RequestContext
from tests.support.sim_disk import SimFileSystem
from tests.unit.controller.controller_support import running_controller, start_broker
from tests.unit.server.link_support import request_of

CONTEXT = RequestContext("CONTROLLER", "PLAINTEXT", "192.0.2.7", 50000, 9190, "c-1")
TIMEOUT = milliseconds(1000)


class ControllerClient:
    """Asks a controller as a broker or a client would."""

    def __init__(self, controller: Controller, dispatcher: Dispatcher) -> None:
        self.controller = controller
        self.dispatcher = dispatcher

    async def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The decoded answer, errors included."""
        request = request_of(api_key, version, **fields)
        response = await self.dispatcher.dispatch_envelope(request.frame, CONTEXT)
        correlation_id, entity = decode_response(api_key, version, response)
        assert correlation_id == request.correlation_id
        return entity

    async def start_brokers(self, *broker_ids: int) -> dict[int, int]:
        """Unfenced brokers; answers their epochs."""
        return {broker_id: await start_broker(self.controller, broker_id) for broker_id in broker_ids}

    async def create_topic(self, name: str, *replicas: tuple[int, ...]) -> UUID:
        schema = RequestSchema.of(ApiKey.CREATE_TOPICS, 7)
        assignments = tuple(
            schema.CreatableReplicaAssignment(partition_index=index, broker_ids=each)
            for index, each in enumerate(replicas)
        )
        topic = schema.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=()
        )
        answer = await self.ask(ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=TIMEOUT, validate_only=False)
        topic_id = answer.topics[0].topic_id
        assert isinstance(topic_id, UUID), answer
        return topic_id


@asynccontextmanager
async def controller_client(**properties: str) -> AsyncIterator[ControllerClient]:
    async with running_controller(SimFileSystem(), **properties) as controller:
        dispatcher = build_controller_dispatcher(controller, RequestMetrics(MetricsRegistry()))
        async with dispatcher.running():
            yield ControllerClient(controller, dispatcher)
