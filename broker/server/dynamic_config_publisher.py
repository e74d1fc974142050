"""DynamicConfigPublisher: makes dynamic settings take effect on this broker (Kafka's class of that name)."""

from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.log_manager import LogManager
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage


class DynamicConfigPublisher:
    """Subscribes before the replicas do: a new log is created with its topic's settings."""

    def __init__(self, holder: ConfigHolder[BrokerConfig], repository: ConfigRepository, logs: LogManager) -> None:
        self._holder = holder
        self._repository = repository
        self._logs = logs

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        config = self._repository.broker_config()
        if config is not self._holder.current:
            self._holder.update(config)
            self._logs.update_default_config()  # covers the topics too: their defaults are the broker's
            return
        topics = [resource.name for resource in delta.changed_configs if resource.type is ConfigResourceType.TOPIC]
        if topics:
            self._logs.update_topic_configs({topic: self._repository.topic_config(topic) for topic in topics})
