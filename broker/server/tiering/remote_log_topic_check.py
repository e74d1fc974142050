"""RemoteLogTopicCheck: tiered topics that this broker's settings of tiered storage do not suit (KIP-405)."""

from typing import Final

import structlog

from broker.common.identifiers import NEVER_TIERED_TOPICS, REMOTE_LOG_METADATA_TOPIC
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.server.topic_spec import topic_spec

log = structlog.get_logger(__name__)

NAMED_MAX: Final = 5  # topics named in one sentence


class RemoteLogTopicCheck:
    """Each topic is told of once.  `not_tiered` are those that ask for it while this broker has it off: Apache Kafka's
    controllers go by their own setting.  `outlive_metadata` keep records for longer than it is known where they are."""

    def __init__(self, repository: ConfigRepository) -> None:
        self._repository = repository
        self._topics: frozenset[str] = frozenset()
        self.not_tiered: frozenset[str] = frozenset()
        self.outlive_metadata: frozenset[str] = frozenset()

    def check_start(self, image: MetadataImage) -> None:
        """ConfigError when a topic is tiered and this broker has it off: what has left the local disks would be
        lost to clients, and what this broker deletes to everybody (LogManager does not start either)."""
        if self._repository.broker_config().remote_log_storage_system_enable:
            return
        topics = sorted(self._tiered(image))
        if topics:
            more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
            raise ConfigError(
                f"remote.log.storage.system.enable=false: {', '.join(topics[:NAMED_MAX])}{more} of this cluster have "
                "remote.storage.enable=true; set it to true with the bucket of the cluster, or delete those topics, or "
                "set remote.storage.enable=false and remote.log.delete.on.disable=true on them while brokers with "
                "tiered storage run."
            )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Look again at what configs, new topics and deletions change."""
        if delta.changed_configs:
            self._update(self._tiered(image), image)
            return
        new = {topic.name for topic in delta.topics_delta.changed_topics.values() if topic.before is None}
        gone = frozenset(delta.topics_delta.deleted_topics.values())
        if new or gone:
            self._update(self._topics - gone | {topic for topic in new if self._is_tiered(topic)}, image)

    def _update(self, topics: frozenset[str], image: MetadataImage) -> None:
        self._topics = topics
        config = self._repository.broker_config()
        not_tiered = frozenset[str]() if config.remote_log_storage_system_enable else topics
        for topic in sorted(not_tiered - self.not_tiered):
            log.error("topic_not_tiered", topic=topic, setting="remote.log.storage.system.enable")
        self.not_tiered = not_tiered
        metadata = self._metadata_topic(image)
        outliving = frozenset(
            topic for topic in topics - not_tiered if _expires_early(metadata, self._repository.topic_config(topic))
        )
        for topic in sorted(outliving - self.outlive_metadata):
            log.warning(
                "remote_log_metadata_expires_early",
                topic=topic,
                cleanup_policy=",".join(metadata.cleanup_policy),
                metadata_retention_ms=metadata.retention_ms,
                metadata_retention_bytes=metadata.retention_bytes,
            )
        self.outlive_metadata = outliving

    def _metadata_topic(self, image: MetadataImage) -> TopicConfig:
        """As it is, whoever made and changed it; before it is there, as this broker would make it."""
        if REMOTE_LOG_METADATA_TOPIC in image.topics.by_name:
            return self._repository.topic_config(REMOTE_LOG_METADATA_TOPIC)
        spec = topic_spec(REMOTE_LOG_METADATA_TOPIC, self._repository.broker_config())
        return self._repository.effective_topic_config(spec.name, spec.configs)

    def _tiered(self, image: MetadataImage) -> frozenset[str]:
        return frozenset(topic for topic in image.topics.by_name if self._is_tiered(topic))

    def _is_tiered(self, topic: str) -> bool:
        return topic not in NEVER_TIERED_TOPICS and self._repository.topic_config(topic).remote_storage_enable


def _expires_early(metadata: TopicConfig, tiered: TopicConfig) -> bool:
    """Compaction leaves nothing of events, which have no keys; a bound of bytes knows no time."""
    if metadata.is_compact:
        return True
    if not metadata.is_delete:
        return False
    if metadata.retention_bytes >= 0:
        return True
    return metadata.retention_ms >= 0 and not 0 <= tiered.retention_ms < metadata.retention_ms
