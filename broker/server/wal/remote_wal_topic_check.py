"""RemoteWalTopicCheck: topics that this broker's settings of replication through a bucket do not suit (KIP-1176)."""

from typing import Final

import structlog

from broker.config.setting import ConfigError
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage

log = structlog.get_logger(__name__)

NAMED_MAX: Final = 5  # topics named in one sentence


class RemoteWalTopicCheck:
    """`pointers_too_short` are tiered topics whose local records outlive the pointers to their objects: a replica that
    was away for longer than `rwlmm.config.remote.wal.log.metadata.topic.retention.ms` takes from the leader what the
    bucket still has.  Each is warned of once."""

    def __init__(self, repository: ConfigRepository) -> None:
        self._repository = repository
        self._topics: frozenset[str] = frozenset()
        self.pointers_too_short: frozenset[str] = frozenset()
        self.without_bucket: frozenset[str] = frozenset()  # they want a bucket, and this broker has none

    def check_start(self, image: MetadataImage) -> None:
        """ConfigError when a topic goes through a bucket and this broker has none: as a follower it would get nothing,
        and as a leader the others would wait for what it never uploads."""
        if self._repository.broker_config().remote_wal_storage_system_enable:
            return
        topics = sorted(self._through_bucket(image))
        if topics:
            more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
            named = ", ".join(topics[:NAMED_MAX]) + more
            raise ConfigError(
                f"remote.wal.storage.system.enable=false: this cluster replicates {named} "
                "through a bucket; set it to true with a bucket of this broker, or set remote.wal.enable=false on "
                "those topics and take them off remote.wal.topics."
            )

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Look again at what configs, new topics and deletions change."""
        if delta.changed_configs:
            self._update(self._through_bucket(image))
            return
        new = {topic.name for topic in delta.topics_delta.changed_topics.values() if topic.before is None}
        gone = frozenset(delta.topics_delta.deleted_topics.values())
        if new or gone:
            self._update(self._topics - gone | {topic for topic in new if self._is_through_bucket(topic)})

    def _update(self, topics: frozenset[str]) -> None:
        self._topics = topics
        config = self._repository.broker_config()
        without_bucket = frozenset[str]() if config.remote_wal_storage_system_enable else topics
        for topic in sorted(without_bucket - self.without_bucket):
            log.error("topic_needs_a_bucket", topic=topic, setting="remote.wal.storage.system.enable")
        self.without_bucket = without_bucket
        pointers_ms = config.rwlmm_config_remote_wal_log_metadata_topic_retention_ms
        too_short = frozenset(topic for topic in topics - without_bucket if self._outlives(topic, pointers_ms))
        for topic in sorted(too_short - self.pointers_too_short):
            log.warning("remote_wal_pointers_expire_early", topic=topic, pointer_retention_ms=pointers_ms)
        self.pointers_too_short = too_short

    def _through_bucket(self, image: MetadataImage) -> frozenset[str]:
        return frozenset(topic for topic in image.topics.by_name if self._is_through_bucket(topic))

    def _is_through_bucket(self, topic: str) -> bool:
        return self._repository.topic_config(topic).remote_wal_enable

    def _outlives(self, topic: str, pointers_ms: int) -> bool:
        """Whether the topic is tiered and keeps records on local disks for as long as pointers, or longer."""
        config = self._repository.topic_config(topic)
        local_ms = config.local_retention_ms_effective
        return config.remote_storage_enable and (local_ms < 0 or local_ms >= pointers_ms)
