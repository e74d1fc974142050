"""A setting that nobody reads would be a promise nobody keeps: it belongs among those accepted without effect."""

import ast

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.setting import Config
from broker.config.topic_config import TopicConfig

from .source_tree import syntax_trees

# Read while the config is built, in another form, or only to be refused.
_READ_ELSEWHERE = {"internal_segment_bytes", "remote_log_metadata_manager_class_name"}


def _attributes_read() -> set[str]:
    return {
        node.attr
        for path, tree in syntax_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


@pytest.mark.parametrize("config", [BrokerConfig, TopicConfig])
def test_every_setting_has_a_reader(config: type[Config]) -> None:
    read = _attributes_read()
    unread = [
        setting.name
        for setting in config.settings()
        if setting.no_effect is None and setting.attribute not in read and setting.attribute not in _READ_ELSEWHERE
    ]
    assert not unread, ", ".join(unread)
