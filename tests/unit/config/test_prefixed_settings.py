import pytest

from broker.config.prefixed_settings import ManagerPrefix, names_under, properties_under, read_under_other_prefixes
from broker.config.setting import Config, ConfigError, Setting, at_least, optional
from broker.config.value_types import INT, STRING

USUAL = ManagerPrefix("plug.", "plug.")
MINE = ManagerPrefix("plug.", "mine.")


class Settings(Config):
    plug_count = Setting("plug.count", INT, default=3, valid=at_least(1), doc="Of a plug-in.")
    plug_name = optional("plug.name", STRING, doc="Of a plug-in.")
    other = Setting("other", INT, default=1, doc="Of nobody.")


def test_the_usual_prefix_is_read_already() -> None:
    assert read_under_other_prefixes(Settings({"plug.count": "5"}), [USUAL]) == {}


def test_another_prefix_names_the_same_settings_and_the_usual_one_names_none() -> None:
    config = Settings({"mine.count": "5", "plug.name": "not read"})
    assert read_under_other_prefixes(config, [MINE]) == {"plug_count": 5, "plug_name": None}


def test_values_are_checked_alike() -> None:
    with pytest.raises(ConfigError, match=r"plug\.count='0': valid values are \[1,\.\.\.\]\."):
        read_under_other_prefixes(Settings({"mine.count": "0"}), [MINE])


def test_what_is_under_a_prefix_is_given_without_it() -> None:
    config = Settings({"mine.count": "5", "mine.colour.of": "red", "other": "2"})
    assert properties_under(config, "mine.") == {"count": "5", "colour.of": "red"}


def test_names_of_settings_begin_as_the_configuration_says() -> None:
    config = Settings({"mine.colour": "red"})
    assert names_under(config, USUAL) == {"plug.count", "plug.name"}
    assert names_under(config, MINE) == {"mine.count", "mine.name"}
