import pytest

from broker.config.node_settings import NodeSettings
from broker.config.setting import ConfigError
from broker.config.value_types import HostPort


def test_roles_are_a_set() -> None:
    assert NodeSettings({"process.roles": "controller, broker"}).process_roles == {"broker", "controller"}


def test_a_role_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles='broker,broker': a role is named twice"):
        NodeSettings({"process.roles": "broker,broker"})


def test_metrics_listener_can_be_moved() -> None:
    assert NodeSettings({"metrics.http.listener": "0.0.0.0:0"}).metrics_http_listener == HostPort("0.0.0.0", 0)
    with pytest.raises(ConfigError, match=r"metrics\.http\.listener='9404': '9404' is not of the form host:port"):
        NodeSettings({"metrics.http.listener": "9404"})


def test_metadata_segments_are_at_least_eight_mebibytes() -> None:
    with pytest.raises(ConfigError, match=r"valid values are \[8388608,\.\.\.\]"):
        NodeSettings({"metadata.log.segment.bytes": "8388607"})
