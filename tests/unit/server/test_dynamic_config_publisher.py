from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.schemas.cluster_metadata import ConfigRecord
from broker.server.dynamic_config_publisher import DynamicConfigPublisher
from tests.unit.server.link_support import TOPIC_ID, config_holder, topic_records


class RecordingLogs:
    def __init__(self) -> None:
        self.default_updates = 0
        self.topics: list[dict[str, int]] = []

    def update_default_config(self) -> None:
        self.default_updates += 1

    def update_topic_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        self.topics.append({topic: config.segment_bytes for topic, config in configs.items()})


class Setup:
    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.holder: ConfigHolder[BrokerConfig] = ConfigHolder(config_holder().current.with_overrides(properties or {}))
        self.cache = MetadataCache()
        self.logs = RecordingLogs()
        self.repository = ConfigRepository(self.holder.current, self.cache)
        self.publisher = DynamicConfigPublisher(self.holder, self.repository, self.logs)  # type: ignore[arg-type]
        self._offset = 0

    def publish(self, *records: object) -> None:
        delta = MetadataDelta(self.cache.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        self._offset += len(records)
        image = delta.apply(self._offset, 1)
        self.cache.set_image(image)
        self.publisher.on_metadata(delta, image)


def config(kind: ConfigResourceType, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=int(kind), resource_name=resource, name=name, value=value)


def test_a_topics_setting_reaches_its_logs_only() -> None:
    setup = Setup()
    setup.publish(*topic_records("t", TOPIC_ID, (1,)))
    assert setup.logs.topics == []
    before = setup.holder.current
    setup.publish(config(ConfigResourceType.TOPIC, "t", "segment.bytes", "2097152"))
    assert (setup.logs.topics, setup.logs.default_updates) == ([{"t": 2097152}], 0)
    assert setup.holder.current is before


def test_a_brokers_setting_reaches_the_holder_and_all_logs_once() -> None:
    setup = Setup()
    setup.publish(
        config(ConfigResourceType.BROKER, "", "max.connections", "77"),
        config(ConfigResourceType.TOPIC, "t", "segment.bytes", "2097152"),
    )
    assert setup.holder.current.max_connections == 77
    assert (setup.logs.default_updates, setup.logs.topics) == (1, [])
    setup.publish(config(ConfigResourceType.BROKER, "1", "max.connections", "78"))
    assert (setup.holder.current.max_connections, setup.logs.default_updates) == (78, 2)
    setup.publish(config(ConfigResourceType.BROKER, "1", "max.connections", None))
    assert (setup.holder.current.max_connections, setup.logs.default_updates) == (77, 3)


def test_another_brokers_setting_changes_nothing_here() -> None:
    setup = Setup()
    setup.publish(config(ConfigResourceType.BROKER, "9", "max.connections", "77"))
    assert setup.logs.default_updates == 0
