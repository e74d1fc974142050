"""TopicCreator: sees to it that there is a metadata topic.

Every broker that needs the topic asks for it; the controller creates it once.  Nothing of the client waits for it.
"""

import asyncio

import structlog

from broker.common.chance import Chance
from broker.common.errors import ErrorCode, KafkaError
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.errors import ProtocolError
from broker.protocol.response_schema import RequestSchema
from broker.server.auto_topic_creation_manager import CREATE_TOPICS_VERSION, creatable_topic
from broker.server.forwarding_manager import ForwardingManager
from broker.server.image_waiter import wait_for_image
from broker.server.topic_spec import TopicSpec

log = structlog.get_logger(__name__)

RETRY_MS = 1_000
RETRY_MAX_MS = 30_000  # brokers that are missing may be missing for long
PATIENCE_SECONDS = 10  # nobody is to be told while the brokers of a cluster are starting
LOOK_AGAIN_MS = 3_600_000  # a wait needs an end


class TopicCreator:
    def __init__(
        self,
        spec: TopicSpec,
        cache: MetadataCache,
        forwarding: ForwardingManager,
        config: ConfigHolder[BrokerConfig],
        chance: Chance,
    ) -> None:
        self._spec = spec
        self._cache = cache
        self._forwarding = forwarding
        self._config = config
        self._chance = chance

    async def run(self) -> None:
        """Until cancelled: somebody may delete the topic, and then nothing works without another one."""
        while True:
            await self._create()
            await wait_for_image(self._cache, lambda image: not self._is_there(image), LOOK_AGAIN_MS)

    async def _create(self) -> None:
        """Until the topic is there, whoever creates it."""
        retry_ms, has_told = RETRY_MS, False
        began_s = asyncio.get_running_loop().time()
        while not self._is_there(self._cache.image):
            problem = self.missing_brokers() or await self._ask_controller()
            if problem is None:
                await wait_for_image(self._cache, self._is_there, RETRY_MAX_MS)
                continue
            if not has_told and asyncio.get_running_loop().time() - began_s >= PATIENCE_SECONDS:
                log.warning("metadata_topic_not_created_yet", topic=self._spec.name, reason=problem)
                has_told = True
            await self._wait(retry_ms)
            retry_ms = min(2 * retry_ms, RETRY_MAX_MS)

    async def _wait(self, retry_ms: int) -> None:
        """A while, not the same for each broker; no longer than until enough brokers are there."""
        were_missing = self.missing_brokers() is not None
        jittered_ms = retry_ms + self._chance.below(retry_ms // 4)

        def is_time(image: MetadataImage) -> bool:
            return self._is_there(image) or (were_missing and self.missing_brokers() is None)

        await wait_for_image(self._cache, is_time, jittered_ms)

    def missing_brokers(self) -> str | None:
        """Why the controller cannot place the replicas; it would say so itself, again and again."""
        needed = self._spec.replication_factor
        alive = sum(not broker.fenced for broker in self._cache.image.brokers.values())
        return f"{needed} brokers are needed, {alive} are there" if alive < needed else None

    async def _ask_controller(self) -> str | None:
        """None when the topic is there or about to be, else what the controller says."""
        request = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION).CreateTopicsRequest(
            topics=(creatable_topic(self._spec),),
            timeout=milliseconds(self._config.current.request_timeout_ms),
            validate_only=False,
        )
        try:
            response = await self._forwarding.send(request)
        except (KafkaError, ProtocolError) as error:
            return str(error) or type(error).__name__
        result = response.topics[0]
        if result.error_code is ErrorCode.none:
            log.info("metadata_topic_created", topic=self._spec.name, partitions=result.num_partitions)
        if result.error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
            return None
        return f"{result.error_code.name}: {result.error_message}"

    def _is_there(self, image: MetadataImage) -> bool:
        return image.topics.topic(self._spec.name) is not None
