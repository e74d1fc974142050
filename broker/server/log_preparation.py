"""LogPreparation: the logs of new partitions are made before the broker hears of them."""

from broker.common.identifiers import TopicPartition
from broker.log.log_manager import LogManager, NewPartition
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage


class LogPreparation:
    """A change is published within one turn of the event loop, and one request may create ten thousand partitions:
    making their files there would hold the loop for seconds, longer than the controller waits for a heartbeat."""

    def __init__(self, local_broker_id: int, repository: ConfigRepository, logs: LogManager) -> None:
        self._local_broker_id = local_broker_id
        self._repository = repository
        self._logs = logs

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make what publishing `delta` would make."""
        new: list[NewPartition] = []
        for topic in delta.topics_delta.changed_topics.values():
            overrides = image.configs.properties(ConfigResourceType.TOPIC, topic.name)
            config = self._repository.effective_topic_config(topic.name, overrides)
            new += (
                NewPartition(TopicPartition(topic.name, index), topic.id, config)
                for index, partition in topic.partition_changes.items()
                if self._local_broker_id in partition.replicas and topic.partition_before(index) is None
            )
        await self._logs.create_ahead(new)
