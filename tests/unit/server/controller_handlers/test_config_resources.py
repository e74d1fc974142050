from types import SimpleNamespace

from broker.common.errors import ErrorCode
from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from broker.server.controller_handlers.config_resources import refused_resources, resource_of


def resource(kind: int, name: str, *configs: str) -> SimpleNamespace:
    return SimpleNamespace(
        resource_type=kind, resource_name=name, configs=[SimpleNamespace(name=each) for each in configs]
    )


def test_types_there_are_not_are_unknown() -> None:
    assert resource_of(resource(2, "t")) == ConfigResource(ConfigResourceType.TOPIC, "t")
    assert resource_of(resource(77, "t")) == ConfigResource(ConfigResourceType.UNKNOWN, "t")


def test_what_is_named_twice_is_refused() -> None:
    refused = refused_resources(
        [resource(2, "t", "a"), resource(2, "t", "b"), resource(2, "u", "a", "a"), resource(4, "t", "a")]
    )
    assert {each.name: error.code for each, error in refused.items()} == {
        "t": ErrorCode.invalid_request,
        "u": ErrorCode.invalid_request,
    }
    assert all(each.type is ConfigResourceType.TOPIC for each in refused)
