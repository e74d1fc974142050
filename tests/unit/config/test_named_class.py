from collections import Counter, OrderedDict

import pytest

from broker.config.named_class import named_class
from broker.config.setting import ConfigError

SHORT = {"Ordered": "collections.OrderedDict", "Nobody": "collections.Nobody"}


@pytest.mark.parametrize(("name", "found"), [("Ordered", OrderedDict), ("collections.Counter", Counter)])
def test_a_short_name_or_a_path(name: str, found: type) -> None:
    assert named_class("the.setting", name, SHORT, dict) is found


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "the.setting must be set: Ordered or Nobody, or the path of a class"),
        ("Nobody", "the.setting=Nobody cannot be loaded"),
        ("no.such.module.Class", "the.setting=no.such.module.Class cannot be loaded"),
        ("Unheard", "the.setting=Unheard is no dict"),
        ("collections.deque", "the.setting=collections.deque is no dict"),
        ("collections.namedtuple", "the.setting=collections.namedtuple is no dict"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        named_class("the.setting", name, SHORT, dict)
