"""Topics that come into being because somebody asked for them (Kafka's AutoTopicCreationManager)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from broker.common.errors import ErrorCode, KafkaError
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.errors import ProtocolError
from broker.protocol.requests import decode_response, encode_request
from broker.protocol.response_schema import RequestSchema
from broker.server.forwarding_manager import ForwardingManager
from broker.server.image_waiter import wait_for_image
from broker.server.request_context import RequestContext
from broker.server.topic_spec import TopicSpec, topic_spec

log = structlog.get_logger(__name__)

WAIT_FOR_IMAGE_MS: Final = 1_000  # how long an answer is held back for a topic to appear
CREATE_TOPICS_VERSION: Final = 7
LENGTH_SIZE: Final = 4

# The client can do nothing but ask again, or the topic is there already and only our image is not.
_ASK_AGAIN: Final = ErrorCode.unknown_topic_or_partition
# What the controller says about a topic that will never come; everything else is worth another try.
_FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_replication_factor,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_config,
        ErrorCode.policy_violation,
        ErrorCode.topic_authorization_failed,
        ErrorCode.cluster_authorization_failed,
    }
)


class AutoTopicCreationManager:
    """Asks the controller for topics, each at most once at a time, and waits until they are visible here."""

    def __init__(
        self,
        cache: MetadataCache,
        forwarding: ForwardingManager,
        config: ConfigHolder[BrokerConfig],
        *,
        wait_ms: int = WAIT_FOR_IMAGE_MS,
    ) -> None:
        self._cache = cache
        self._forwarding = forwarding
        self._config = config
        self._wait_ms = wait_ms
        self._in_flight: dict[str, asyncio.Future[ErrorCode]] = {}
        self._tasks = BackgroundTasks("auto-topic-creation", on_failure=lambda name, error: None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AutoTopicCreationManager"]:
        async with self._tasks:
            yield self

    async def create_topics(self, names: Sequence[str], context: RequestContext | None = None) -> dict[str, ErrorCode]:
        """Create what is missing, and tell per name whether it is there now.

        NONE once this broker's image shows the topic; UNKNOWN_TOPIC_OR_PARTITION when it does not within a second
        (the creation goes on); the controller's error when asking again would not help.  With a context the request
        is made in that client's name, without one in the broker's own, for internal topics.
        """
        new = [name for name in dict.fromkeys(names) if name not in self._in_flight]
        if new:
            loop = asyncio.get_running_loop()
            for name in new:
                self._in_flight[name] = loop.create_future()
            self._tasks.start(f"create:{new[0]}", self._create(new, context))
        outcomes = {name: self._in_flight[name] for name in names}
        await asyncio.wait(set(outcomes.values()), timeout=self._wait_ms / 1000)
        return {name: outcome.result() if outcome.done() else _ASK_AGAIN for name, outcome in outcomes.items()}

    async def _create(self, names: Sequence[str], context: RequestContext | None) -> None:
        try:
            errors = await self._ask_controller(names, context)
            created = [name for name in names if errors[name] == ErrorCode.none]

            def are_visible(image: MetadataImage) -> bool:
                return all(image.topics.topic(name) is not None for name in created)

            if created and not await wait_for_image(self._cache, are_visible, self._wait_ms):
                log.warning("created_topics_not_visible_yet", topics=created)
            for name in created:
                if self._cache.topic(name) is None:
                    errors[name] = _ASK_AGAIN
        except (KafkaError, ProtocolError) as error:
            log.warning("auto_topic_creation_failed", topics=list(names), error=str(error))
            errors = dict.fromkeys(names, _ASK_AGAIN)
        finally:
            outcomes = [(name, self._in_flight.pop(name)) for name in names]
        for name, outcome in outcomes:
            outcome.set_result(errors[name])

    async def _ask_controller(self, names: Sequence[str], context: RequestContext | None) -> dict[str, ErrorCode]:
        """Per name: NONE when the topic exists now, the error to tell the client otherwise."""
        config = self._config.current
        request = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION).CreateTopicsRequest(
            topics=tuple(creatable_topic(topic_spec(name, config)) for name in names),
            timeout=milliseconds(config.request_timeout_ms),
            validate_only=False,
        )
        response = await self._send(request, context)
        errors = dict.fromkeys(names, _ASK_AGAIN)
        for result in response.topics:
            error = result.error_code
            if error in (ErrorCode.none, ErrorCode.topic_already_exists):
                log.info("topic_auto_created", topic=result.name, partitions=result.num_partitions)
                errors[result.name] = ErrorCode.none
            else:
                log.warning("topic_not_auto_created", topic=result.name, error=error.name, reason=result.error_message)
                errors[result.name] = error if error in _FINAL_ERRORS else _ASK_AGAIN
        return errors

    async def _send(self, request: Any, context: RequestContext | None) -> Any:
        if context is None:
            return await self._forwarding.send(request)
        frame = encode_request(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, 0, None, request)[LENGTH_SIZE:]
        response = await self._forwarding.forward_frame(frame, context)
        return decode_response(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, response)[1]


def creatable_topic(spec: TopicSpec) -> Any:
    """The topic in a CreateTopics request."""
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    return schema.CreatableTopic(
        name=spec.name,
        num_partitions=spec.partition_count,
        replication_factor=spec.replication_factor,
        assignments=(),
        configs=tuple(schema.CreatableTopicConfig(name=key, value=value) for key, value in spec.configs.items()),
    )
