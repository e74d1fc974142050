from typing import Any

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.incremental_alter_configs import incremental_alter_configs
from tests.unit.server.handlers.forwarding_support import check_forwarded
from tests.unit.server.link_support import schema_of


def fields(version: int) -> dict[str, Any]:
    schema = schema_of(ApiKey.INCREMENTAL_ALTER_CONFIGS, version)
    config = schema.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = schema.AlterConfigsResource(resource_type=2, resource_name="t", configs=(config,))
    return {"resources": (resource,), "validate_only": False}


def test_the_controller_answers() -> None:
    repository = ConfigRepository(BrokerConfig(DEFAULT_SINGLE_NODE), MetadataCache())
    check_forwarded(incremental_alter_configs, ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, repository=repository)
