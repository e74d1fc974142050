import pytest

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.describe import (
    BrokerSources,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from broker.config.value_types import ConfigType


def sources(
    static: dict[str, str] | None = None,
    default: dict[str, str] | None = None,
    broker: dict[str, str] | None = None,
) -> BrokerSources:
    return BrokerSources(BrokerConfig({**DEFAULT_SINGLE_NODE, **(static or {})}), default or {}, broker or {})


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    found = {entry.name: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def test_a_topics_value_comes_first_then_the_brokers_in_kafkas_order() -> None:
    name = "log.segment.bytes"
    given = sources({name: "2097152"}, {name: "3145728"}, {name: "4194304"})
    entry = by_name(describe_topic(given, "t", {"segment.bytes": "5242880"}))["segment.bytes"]
    assert (entry.value, entry.source, entry.is_read_only) == ("5242880", ConfigSource.TOPIC_CONFIG, False)
    assert entry.config_type is ConfigType.INT
    assert entry.synonyms == (
        ConfigSynonym("segment.bytes", "5242880", ConfigSource.TOPIC_CONFIG),
        ConfigSynonym("log.segment.bytes", "4194304", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ConfigSynonym("log.segment.bytes", "3145728", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ConfigSynonym("log.segment.bytes", "2097152", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    )
    without_own = by_name(describe_topic(given, "t", {}))["segment.bytes"]
    assert (without_own.value, without_own.source) == ("4194304", ConfigSource.DYNAMIC_BROKER_CONFIG)


def test_retention_in_hours_is_no_synonym_of_retention_in_milliseconds() -> None:
    """Kafka drops what comes before the name itself, so kafka-configs shows `synonyms={}` here."""
    entry = by_name(describe_topic(sources({"log.retention.hours": "1"}), "t", {}))["retention.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())
    entry = by_name(describe_topic(sources({"log.retention.hours": "1", "log.retention.ms": "9"}), "t", {}))[
        "retention.ms"
    ]
    assert (entry.value, entry.source) == ("9", ConfigSource.STATIC_BROKER_CONFIG)
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [
        ("log.retention.ms", "9"),
        ("log.retention.hours", "1"),
        ("log.retention.hours", "168"),
    ]


def test_settings_without_a_brokers_name_are_defaults() -> None:
    entry = by_name(describe_topic(sources(), "t", {}))["preallocate"]
    assert (entry.value, entry.source, entry.synonyms) == ("false", ConfigSource.DEFAULT_CONFIG, ())


def test_internal_settings_are_shown_when_given() -> None:
    assert "internal.segment.bytes" not in by_name(describe_topic(sources(), "t", {}))
    shown = by_name(describe_topic(sources(), "t", {"internal.segment.bytes": "1000"}))
    assert shown["internal.segment.bytes"].value == "1000"
    assert shown["segment.bytes"].value == "1073741824"


def test_a_brokers_settings_say_who_gave_them_and_whether_they_can_change() -> None:
    entries = by_name(describe_broker(sources({}, {"max.connections": "9"}, {"max.connections": "8"})))
    assert entries["max.connections"].value == "8"
    assert entries["max.connections"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert entries["max.connections"].is_read_only is False
    assert entries["node.id"].value == "1"
    assert entries["node.id"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["node.id"].is_read_only is True
    assert entries["node.id"].documentation == "The id of this node in its cluster. One id serves both roles."
    assert entries["num.partitions"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["log.retention.ms"].value is None
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9190"
    assert entries["broker.rack"].value is None


def test_names_of_unknown_type_might_be_secrets() -> None:
    entries = by_name(
        describe_broker(sources({"ssl.keystore.password": "pw", "my.own": "x"}, {"d.d": "1"}, {"b.b": "1"}))
    )
    for name, source in (
        ("ssl.keystore.password", ConfigSource.STATIC_BROKER_CONFIG),
        ("my.own", ConfigSource.STATIC_BROKER_CONFIG),
        ("d.d", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("b.b", ConfigSource.DYNAMIC_BROKER_CONFIG),
    ):
        assert (entries[name].value, entries[name].is_sensitive, entries[name].source) == (None, True, source)
        assert entries[name].config_type is ConfigType.UNKNOWN


def test_the_clusters_defaults_are_only_what_was_set() -> None:
    entries = describe_broker_default({"max.connections": "9", "a.b": "secret"})
    assert [(entry.name, entry.value, entry.is_sensitive) for entry in entries] == [
        ("a.b", None, True),
        ("max.connections", "9", False),
    ]
    assert {entry.source for entry in entries} == {ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG}


@pytest.mark.parametrize(
    ("source", "number"), [(ConfigSource.TOPIC_CONFIG, 1), (ConfigSource.DEFAULT_CONFIG, 5), (ConfigType.PASSWORD, 9)]
)
def test_numbers_on_the_wire(source: int, number: int) -> None:
    assert source == number


def test_a_topic_that_is_listed_shows_the_list() -> None:
    given = sources(default={"remote.wal.topics": "t,o.*"})
    entry = by_name(describe_topic(given, "orders", {}))["remote.wal.enable"]
    assert (entry.value, entry.source) == ("true", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [
        ("remote.wal.topics", "t,o.*"),
        ("remote.wal.topics", ""),
    ]
    for topic, overrides in (("u", {}), ("t", {"cleanup.policy": "compact"})):
        entry = by_name(describe_topic(given, topic, overrides))["remote.wal.enable"]
        assert (entry.value, entry.source, entry.synonyms) == ("false", ConfigSource.DEFAULT_CONFIG, ())
    entry = by_name(describe_topic(given, "t", {"remote.wal.enable": "false"}))["remote.wal.enable"]
    assert (entry.value, entry.source) == ("false", ConfigSource.TOPIC_CONFIG)
