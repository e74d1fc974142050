from collections.abc import Sequence

from broker.common.identifiers import TopicPartition
from broker.log.log_manager import NewPartition
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord
from broker.server.log_preparation import LogPreparation
from tests.unit.server.link_support import TOPIC_ID, config_holder, topic_records


class RecordingLogs:
    def __init__(self) -> None:
        self.made: list[NewPartition] = []

    async def create_ahead(self, partitions: Sequence[NewPartition]) -> None:
        self.made += partitions


async def prepared(image: MetadataImage, *records: MetadataRecord) -> tuple[list[NewPartition], MetadataImage]:
    logs = RecordingLogs()
    repository = ConfigRepository(config_holder().current, MetadataCache())
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    after = delta.apply(image.offset + 1, 1)
    await LogPreparation(1, repository, logs).prepare(delta, after)  # type: ignore[arg-type]
    return logs.made, after


async def test_new_partitions_of_this_broker_with_the_settings_they_will_have() -> None:
    config = ConfigRecord(
        resource_type=int(ConfigResourceType.TOPIC), resource_name="t", name="segment.bytes", value="2097152"
    )
    made, image = await prepared(MetadataImage.EMPTY, *topic_records("t", TOPIC_ID, (1, 2), (2,), (1,)), config)
    assert [(each.topic_partition, each.topic_id, each.config.segment_bytes) for each in made] == [
        (TopicPartition("t", 0), TOPIC_ID, 2097152),
        (TopicPartition("t", 2), TOPIC_ID, 2097152),
    ]
    changed = topic_records("t", TOPIC_ID, (1, 2), (2,), (1,), (1,))[1:]
    made, _ = await prepared(image, *changed)
    assert [each.topic_partition for each in made] == [TopicPartition("t", 3)]
