import re
from collections.abc import Mapping
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.config.describe import ConfigSource
from broker.controller.api_error import NO_ERROR, ApiError
from broker.controller.configuration_control_manager import AlterConfigOperation, ConfigChange
from broker.controller.topic_control_manager import CreatableTopic
from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from broker.schemas.cluster_metadata import ConfigRecord
from tests.support.tiered_topics import DISABLED, FIT, MISFITS, READ_ONLY, TIERED, TIERING, WITHOUT_DELETION
from tests.unit.controller.controller_support import ControlWorld

SET, DELETE = AlterConfigOperation.SET, AlterConfigOperation.DELETE
APPEND, SUBTRACT = AlterConfigOperation.APPEND, AlterConfigOperation.SUBTRACT
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
DEFAULTS = ConfigResource(ConfigResourceType.BROKER, "")


@pytest.fixture
def world() -> ControlWorld:
    world = ControlWorld()
    world.start_brokers(1)
    world.create_topic("t", (1,), retention__ms="1000")
    return world


def alter(world: ControlWorld, resource: ConfigResource, *changes: tuple[str, AlterConfigOperation, Any]) -> ApiError:
    wanted = {resource: [ConfigChange(*change) for change in changes]}
    return world.apply(world.configuration.incremental_alter_configs(wanted))[resource]


def properties(world: ControlWorld, resource: ConfigResource = TOPIC) -> dict[str, str]:
    return dict(world.image.configs.properties(*resource))


def test_set_and_delete(world: ControlWorld) -> None:
    error = alter(world, TOPIC, ("retention.ms", DELETE, None), ("segment.bytes", SET, "2000000"))
    assert error == NO_ERROR
    assert properties(world) == {"segment.bytes": "2000000"}


def test_what_does_not_change_is_not_written(world: ControlWorld) -> None:
    assert alter(world, TOPIC, ("retention.ms", SET, "1000"), ("flush.ms", DELETE, None)) == NO_ERROR
    assert world.records == []


def test_a_brokers_config_is_written_again_to_make_it_reload(world: ControlWorld) -> None:
    expected = [ConfigRecord(resource_type=4, resource_name="1", name="log.segment.bytes", value="2000000")]
    for _ in range(2):
        assert alter(world, BROKER, ("log.segment.bytes", SET, "2000000")) == NO_ERROR
        assert world.records == expected


def test_append_and_subtract_start_from_the_default_and_skip_duplicates(world: ControlWorld) -> None:
    assert alter(world, TOPIC, ("cleanup.policy", APPEND, "compact")) == NO_ERROR
    assert properties(world)["cleanup.policy"] == "delete,compact"
    assert alter(world, TOPIC, ("cleanup.policy", APPEND, "compact")) == NO_ERROR
    assert world.records == []
    assert alter(world, TOPIC, ("cleanup.policy", SUBTRACT, "delete")) == NO_ERROR
    assert properties(world)["cleanup.policy"] == "compact"
    error = alter(world, TOPIC, ("retention.ms", APPEND, "5"))
    assert error == (ErrorCode.invalid_config, "Can't APPEND to key retention.ms because its type is not LIST.")


def test_all_changes_of_a_resource_or_none(world: ControlWorld) -> None:
    error = alter(world, TOPIC, ("flush.ms", SET, "5"), ("retention.ms", SET, "never"))
    assert error.code is ErrorCode.invalid_config
    assert "retention.ms='never'" in (error.message or "")
    assert properties(world) == {"retention.ms": "1000"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (ConfigResource(ConfigResourceType.TOPIC, "missing"), ErrorCode.unknown_topic_or_partition),
        (ConfigResource(ConfigResourceType.BROKER, "9"), ErrorCode.broker_id_not_registered),
        (ConfigResource(ConfigResourceType.BROKER, "one"), ErrorCode.invalid_request),
        (ConfigResource(ConfigResourceType.BROKER_LOGGER, "1"), ErrorCode.invalid_request),
        (ConfigResource(ConfigResourceType.GROUP, "g"), ErrorCode.invalid_request),
    ],
)
def test_resources_that_cannot_be_altered(world: ControlWorld, resource: ConfigResource, code: ErrorCode) -> None:
    assert alter(world, resource, ("flush.ms", SET, "5")).code is code
    assert world.records == []


def test_null_and_read_only_values_are_refused(world: ControlWorld) -> None:
    assert alter(world, TOPIC, ("flush.ms", SET, None)).code is ErrorCode.invalid_request
    assert alter(world, BROKER, ("node.id", SET, "5")).code is ErrorCode.invalid_config


def test_the_older_way_replaces_everything(world: ControlWorld) -> None:
    errors = world.apply(world.configuration.legacy_alter_configs({TOPIC: {"flush.ms": "5"}}))
    assert errors == {TOPIC: NO_ERROR}
    assert properties(world) == {"flush.ms": "5"}
    errors = world.apply(world.configuration.legacy_alter_configs({TOPIC: {"flush.ms": None}}))
    assert errors[TOPIC].code is ErrorCode.invalid_request
    assert properties(world) == {"flush.ms": "5"}


def test_topic_over_cluster_default_over_file(world: ControlWorld) -> None:
    manager = world.configuration
    assert manager.min_insync_replicas("t") == 1
    assert not manager.is_unclean_leader_election_enabled("t")
    alter(world, DEFAULTS, ("min.insync.replicas", SET, "2"), ("unclean.leader.election.enable", SET, "true"))
    assert manager.min_insync_replicas("t") == 2
    assert manager.is_unclean_leader_election_enabled("t")
    alter(world, TOPIC, ("min.insync.replicas", SET, "3"), ("unclean.leader.election.enable", SET, "false"))
    assert manager.min_insync_replicas("t") == 3
    assert not manager.is_unclean_leader_election_enabled("t")


def test_what_the_controllers_own_node_says_stands_over_the_cluster_default(world: ControlWorld) -> None:
    """KafkaConfigSchema.resolveEffectiveTopicConfig: topic, this node, cluster default, file."""
    manager = world.configuration
    assert world.config.node_id == 1
    alter(world, DEFAULTS, ("unclean.leader.election.enable", SET, "false"), ("min.insync.replicas", SET, "2"))
    alter(world, BROKER, ("unclean.leader.election.enable", SET, "true"), ("min.insync.replicas", SET, "3"))
    assert manager.is_unclean_leader_election_enabled("t")
    assert manager.min_insync_replicas("t") == 3
    alter(world, TOPIC, ("unclean.leader.election.enable", SET, "false"), ("min.insync.replicas", SET, "1"))
    assert not manager.is_unclean_leader_election_enabled("t")
    assert manager.min_insync_replicas("t") == 1


def test_describe_topic_tells_sources(world: ControlWorld) -> None:
    entries = {entry.name: entry for entry in world.configuration.describe_topic("t", {"retention.ms": "1000"})}
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("1000", ConfigSource.TOPIC_CONFIG)
    assert entries["cleanup.policy"].source is ConfigSource.DEFAULT_CONFIG
    before = world.configuration.describe_topic("t", {})
    assert world.configuration.describe_topic("t", {}) is before
    alter(world, DEFAULTS, ("log.cleanup.policy", SET, "compact"))
    changed = {entry.name: entry for entry in world.configuration.describe_topic("t", {})}
    assert changed["cleanup.policy"].source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    alter(world, BROKER, ("log.cleanup.policy", SET, "delete"))
    of_this_node = {entry.name: entry for entry in world.configuration.describe_topic("t", {})}
    assert of_this_node["cleanup.policy"].source is ConfigSource.DYNAMIC_BROKER_CONFIG


WITH_BUCKET: dict[str, Any] = {
    "remote__wal__storage__system__enable": "true",
    "remote__wal__storage__manager__class__name": "LocalWalStorageManager",
    "rwsm__config__bucket": "file:///var/wal",
    "broker__rack": "a",
}


def world_with_bucket() -> ControlWorld:
    world = ControlWorld(**WITH_BUCKET)
    world.start_brokers(1)
    world.create_topic("t", (1,))
    return world


def test_a_topic_may_go_through_a_bucket_where_nodes_have_one(world: ControlWorld) -> None:
    error = alter(world, TOPIC, ("remote.wal.enable", SET, "true"))
    assert error.code is ErrorCode.invalid_config
    assert "only where brokers and controllers have remote.wal.storage.system.enable=true" in (error.message or "")
    errors = world.apply(world.configuration.legacy_alter_configs({TOPIC: {"remote.wal.enable": "true"}}))
    assert errors[TOPIC].code is ErrorCode.invalid_config
    world = world_with_bucket()
    assert alter(world, TOPIC, ("remote.wal.enable", SET, "true")) == NO_ERROR
    assert properties(world) == {"remote.wal.enable": "true"}


def test_a_topic_through_a_bucket_is_neither_compacted_nor_internal() -> None:
    world = world_with_bucket()
    assert alter(world, TOPIC, ("remote.wal.enable", SET, "true")) == NO_ERROR
    error = alter(world, TOPIC, ("cleanup.policy", SET, "compact"))
    assert (error.code, properties(world)) == (ErrorCode.invalid_config, {"remote.wal.enable": "true"})
    assert alter(world, TOPIC, ("cleanup.policy", SET, "compact"), ("remote.wal.enable", DELETE, None)) == NO_ERROR
    for name in ("__consumer_offsets", "__remote_log_metadata", "__remote_wal_log_metadata"):
        world.create_topic(name, (1,))
        error = alter(world, ConfigResource(ConfigResourceType.TOPIC, name), ("remote.wal.enable", SET, "true"))
        assert error == (
            ErrorCode.invalid_config,
            f"The topic {name} is internal: it cannot be configured with remote.wal.enable=true.",
        )


def test_topics_are_listed_where_nodes_have_a_bucket_and_for_all_brokers(world: ControlWorld) -> None:
    assert alter(world, DEFAULTS, ("remote.wal.topics", SET, "t")).code is ErrorCode.invalid_config
    assert alter(world, DEFAULTS, ("remote.wal.topics", SET, "")) == NO_ERROR
    world = world_with_bucket()
    assert alter(world, BROKER, ("remote.wal.topics", SET, "t")).code is ErrorCode.invalid_config
    assert alter(world, DEFAULTS, ("remote.wal.topics", SET, "a,(")).code is ErrorCode.invalid_config
    before = world.configuration.describe_topic("t", {})
    assert alter(world, DEFAULTS, ("remote.wal.topics", SET, "a")) == NO_ERROR
    assert alter(world, DEFAULTS, ("remote.wal.topics", APPEND, "t.*")) == NO_ERROR
    assert properties(world, DEFAULTS) == {"remote.wal.topics": "a,t.*"}
    for described, expected in ((before, "false"), (world.configuration.describe_topic("t", {}), "true")):
        assert {entry.name: entry.value for entry in described}["remote.wal.enable"] == expected


# Tiered storage


def tiering_world() -> ControlWorld:
    given: dict[str, Any] = {name.replace(".", "__"): text for name, text in TIERING.items()}
    world = ControlWorld(**given)
    world.start_brokers(1)
    world.create_topic("t", (1,))
    return world


def created(world: ControlWorld, topic: str, configs: Mapping[str, str]) -> ApiError:
    (result,) = world.apply(world.topics.create_topics([CreatableTopic(name=topic, configs=dict(configs))]))
    return result.error


def set_all(world: ControlWorld, configs: Mapping[str, str]) -> ApiError:
    return alter(world, TOPIC, *((name, SET, text) for name, text in configs.items()))


def replace_all(world: ControlWorld, configs: Mapping[str, str]) -> ApiError:
    return world.apply(world.configuration.legacy_alter_configs({TOPIC: dict(configs)}))[TOPIC]


def assert_refused(error: ApiError, sentence: str) -> None:
    assert error.code is ErrorCode.invalid_config
    assert re.search(sentence, error.message or "")


@pytest.mark.parametrize("given", [given for _, given in FIT], ids=[name for name, _ in FIT])
def test_tiered_topics_whose_settings_fit(given: Mapping[str, str]) -> None:
    assert created(tiering_world(), "new", given) == NO_ERROR
    for change in (set_all, replace_all):
        world = tiering_world()
        assert change(world, given) == NO_ERROR
        assert properties(world) == given


@pytest.mark.parametrize(("given", "sentence"), MISFITS)
def test_tiered_topics_whose_settings_do_not_fit(given: Mapping[str, str], sentence: str) -> None:
    world = tiering_world()
    assert_refused(created(world, "new", given), sentence)
    assert_refused(set_all(world, given), sentence)
    assert_refused(replace_all(world, given), sentence)
    assert (list(world.image.topics.by_name), properties(world)) == (["t"], {})


@pytest.mark.parametrize(("given", "sentence"), MISFITS)
def test_each_setting_may_be_the_one_too_many(given: Mapping[str, str], sentence: str) -> None:
    """Whatever is set last, the whole of it is looked at."""
    for last in given:
        world = tiering_world()
        rest = {name: text for name, text in given.items() if name != last}
        if set_all(world, rest) == NO_ERROR:
            assert_refused(alter(world, TOPIC, (last, SET, given[last])), sentence)
            assert properties(world) == rest


def test_what_no_longer_covers_a_setting_is_not_deleted() -> None:
    world = tiering_world()
    assert set_all(world, {**TIERED, "retention.ms": "-1", "local.retention.ms": "-1"}) == NO_ERROR
    assert_refused(alter(world, TOPIC, ("retention.ms", DELETE, None)), r"^local\.retention\.ms=-1: it cannot be")
    assert_refused(alter(world, TOPIC, ("cleanup.policy", APPEND, "compact")), "cannot be compacted")


def test_topics_are_tiered_where_nodes_have_it_on(world: ControlWorld) -> None:
    assert_refused(created(world, "new", TIERED), DISABLED)
    assert_refused(set_all(world, TIERED), DISABLED)
    assert_refused(replace_all(world, TIERED), DISABLED)
    assert set_all(world, {"remote.storage.enable": "false"}) == NO_ERROR


def test_internal_topics_are_not_tiered() -> None:
    world = tiering_world()
    for name in ("__consumer_offsets", "__remote_log_metadata", "__remote_wal_log_metadata"):
        assert_refused(created(world, name, TIERED), f"^The topic {name} is internal")
        assert created(world, name, {}) == NO_ERROR
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        error = alter(world, resource, ("remote.storage.enable", SET, "true"))
        assert_refused(error, f"^The topic {name} is internal")


def test_tiering_ends_only_with_what_is_in_the_bucket() -> None:
    for before in (TIERED, READ_ONLY):
        world = tiering_world()
        assert set_all(world, before) == NO_ERROR
        assert_refused(alter(world, TOPIC, ("remote.storage.enable", SET, "false")), WITHOUT_DELETION)
        assert_refused(alter(world, TOPIC, ("remote.storage.enable", DELETE, None)), WITHOUT_DELETION)
        assert_refused(replace_all(world, {"retention.ms": "5"}), WITHOUT_DELETION)
        assert properties(world) == before
        ends = (("remote.storage.enable", SET, "false"), ("remote.log.delete.on.disable", SET, "true"))
        assert alter(world, TOPIC, *ends) == NO_ERROR
        assert alter(world, TOPIC, ("remote.log.delete.on.disable", DELETE, None)) == NO_ERROR
        assert alter(world, TOPIC, ("remote.storage.enable", SET, "true")) == NO_ERROR  # and again


def test_tiering_ends_with_a_deletion_that_was_agreed_to_before() -> None:
    world = tiering_world()
    assert set_all(world, {**TIERED, "remote.log.delete.on.disable": "true"}) == NO_ERROR
    assert_refused(replace_all(world, {}), WITHOUT_DELETION)
    assert alter(world, TOPIC, ("remote.storage.enable", DELETE, None)) == NO_ERROR
