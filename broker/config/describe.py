"""What DescribeConfigs says about a broker or a topic: values, where they come from, what else is named the same.

Sources and synonyms follow Kafka's ConfigHelper and DynamicBrokerConfig, their order included.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.setting import Setting, UpdateMode
from broker.config.topic_config import TopicConfig
from broker.config.topic_setting import TopicSetting
from broker.config.value_types import ConfigType


class ConfigSource(IntEnum):
    """Where a value comes from, numbered as DescribeConfigs sends it (DescribeConfigsResponse.ConfigSource)."""

    UNKNOWN = 0
    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One place a value could come from; the first of an entry's synonyms is the one in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting in an answer to DescribeConfigs.  `value` is None for "not set" and for secrets."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    config_type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]


@dataclass(frozen=True, slots=True)
class BrokerSources:
    """Where a broker's values come from: its start, then the cluster's defaults, then its own dynamic ones."""

    static: BrokerConfig
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]

    def effective(self) -> BrokerConfig:
        """ConfigError when dynamic values that are stored do not fit together."""
        return self.static.with_overrides({**self.dynamic_default, **self.dynamic_broker})


def describe_broker(sources: BrokerSources) -> list[ConfigEntry]:
    """Every setting of one broker, and the names it was given that are no settings."""
    config = sources.effective()
    given = {**sources.dynamic_default, **sources.dynamic_broker}
    entries = [
        _broker_entry(sources, setting, getattr(config, setting.attribute))
        for setting in BrokerConfig.settings()
        if not setting.is_internal or setting.name in sources.static.properties or setting.name in given
    ]
    others = sorted({*config.unknown_names, *config.ignored_names})
    return entries + [_unknown_entry(sources, name) for name in others]


def describe_broker_default(dynamic_default: Mapping[str, str]) -> list[ConfigEntry]:
    """The defaults of all the cluster's brokers: only what was set."""
    entries = []
    for name, text in sorted(dynamic_default.items()):
        setting = BrokerConfig.setting(name)
        is_sensitive = setting is None or setting.is_sensitive
        value = None if is_sensitive else text
        entries.append(
            ConfigEntry(
                name,
                value,
                ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                setting is not None and setting.update is UpdateMode.READ_ONLY,
                is_sensitive,
                setting.config_type if setting is not None else ConfigType.UNKNOWN,
                setting.doc if setting is not None else "",
                (ConfigSynonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),),
            )
        )
    return entries


def describe_topic(sources: BrokerSources, topic: str, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic with these values of its own."""
    broker = sources.effective()
    is_listed = TopicConfig.is_listed_for_remote_wal(broker, topic, overrides)
    through_bucket = is_listed and TopicConfig.effective(broker, overrides, is_listed=True).remote_wal_enable
    return [
        _listed_entry(sources, setting)
        if through_bucket and setting is TopicConfig.remote_wal_enable
        else _topic_entry(sources, broker, setting, overrides)
        for setting in TopicConfig.settings()
        if not setting.is_internal or setting.name in overrides
    ]


def _broker_entry(sources: BrokerSources, setting: Setting[Any], value: Any) -> ConfigEntry:
    synonyms = tuple(_synonyms(sources, setting))
    return ConfigEntry(
        name=setting.name,
        value=None if setting.is_sensitive else _shown(setting, value),
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=setting.update is UpdateMode.READ_ONLY,
        is_sensitive=setting.is_sensitive,
        config_type=setting.config_type,
        documentation=setting.doc,
        synonyms=synonyms,
    )


def _shown(setting: Setting[Any], value: Any) -> str | None:
    """Nothing is shown for what Kafka leaves null and nobody gave."""
    return None if value == setting.default and setting.default_text is None else setting.format(value)


def _unknown_entry(sources: BrokerSources, name: str) -> ConfigEntry:
    """A name whose type is not known might be a secret, so its value is not shown (KafkaConfig.maybeSensitive)."""
    if name in sources.dynamic_broker:
        source = ConfigSource.DYNAMIC_BROKER_CONFIG
    elif name in sources.dynamic_default:
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    else:
        source = ConfigSource.STATIC_BROKER_CONFIG
    return ConfigEntry(name, None, source, True, True, ConfigType.UNKNOWN, "", (ConfigSynonym(name, None, source),))


def _listed_entry(sources: BrokerSources, setting: Setting[bool]) -> ConfigEntry:
    """Of `remote.wal.enable` when `remote.wal.topics` has the topic: the synonym shows that list."""
    synonyms = tuple(_synonyms(sources, BrokerConfig.remote_wal_topics))
    return ConfigEntry(
        name=setting.name,
        value=setting.format(True),
        source=synonyms[0].source,
        is_read_only=False,
        is_sensitive=False,
        config_type=setting.config_type,
        documentation=setting.doc,
        synonyms=synonyms,
    )


def _topic_entry(
    sources: BrokerSources, broker: BrokerConfig, setting: Setting[Any], overrides: Mapping[str, str]
) -> ConfigEntry:
    value, synonyms = setting.default, []
    if isinstance(setting, TopicSetting):
        if setting.broker_value is not None:
            value = setting.broker_value(broker)
        if setting.broker_synonyms:
            named = BrokerConfig.setting(setting.broker_synonyms[0])
            assert named is not None, setting.broker_synonyms
            synonyms = list(_synonyms(sources, named))
    text = setting.format(value)
    if setting.name in overrides:
        text = setting.format(setting.read(overrides[setting.name]))
        synonyms.insert(0, ConfigSynonym(setting.name, text, ConfigSource.TOPIC_CONFIG))
    return ConfigEntry(
        name=setting.name,
        value=text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=False,
        is_sensitive=setting.is_sensitive,
        config_type=setting.config_type,
        documentation=setting.doc,
        synonyms=tuple(synonyms),
    )


def _synonyms(sources: BrokerSources, setting: Setting[Any]) -> Iterator[ConfigSynonym]:
    """All places a broker's value could come from, most specific first.

    Those before the first that bears the setting's own name are left out, as Kafka does: with only
    `log.retention.hours` given, `log.retention.ms` has no synonyms.
    """
    places = (
        (sources.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (sources.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (sources.static.properties, ConfigSource.STATIC_BROKER_CONFIG),
        (_DEFAULTS, ConfigSource.DEFAULT_CONFIG),
    )
    found = False
    for values, source in places:
        for name in setting.synonyms:
            found = found or (name == setting.name and name in values)
            if found and name in values:
                yield ConfigSynonym(name, None if setting.is_sensitive else values[name], source)


_DEFAULTS: Mapping[str, str] = {
    setting.name: text for setting in BrokerConfig.settings() if (text := setting.default_text) is not None
}
