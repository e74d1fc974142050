"""GroupHandlers: the handlers of groups over a coordinator in memory, asked and answering through the wire format."""

import inspect
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_request, decode_response, encode_request, encode_response
from broker.protocol.response_schema import RequestSchema
from broker.schemas.cluster_metadata import PartitionRecord, TopicRecord
from broker.server import handlers
from broker.server.api_registry import ApiRegistry
from broker.server.request_context import RequestContext
from tests.support.group_world import GROUP, RANGE, TOPIC, GroupWorld
from tests.support.requests_corpus import recorded_requests
from tests.support.sim_loop import SimLoop, simulate

TOPIC_ID = UUID(int=777)
UNKNOWN_ID = UUID(int=778)
SESSION = timedelta(milliseconds=10_000)
REBALANCE = timedelta(milliseconds=60_000)


class GroupHandlers:
    """`t` has the partitions 0 and 1.  `ask` gives a field only to the versions that have it."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.metadata = MetadataCache()
        self.context = RequestContext("PLAINTEXT", "PLAINTEXT", "10.0.0.7", 5000, 9092, "c-1")
        self.registry = ApiRegistry.from_package(handlers)
        delta = MetadataDelta(MetadataImage.EMPTY)
        delta.replay(TopicRecord(name=TOPIC, topic_id=TOPIC_ID))
        for partition in range(2):
            delta.replay(
                PartitionRecord(
                    partition_id=partition,
                    topic_id=TOPIC_ID,
                    replicas=(1,),
                    isr=(1,),
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(UUID(int=301),),
                )
            )
        self.metadata.set_image(delta.apply(1, 1))

    async def ask(self, api_key: ApiKey, version: int, name: str, **fields: Any) -> Any:
        """`name` is kio's class of the request."""
        entity = getattr(RequestSchema.of(api_key, version), name)(**fields)
        return await self.answer(encode_request(api_key, version, 5, "client", entity)[4:])

    async def answer(self, frame: bytes) -> Any:
        request = decode_request(frame)
        handler = self.registry.find(request.api_key, request.version)
        assert handler is not None, f"{request.api_key} {request.version} is not offered"
        services = {type(self.world.groups): self.world.groups, MetadataCache: self.metadata}
        answer = handler.function(request, self.context, *(services[each] for each in handler.service_types))
        entity = await answer if inspect.isawaitable(answer) else answer
        response = b"".join(encode_response(request.api_key, request.version, 5, entity))
        return decode_response(request.api_key, request.version, response[4:])[1]

    async def join(self, version: int, member_id: str = "", **fields: Any) -> Any:
        protocol = RequestSchema.of(ApiKey.JOIN_GROUP, version).JoinGroupRequestProtocol
        given: dict[str, Any] = {
            "group_id": GROUP,
            "session_timeout": SESSION,
            "rebalance_timeout": REBALANCE,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": tuple(protocol(name=each.name, metadata=each.metadata) for each in RANGE),
        }
        return await self.ask(ApiKey.JOIN_GROUP, version, "JoinGroupRequest", **{**given, **fields})


def run_handlers(story: Callable[[GroupHandlers], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def main(loop: SimLoop) -> None:
        properties = {name.replace("_", "."): value for name, value in settings.items()}
        await story(GroupHandlers(await GroupWorld(loop, properties).start()))

    simulate(main)


def answer_recorded(api_key: ApiKey) -> list[tuple[int, Any]]:
    """Version and answer of what real clients have asked."""
    answers: list[tuple[int, Any]] = []

    async def story(handlers: GroupHandlers) -> None:
        for recorded in recorded_requests(api_key):
            answers.append((recorded.version, await handlers.answer(recorded.frame)))

    run_handlers(story)
    return answers
