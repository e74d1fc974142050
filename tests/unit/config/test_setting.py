import pytest

from broker.config.setting import Config, ConfigError, Setting, at_least, between, one_of, optional
from broker.config.value_types import BOOLEAN, INT, LIST, PASSWORD, STRING


class Sample(Config):
    sample_size = Setting("sample.size", INT, default=3, valid=between(1, 9), doc="How many.")
    sample_name = optional("sample.name", STRING, valid=one_of("a", "b"), doc="Which.")
    sample_list = Setting("sample.list", LIST, default=("x",), doc="What.")
    sample_secret = optional("sample.secret", PASSWORD, doc="Hidden.")


class More(Sample):
    more_on = Setting("more.on", BOOLEAN, default=False, doc="Whether.")


def test_values_are_typed_attributes_with_defaults() -> None:
    assert (Sample({}).sample_size, Sample({}).sample_name) == (3, None)
    assert Sample({"sample.size": " 4 ", "sample.name": "b"}).sample_size == 4


def test_settings_of_bases_come_along() -> None:
    assert [setting.name for setting in More.settings()] == [
        "more.on",
        "sample.size",
        "sample.name",
        "sample.list",
        "sample.secret",
    ]
    assert More({"more.on": "TRUE", "sample.size": "1"}).more_on is True


def test_a_config_is_immutable() -> None:
    with pytest.raises(AttributeError, match="Sample is immutable"):
        Sample({}).sample_size = 4  # type: ignore[misc]


def test_an_attribute_is_named_after_its_setting() -> None:
    with pytest.raises((AssertionError, RuntimeError)):

        class Wrong(Config):
            sample_sizes = Setting("sample.size", INT, default=3, doc="")


def test_unknown_names_are_collected_sorted() -> None:
    config = Sample({"z": "1", "sample.size": "2", "a": "1"})
    assert config.unknown_names == ("a", "z")
    assert config.is_set("sample.size") and not config.is_set("sample.name")


def test_every_wrong_value_has_its_sentence() -> None:
    with pytest.raises(ConfigError) as refused:
        Sample({"sample.size": "10", "sample.name": "c"})
    assert refused.value.sentences == (
        "sample.size='10': valid values are [1,...,9].",
        "sample.name='c': valid values are [a, b].",
    )
    assert str(refused.value) == "\n".join(refused.value.sentences)


def test_values_are_written_as_kafka_writes_them() -> None:
    assert Sample.sample_size.format(4) == "4"
    assert Sample.sample_list.format(("a", "b")) == "a,b"
    assert Sample.sample_name.format(None) is None
    assert (Sample.sample_size.default_text, Sample.sample_name.default_text) == ("3", None)
    assert Sample.sample_secret.is_sensitive and not Sample.sample_size.is_sensitive


def test_validity_is_told_in_kafkas_words() -> None:
    assert at_least(1).text == "[1,...]"
    assert between(0, 1).text == "[0,...,1]"
    assert one_of("a", "b").text == "[a, b]"
