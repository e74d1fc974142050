from pathlib import Path

from broker.config import reference
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.properties import parse_properties
from broker.config.topic_config import TopicConfig


def test_the_page_has_every_setting_once() -> None:
    lines = reference.configuration_page().splitlines()
    names = [setting.name for config in (BrokerConfig, TopicConfig) for setting in config.settings()]
    assert sorted(line for line in lines if line.startswith("### ")) == sorted(f"### `{name}`" for name in names)


def test_the_annotated_file_is_what_a_bare_server_runs_with() -> None:
    assert parse_properties(reference.properties_file()) == DEFAULT_SINGLE_NODE


def test_the_annotated_file_shows_every_other_default_as_a_comment() -> None:
    lines = reference.properties_file().splitlines()
    for setting in BrokerConfig.settings():
        if setting.name not in DEFAULT_SINGLE_NODE and not setting.is_internal:
            assert f"#{setting.name}={setting.default_text or ''}" in lines


def test_pages_are_written_where_they_belong() -> None:
    assert list(reference.pages(Path("root"))) == [
        Path("root/docs/configuration.md"),
        Path("root/config/broker.properties"),
    ]
