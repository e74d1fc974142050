"""ConfigRepository: effective configs of this broker and of topics, and where each value comes from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog

from broker.common.errors import InvalidConfigError
from broker.config.broker_config import BrokerConfig
from broker.config.describe import (
    BrokerSources,
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_topic,
)
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.metadata.configs_image import CLUSTER_DEFAULT, ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache

log = structlog.get_logger(__name__)

SHARED_CONFIGS_MAX: Final = 1000  # different ones; then they are made anew


class ConfigRepository:
    """Combines the node's own file with what the image holds: topic > broker > cluster default > file > default.

    `static` is the config the node started with, dynamic changes not included.
    """

    def __init__(self, static: BrokerConfig, cache: MetadataCache) -> None:
        self._static = static
        self._cache = cache
        self._effective = static
        self._effective_of: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        # By overrides and whether remote.wal.topics has the topic, for one broker config.
        self._topic_configs: dict[tuple[frozenset[tuple[str, str]], bool], TopicConfig] = {}
        self._topic_configs_of = static

    def broker_config(self) -> BrokerConfig:
        """What this broker runs with; the same object until something changes.

        Stored values that do not fit together are logged and left aside as a whole: the broker goes on with its file.
        """
        sources = self._sources()
        dynamic = (sources.dynamic_default, sources.dynamic_broker)
        if dynamic != self._effective_of:
            self._effective_of = dynamic
            try:
                self._effective = sources.effective()
            except ConfigError as error:
                log.error("dynamic_configs_refused", error=str(error))
                self._effective = self._static
        return self._effective

    def topic_config(self, topic: str) -> TopicConfig:
        """What a topic runs with on this broker; also for a topic the image does not have yet."""
        return self.effective_topic_config(topic, self._cache.topic_config_overrides(topic))

    def effective_topic_config(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        """What a topic with these settings of its own runs with; topics with equal ones share one object.

        Values this broker refuses, which controllers of other releases may have let in, are logged and left aside.
        """
        broker = self.broker_config()
        if broker is not self._topic_configs_of or len(self._topic_configs) >= SHARED_CONFIGS_MAX:
            self._topic_configs_of = broker
            self._topic_configs.clear()
        is_listed = TopicConfig.is_listed_for_remote_wal(broker, topic, overrides)
        key = (frozenset(overrides.items()), is_listed)
        config = self._topic_configs.get(key)
        if config is None:
            readable, sentences = _readable(overrides)
            if sentences:
                log.error("topic_settings_left_aside", topic=topic, error=" ".join(sentences))
            config = self._topic_configs[key] = TopicConfig.effective(broker, readable, is_listed=is_listed)
        return config

    def dynamic_properties(self, broker: str) -> Mapping[str, str]:
        """What is stored for a broker, by its id; for all of them by `CLUSTER_DEFAULT`."""
        return self._cache.image.configs.properties(ConfigResourceType.BROKER, broker)

    def check_broker_change(self, broker: str, wanted: Mapping[str, str]) -> None:
        """InvalidConfigError when this broker cannot run with these dynamic values of its own, or of all brokers.

        Other brokers know themselves what fits them.
        """
        sources = self._sources()
        if broker == CLUSTER_DEFAULT:
            sources = replace(sources, dynamic_default=wanted)
        elif broker == str(self._static.node_id):
            sources = replace(sources, dynamic_broker=wanted)
        else:
            return
        try:
            sources.effective().check_retention()
        except ConfigError as error:
            raise InvalidConfigError(str(error)) from error

    def describe_topic(self, topic: str) -> list[ConfigEntry]:
        """What it runs with: values that are left aside are not told."""
        readable, _ = _readable(self._cache.topic_config_overrides(topic))
        return describe_topic(self._sources(), topic, readable)

    def describe_broker(self) -> list[ConfigEntry]:
        return describe_broker(self._sources())

    def describe_broker_default(self) -> list[ConfigEntry]:
        """The dynamic defaults of all brokers."""
        return describe_broker_default(self._sources().dynamic_default)

    def _sources(self) -> BrokerSources:
        own = str(self._static.node_id)
        return BrokerSources(self._static, self.dynamic_properties(CLUSTER_DEFAULT), self.dynamic_properties(own))


def _readable(overrides: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
    """Those a topic can have here, and a sentence for each of the others."""
    readable, sentences = dict(overrides), list[str]()
    for name, text in overrides.items():
        setting = TopicConfig.setting(name)
        try:
            if setting is not None:
                setting.read(text)
        except ConfigError as error:
            del readable[name]
            sentences += error.sentences
    return readable, sentences
