from collections.abc import Sequence
from uuid import UUID

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


async def test_topics_that_are_listed_for_a_bucket_are_made_so() -> None:
    listed = config_holder().current.with_overrides({"remote.wal.topics": "t"})
    logs = RecordingLogs()
    delta = MetadataDelta(MetadataImage.EMPTY)
    for record in [*topic_records("t", TOPIC_ID, (1,)), *topic_records("u", UUID(int=5), (1,))]:
        delta.replay(record)
    await LogPreparation(1, ConfigRepository(listed, MetadataCache()), logs).prepare(delta, delta.apply(0, 1))  # type: ignore[arg-type]
    assert [(each.topic_partition.topic, each.config.remote_wal_enable) for each in logs.made] == [
        ("t", True),
        ("u", False),
    ]
