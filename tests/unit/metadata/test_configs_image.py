from broker.metadata.configs_image import ConfigResourceType
from tests.unit.metadata.image_support import full_image


def test_properties_of_a_resource_or_none() -> None:
    configs = full_image().configs
    assert configs.properties(ConfigResourceType.TOPIC, "t") == {"retention.ms": "1000"}
    assert configs.properties(ConfigResourceType.BROKER, "") == {"log.retention.ms": "5"}
    assert configs.properties(ConfigResourceType.TOPIC, "u") == {}
