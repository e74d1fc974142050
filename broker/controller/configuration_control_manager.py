"""ConfigurationControlManager: dynamic configs of topics and brokers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

from broker.common.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import CLUSTER_METADATA_TOPIC
from broker.config.broker_config import BrokerConfig
from broker.config.describe import BrokerSources, ConfigEntry, describe_topic
from broker.config.remote_wal_rules import check_remote_wal_system
from broker.config.setting import Setting
from broker.config.topic_config import TopicConfig
from broker.config.value_types import ConfigType
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.metadata.configs_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from broker.schemas.cluster_metadata import ConfigRecord, MetadataRecord

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION: Final = "unclean.leader.election.enable"
UNLISTED_TOPIC: Final = CLUSTER_METADATA_TOPIC  # one that remote.wal.topics never has


class AlterConfigOperation(IntEnum):
    """AlterConfigOp.OpType; the last two are for settings that are lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: AlterConfigOperation
    value: str | None


class ConfigurationControlManager:
    def __init__(self, config: BrokerConfig, state: ControllerState) -> None:
        self._config = config
        self._state = state
        self._default_entries: list[ConfigEntry] = []
        self._default_entries_of: BrokerSources | None = None
        self._is_listed: Callable[[str], bool] = config.is_remote_wal_topic

    # What the other managers ask

    def min_insync_replicas(self, topic: str) -> int:
        text = self._topic_or_default(topic, MIN_INSYNC_REPLICAS)
        return self._config.min_insync_replicas if text is None else int(text)

    def is_unclean_leader_election_enabled(self, topic: str) -> bool:
        text = self._topic_or_default(topic, UNCLEAN_LEADER_ELECTION)
        return self._config.unclean_leader_election_enable if text is None else text.strip().lower() == "true"

    def _topic_or_default(self, topic: str, name: str) -> str | None:
        """As KafkaConfigSchema.resolveEffectiveTopicConfig: topic, the controller's own node, cluster default."""
        value = self._state.image.configs.properties(ConfigResourceType.TOPIC, topic).get(name)
        for node in (str(self._config.node_id), CLUSTER_DEFAULT):
            if value is None:
                value = self._state.image.configs.properties(ConfigResourceType.BROKER, node).get(name)
        return value

    def validate_topic_configs(self, topic: str, properties: Mapping[str, str | None]) -> dict[str, str]:
        """The configs of a new topic; InvalidConfigError with a sentence when one is wrong."""
        absent = sorted(name for name, value in properties.items() if value is None)
        if absent:
            raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(absent)}")
        given = {name: value for name, value in properties.items() if value is not None}
        if given:
            TopicConfig.validate_all(self._config, given, topic)
        return given

    def describe_topic(self, topic: str, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """The effective configs of a topic with these overrides, as CreateTopics answers them."""
        configs = self._state.image.configs
        sources = BrokerSources(
            self._config,
            configs.properties(ConfigResourceType.BROKER, CLUSTER_DEFAULT),
            configs.properties(ConfigResourceType.BROKER, str(self._config.node_id)),
        )
        if self._default_entries_of != sources:
            self._default_entries_of = sources
            self._default_entries = describe_topic(sources, UNLISTED_TOPIC, {})
            self._is_listed = sources.effective().is_remote_wal_topic
        if overrides or self._is_listed(topic):
            return describe_topic(sources, topic, overrides)
        return self._default_entries

    # Commands

    def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]]
    ) -> ControllerResult[dict[ConfigResource, ApiError]]:
        """All changes of a resource or none; each resource by itself (KIP-339)."""
        records: list[MetadataRecord] = []
        errors: dict[ConfigResource, ApiError] = {}
        for resource, resource_changes in changes.items():
            try:
                self._check_resource(resource)
                wanted = self._changed_properties(resource, resource_changes)
                self._validate(resource, wanted, [change.name for change in resource_changes])
                named = dict.fromkeys(change.name for change in resource_changes)
                records += self._records(resource, {name: wanted.get(name) for name in named})
                errors[resource] = NO_ERROR
            except KafkaError as error:
                errors[resource] = ApiError.of(error)
        return ControllerResult(records, errors)

    def legacy_alter_configs(
        self, properties: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> ControllerResult[dict[ConfigResource, ApiError]]:
        """Replaces all configs of each resource: what is not named is deleted (AlterConfigs)."""
        records: list[MetadataRecord] = []
        errors: dict[ConfigResource, ApiError] = {}
        for resource, given in properties.items():
            try:
                self._check_resource(resource)
                wanted = {name: value for name, value in given.items() if value is not None}
                if len(wanted) != len(given):
                    absent = sorted(given.keys() - wanted.keys())
                    raise InvalidRequestError(f"Null value not supported for: {','.join(absent)}")
                self._validate(resource, wanted, list(wanted))
                current = self._state.image.configs.properties(*resource)
                removed: dict[str, str | None] = {name: None for name in current if name not in wanted}
                records += self._records(resource, {**wanted, **removed})
                errors[resource] = NO_ERROR
            except KafkaError as error:
                errors[resource] = ApiError.of(error)
        return ControllerResult(records, errors)

    def _check_resource(self, resource: ConfigResource) -> None:
        if resource.type is ConfigResourceType.TOPIC:
            if resource.name not in self._state.image.topics.by_name:
                raise UnknownTopicOrPartitionError(f"The topic '{resource.name}' does not exist.")
        elif resource.type is ConfigResourceType.BROKER:
            self._check_broker_name(resource.name)
        else:
            raise InvalidRequestError(f"Unexpected resource type {resource.type.name}.")

    def _check_broker_name(self, name: str) -> None:
        if name == CLUSTER_DEFAULT:
            return
        if not name.isascii() or not name.isdigit():
            raise InvalidRequestError(f"Invalid broker name '{name}'.")
        image = self._state.image
        if int(name) not in image.brokers and int(name) not in image.controllers and int(name) != self._config.node_id:
            raise BrokerIdNotRegisteredError(f"No node with id {name} found.")

    def _changed_properties(self, resource: ConfigResource, changes: Iterable[ConfigChange]) -> dict[str, str]:
        wanted = dict(self._state.image.configs.properties(*resource))
        for name, operation, value in changes:
            match operation:
                case AlterConfigOperation.SET:
                    wanted[name] = _required(name, value)
                case AlterConfigOperation.DELETE:
                    wanted.pop(name, None)
                case AlterConfigOperation.APPEND | AlterConfigOperation.SUBTRACT:
                    wanted[name] = self._changed_list(resource, name, operation, _required(name, value), wanted)
                case _:
                    assert_never(operation)
        return wanted

    def _changed_list(
        self,
        resource: ConfigResource,
        name: str,
        operation: AlterConfigOperation,
        value: str,
        properties: Mapping[str, str],
    ) -> str:
        setting = _setting(resource.type, name)
        if setting is None or setting.config_type is not ConfigType.LIST:
            raise InvalidConfigError(f"Can't {operation.name} to key {name} because its type is not LIST.")
        current = properties.get(name, setting.default_text or "")
        entries = [entry for entry in (part.strip() for part in current.split(",")) if entry]
        named = [entry for entry in (part.strip() for part in value.split(",")) if entry]
        if operation is AlterConfigOperation.APPEND:
            entries += [entry for entry in dict.fromkeys(named) if entry not in entries]
        else:
            entries = [entry for entry in entries if entry not in named]
        return ",".join(entries)

    def _validate(self, resource: ConfigResource, wanted: Mapping[str, str], named: Iterable[str]) -> None:
        if resource.type is ConfigResourceType.TOPIC:
            before = self._state.image.configs.properties(*resource)
            TopicConfig.validate_all(self._config, wanted, resource.name, before)
            return
        for name in named:
            if name in wanted:
                BrokerConfig.validate_dynamic(name, wanted[name], per_broker=resource.name != CLUSTER_DEFAULT)
                if name == BrokerConfig.remote_wal_topics.name and wanted[name].strip():
                    check_remote_wal_system(self._config)

    def _records(self, resource: ConfigResource, values: Mapping[str, str | None]) -> Iterable[MetadataRecord]:
        current = self._state.image.configs.properties(*resource)
        # A broker's config is written even when it does not change: setting a value again makes the broker read
        # files it names again, a key store for example.
        is_written_always = resource.type is ConfigResourceType.BROKER
        for name, value in values.items():
            if current.get(name) != value or (is_written_always and value is not None):
                yield ConfigRecord(
                    resource_type=int(resource.type), resource_name=resource.name, name=name, value=value
                )


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequestError(f"Null value not supported for : {name}")
    return value


def _setting(resource_type: ConfigResourceType, name: str) -> Setting[object] | None:
    config = TopicConfig if resource_type is ConfigResourceType.TOPIC else BrokerConfig
    return config.setting(name)
