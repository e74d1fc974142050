"""Which topics are tiered and how, as operators say it: with Kafka's tools, with an admin client, and wrongly."""

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support import java_tools
from tests.support.apache_controllers import ApacheControllers
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_process import ClusterProcess
from tests.support.patience import PATIENCE_S, until
from tests.support.tiered_topics import DISABLED, FIT, MISFITS, READ_ONLY, TIERED, WITHOUT_DELETION

from .apache_versions import need

pytestmark = pytest.mark.interop

SECRET = "a-secret-that-nobody-sees"
NOT_TIERED = "broker_tiering_topics_not_tiered"
_numbers = itertools.count(1)


def tiering(directory: Path) -> dict[str, str]:
    (directory / "bucket").mkdir(parents=True, exist_ok=True)
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "LocalTieredStorage",
        "rsm.config.bucket": f"file://{directory}/bucket",
        "rsm.config.secret.key": SECRET,
        "rsm.config.mine": SECRET,
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    }


@pytest.fixture(scope="module")
def tiering_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("tiering-broker")
    with BrokerProcess(directory, tiering(directory)) as broker:
        yield broker
        assert SECRET not in broker.log_text()


def said_against(bootstrap: str, ask: Callable[[AdminClient], Any]) -> confluent_kafka.KafkaError | None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    failure = ask(admin).exception(PATIENCE_S)
    return None if failure is None else failure.args[0]


def create(bootstrap: str, topic: str, config: Mapping[str, str]) -> confluent_kafka.KafkaError | None:
    new = NewTopic(topic, 1, 1, config=dict(config))
    return said_against(bootstrap, lambda admin: admin.create_topics([new])[topic])


def set_all(bootstrap: str, topic: str, config: Mapping[str, str]) -> confluent_kafka.KafkaError | None:
    """IncrementalAlterConfigs."""
    changes = [ConfigEntry(name, text, incremental_operation=AlterConfigOpType.SET) for name, text in config.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
    return said_against(bootstrap, lambda admin: admin.incremental_alter_configs([resource])[resource])


def replace_all(bootstrap: str, topic: str, config: Mapping[str, str]) -> confluent_kafka.KafkaError | None:
    """AlterConfigs."""
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(config))
    return said_against(bootstrap, lambda admin: admin.alter_configs([resource])[resource])


CHANGES = (set_all, replace_all)


def new_topic(broker: BrokerProcess, config: Mapping[str, str]) -> str:
    name = f"topic-{next(_numbers)}"
    assert create(broker.bootstrap, name, config) is None
    return name


def assert_refused(error: confluent_kafka.KafkaError | None, sentence: str) -> None:
    assert error is not None
    assert error.name() == "INVALID_CONFIG"
    assert re.search(sentence, error.str())


def config_command(bootstrap: str, *arguments: str) -> str:
    return java_tools.run("ConfigCommand", "--bootstrap-server", bootstrap, *arguments, check=False)


@pytest.mark.parametrize("change", CHANGES)
def test_settings_that_fit(tiering_broker: BrokerProcess, change: Callable[..., object]) -> None:
    for _, config in FIT:
        new_topic(tiering_broker, config)
        assert change(tiering_broker.bootstrap, new_topic(tiering_broker, {}), config) is None


def test_settings_that_do_not_fit_are_refused_however_they_come(tiering_broker: BrokerProcess) -> None:
    topic = new_topic(tiering_broker, {})
    for config, sentence in MISFITS:
        assert_refused(create(tiering_broker.bootstrap, "never", config), sentence)
        for change in CHANGES:
            assert_refused(change(tiering_broker.bootstrap, topic, config), sentence)


@pytest.mark.java
def test_kafka_topics_creates_tiered_topics(tiering_broker: BrokerProcess) -> None:
    server = ("--bootstrap-server", tiering_broker.bootstrap)
    settings = ("--config", "remote.storage.enable=true", "--config", "local.retention.ms=1000")
    java_tools.run("TopicCommand", *server, "--create", "--topic", "by-the-tool", *settings)
    described = java_tools.run("TopicCommand", *server, "--describe", "--topic", "by-the-tool")
    assert "remote.storage.enable=true" in described
    assert "local.retention.ms=1000" in described
    refused = java_tools.run(
        "TopicCommand",
        *server,
        *("--create", "--topic", "compacted", "--config", "remote.storage.enable=true"),
        *("--config", "cleanup.policy=compact"),
        check=False,
    )
    assert "A topic with remote.storage.enable=true cannot be compacted" in refused


@pytest.mark.java
def test_kafka_configs_turns_it_on_and_off(tiering_broker: BrokerProcess) -> None:
    bootstrap = tiering_broker.bootstrap
    topic = ["--entity-type", "topics", "--entity-name", new_topic(tiering_broker, {})]
    assert "Completed" in config_command(bootstrap, *topic, "--alter", "--add-config", "remote.storage.enable=true")
    refused = config_command(bootstrap, *topic, "--alter", "--add-config", "cleanup.policy=compact")
    assert "A topic with remote.storage.enable=true cannot be compacted" in refused
    for off in (["--delete-config", "remote.storage.enable"], ["--add-config", "remote.storage.enable=false"]):
        refused = config_command(bootstrap, *topic, "--alter", *off)
        assert "remote.storage.enable cannot become false while the bucket keeps records" in refused
    ends = ["--add-config", "remote.storage.enable=false,remote.log.delete.on.disable=true"]
    assert "Completed" in config_command(bootstrap, *topic, "--alter", *ends)
    described = config_command(bootstrap, *topic, "--describe")
    assert "remote.storage.enable=false" in described
    assert "remote.log.delete.on.disable=true" in described


def test_tiering_ends_only_with_what_is_in_the_bucket(tiering_broker: BrokerProcess) -> None:
    for config in (TIERED, READ_ONLY):
        topic = new_topic(tiering_broker, config)
        for change in CHANGES:
            off = {"remote.storage.enable": "false"}
            assert_refused(change(tiering_broker.bootstrap, topic, off), WITHOUT_DELETION)
        assert_refused(replace_all(tiering_broker.bootstrap, topic, {}), WITHOUT_DELETION)
        ends = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        assert set_all(tiering_broker.bootstrap, topic, ends) is None
        assert replace_all(tiering_broker.bootstrap, topic, TIERED) is None


@pytest.mark.java
@pytest.mark.parametrize("broker", [["--entity-default"], ["--entity-name", "1"]])
def test_local_retention_of_brokers_changes_while_it_fits(tiering_broker: BrokerProcess, broker: list[str]) -> None:
    entity = ["--entity-type", "brokers", *broker]

    def alter(*change: str) -> str:
        return config_command(tiering_broker.bootstrap, *entity, "--alter", *change)

    refused = alter("--add-config", "log.local.retention.ms=-1")
    assert "log.local.retention.ms=-1: it cannot be without limit" in refused
    assert "Completed" in alter("--add-config", "log.local.retention.ms=5000")
    topic = new_topic(tiering_broker, TIERED)
    described = config_command(
        tiering_broker.bootstrap, "--entity-type", "topics", "--entity-name", topic, "--describe", "--all"
    )
    assert "local.retention.ms=5000 " in described
    assert ":log.local.retention.ms=5000, DEFAULT_CONFIG:log.local.retention.ms=-2}" in described
    refused = alter("--add-config", "log.retention.ms=4999")
    assert "log.local.retention.ms=5000: it must be at most log.retention.ms=4999" in refused
    assert "Completed" in alter("--delete-config", "log.local.retention.ms")


@pytest.mark.java
def test_a_broker_tells_its_settings_and_no_secret(tiering_broker: BrokerProcess) -> None:
    own = config_command(
        tiering_broker.bootstrap, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
    )
    assert "remote.log.storage.system.enable=true sensitive=false" in own
    assert "remote.log.manager.copier.thread.pool.size=10 sensitive=false" in own
    assert "rsm.config.secret.key=null sensitive=true" in own
    assert SECRET not in own


def test_topics_are_not_tiered_where_it_is_off(broker: BrokerProcess) -> None:
    topic = new_topic(broker, {"remote.storage.enable": "false"})
    assert_refused(create(broker.bootstrap, "never", TIERED), DISABLED)
    for change in CHANGES:
        assert_refused(change(broker.bootstrap, topic, TIERED), DISABLED)


def test_what_is_missing_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    settings = tiering(tmp_path)
    for missing, sentence in (
        ("remote.log.storage.manager.class.name", "remote.log.storage.manager.class.name is missing"),
        ("rsm.config.bucket", "rsm.config.bucket is missing: LocalTieredStorage needs it"),
    ):
        given = {name: text for name, text in settings.items() if name != missing}
        broker = BrokerProcess(tmp_path / missing, given)
        broker.launch()
        assert broker.wait_for_end() == 2
        assert f"wherry: {sentence}" in broker.log_tail(1)


def test_a_broker_with_tiering_off_is_told_why_it_does_not_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, tiering(tmp_path)) as broker:
        assert create(broker.bootstrap, "t", TIERED) is None
        broker.stop()
        broker.overrides["remote.log.storage.system.enable"] = "false"
        broker.launch()
        assert broker.wait_for_end() == 2
        expected = "wherry: remote.log.storage.system.enable=false: t of this cluster have remote.storage.enable=true"
        assert expected in broker.log_tail(1)


@contextlib.contextmanager
def under_apache_kafka(
    directory: Path, controllers_settings: Mapping[str, str], settings: Mapping[str, str]
) -> Iterator[BrokerProcess]:
    """One broker of ours under one controller of theirs."""
    version = java_tools.VERSION
    need(version)
    with ApacheControllers(directory / "controllers", version, voters=1, settings=controllers_settings) as controllers:
        given = {**controllers.broker_settings, **settings}
        with ClusterProcess(directory, brokers=1, controllers=controllers.bootstrap, settings=given) as cluster:
            yield cluster.broker(1)


@pytest.mark.java
def test_controllers_of_apache_kafka_refuse_what_they_have_off(tmp_path: Path) -> None:
    with under_apache_kafka(tmp_path, {}, tiering(tmp_path)) as broker:
        assert_refused(create(broker.bootstrap, "t", TIERED), "Tiered Storage functionality is disabled")


@pytest.mark.java
def test_controllers_of_apache_kafka_allow_what_a_broker_has_off(tmp_path: Path) -> None:
    """The broker keeps such a topic as any other, says so, and does not start again."""
    with under_apache_kafka(tmp_path, {"remote.log.storage.system.enable": "true"}, {}) as broker:
        assert create(broker.bootstrap, "t", TIERED) is None
        until(lambda: broker.metric(NOT_TIERED) == 1, "a topic that is not tiered", broker.log_tail)
        assert "topic_not_tiered" in broker.log_text()
        broker.stop()
        broker.launch()
        assert broker.wait_for_end() == 2
        assert "remote.log.storage.system.enable=false: t of this cluster" in broker.log_tail(1)
