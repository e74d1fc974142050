import pytest

from broker.common.errors import InvalidConfigError
from broker.config.accepted import REFUSED, reason_without_effect
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.properties import parse_properties
from broker.config.remote_log_settings import METADATA_PREFIX, STORAGE_PREFIX, RemoteLogSettings
from broker.config.remote_wal_settings import RemoteWalSettings
from broker.config.setting import ConfigError
from broker.config.value_types import HostPort, Listener, Voter
from broker.config.wherry_settings import WherrySettings

from . import kafka_settings

KAFKA = kafka_settings.read("broker")

# Kafka 4.x's config/server.properties without its comments.
STOCK_SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

# Where ours differs from Kafka's on purpose.
OTHER_DEFAULTS = {
    "node.id": "read from broker.id too",
    "process.roles": "a sentence of ours says what is missing",
    "controller.listener.names": "a sentence of ours says what is missing",
    "queued.max.request.bytes": "bounded: one process holds what is queued",
}

# Kafka knows them as dynamic settings of brokers alone (QuotaConfig), not as lines of a file.
DYNAMIC_ONLY = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}

OUR_OWN = {"metrics.http.listener"} | {
    setting.name
    for own in (RemoteWalSettings, RemoteLogSettings, WherrySettings)
    for setting in own.settings()
    if own is not RemoteLogSettings or setting.name.startswith((STORAGE_PREFIX, METADATA_PREFIX))
}


def config(**overrides: str) -> BrokerConfig:
    return BrokerConfig({**DEFAULT_SINGLE_NODE, **{name.replace("_", "."): value for name, value in overrides.items()}})


def sentences(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({**DEFAULT_SINGLE_NODE, **properties})
    return list(refused.value.sentences)


def test_every_setting_that_kafka_has_bears_its_type_default_and_importance() -> None:
    for setting in BrokerConfig.settings():
        if setting.name in OUR_OWN or setting.name in DYNAMIC_ONLY:
            continue
        kafka = KAFKA[setting.name]
        assert setting.config_type.name == kafka.type or setting.name == "log.dir", setting.name
        assert setting.importance.value == kafka.importance, setting.name
        if setting.name not in OTHER_DEFAULTS:
            assert setting.default_text == (None if kafka.default == "<null>" else kafka.default), setting.name


def test_settings_are_updated_as_in_kafka_or_not_at_all() -> None:
    for setting in BrokerConfig.settings():
        if setting.update.value != "read-only" and setting.name not in DYNAMIC_ONLY | OUR_OWN:
            assert setting.update.value == KAFKA[setting.name].update, setting.name
    updatable = {setting.name for setting in BrokerConfig.settings() if setting.update.value != "read-only"}
    left_out = {name for name, kafka in KAFKA.items() if kafka.update != "read-only" and BrokerConfig.setting(name)}
    assert left_out - updatable == {"listeners", "listener.security.protocol.map"}  # new sockets need a restart


def test_every_name_of_kafka_is_a_setting_or_accepted_or_refused() -> None:
    unknown = [
        name
        for name in KAFKA
        if BrokerConfig.setting(name) is None and reason_without_effect(name) is None and name not in REFUSED
    ]
    assert unknown == []


def test_no_setting_is_also_listed_as_without_effect() -> None:
    both = [setting.name for setting in BrokerConfig.settings() if reason_without_effect(setting.name) is not None]
    assert both == []


def test_bare_server_is_a_cluster_of_one_on_loopback() -> None:
    single = config()
    assert single.node_id == 1
    assert single.process_roles == {"broker", "controller"}
    assert (single.is_broker, single.is_controller) == (True, True)
    assert single.broker_listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert single.controller_listeners == (Listener("CONTROLLER", "127.0.0.1", 9190, "PLAINTEXT"),)
    assert single.advertised_broker_listeners == single.broker_listeners
    assert single.quorum_bootstrap_servers == (HostPort("127.0.0.1", 9190),)
    assert str(single.log_dir) == "data/server"
    assert single.metrics_http_listener == HostPort("127.0.0.1", 9404)
    assert single.offsets_topic_replication_factor == 1
    assert single.unknown_names == ()


def test_kafkas_combined_server_properties_work_as_they_are() -> None:
    stock = BrokerConfig(parse_properties(STOCK_SERVER_PROPERTIES))
    assert stock.unknown_names == ()
    assert stock.ignored_names == (
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    )
    assert stock.listeners[0] == Listener("PLAINTEXT", "", 9092, "PLAINTEXT")
    assert stock.advertised_broker_listeners == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert stock.advertised_controller_listeners == (Listener("CONTROLLER", "localhost", 9093, "PLAINTEXT"),)
    assert stock.inter_broker_listener_name == "PLAINTEXT"


def test_static_quorum_names_the_bootstrap_servers() -> None:
    single = BrokerConfig(
        {**DEFAULT_SINGLE_NODE, "controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@host:9093"}
    )
    assert single.quorum_voters == (Voter(1, "host", 9093),)
    assert single.quorum_bootstrap_servers == (HostPort("host", 9093),)


def test_broker_id_is_the_older_name_of_node_id() -> None:
    properties = {name: value for name, value in DEFAULT_SINGLE_NODE.items() if name != "node.id"}
    assert BrokerConfig({**properties, "broker.id": "7"}).node_id == 7
    assert config(node_id="7").broker_id == 7
    assert sentences({"node.id": "1", "broker.id": "2"}) == ["broker.id=2: it must equal node.id=1, or be left out."]


def test_log_dir_is_used_without_log_dirs() -> None:
    properties = {name: value for name, value in DEFAULT_SINGLE_NODE.items() if name != "log.dirs"}
    assert str(BrokerConfig({**properties, "log.dir": "/one"}).log_dir) == "/one"
    assert str(BrokerConfig({**properties, "log.dir": "/one", "log.dirs": "/two"}).log_dir) == "/two"


def test_names_nobody_knows_are_collected_and_those_of_the_jvm_are_ignored() -> None:
    odd = BrokerConfig({**DEFAULT_SINGLE_NODE, "log.segment.byte": "1", "b.a": "x", "num.io.threads": "8"})
    assert odd.unknown_names == ("b.a", "log.segment.byte")
    assert "num.io.threads" in odd.ignored_names


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"log.segment.bytes": "3"}, "log.segment.bytes='3': valid values are [1048576,...]."),
        ({"num.partitions": "many"}, "num.partitions='many': not a whole number; valid values are [1,...]."),
        ({"process.roles": "zookeeper"}, "process.roles='zookeeper': valid values are broker, controller or both."),
        ({"log.dirs": "/a,/b"}, "log.dirs='/a,/b': exactly one directory is needed; run one broker for each disk."),
        (
            {"metadata.log.dir": "/elsewhere"},
            "metadata.log.dir='/elsewhere': the metadata log shares the data directory 'data/server'; leave it out.",
        ),
        (
            {"controller.quorum.voters": "1@a:1,2@b:2"},
            "controller.quorum.voters='1@a:1,2@b:2': the embedded controller is a quorum of one; for several "
            "controllers run Apache Kafka's, and set process.roles=broker here.",
        ),
        (
            {"controller.quorum.voters": "2@b:2"},
            "If process.roles contains the 'controller' role, the node id 1 must be included in the set of voters "
            "controller.quorum.voters='2@b:2'.",
        ),
        (
            {"controller.quorum.bootstrap.servers": ""},
            "controller.quorum.bootstrap.servers is missing: name the controllers as host:port, or in "
            "controller.quorum.voters as id@host:port.",
        ),
        (
            {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "authorizer.class.name='org.apache.kafka.metadata.authorizer.StandardAuthorizer': there is no authorizer "
            "yet, and every client may do everything.",
        ),
        (
            {"log.retention.ms": "0"},
            "log.retention.ms must be unlimited (-1) or at least 1; so must its minutes and hours.",
        ),
        (
            {"group.max.session.timeout.ms": "5"},
            "group.max.session.timeout.ms=5: it must be at least group.min.session.timeout.ms=6000.",
        ),
        (
            {"replica.fetch.wait.max.ms": "40000", "replica.lag.time.max.ms": "50000"},
            "replica.fetch.wait.max.ms=40000: it must be at most replica.socket.timeout.ms=30000.",
        ),
        (
            {"replica.fetch.wait.max.ms": "700", "replica.lag.time.max.ms": "600"},
            "replica.fetch.wait.max.ms=700: it must be at most replica.lag.time.max.ms=600.",
        ),
        (
            {"broker.heartbeat.interval.ms": "5000"},
            "broker.heartbeat.interval.ms=5000: it must be at most half of broker.session.timeout.ms=9000.",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip=0: it can be zero only with max.connections.per.ip.overrides.",
        ),
        (
            {"max.connections.per.ip.overrides": "10.0.0.1:few"},
            "max.connections.per.ip.overrides: 'few' for 10.0.0.1 is not a number of connections.",
        ),
    ],
)
def test_wrong_values_are_refused_with_one_sentence(properties: dict[str, str], sentence: str) -> None:
    assert sentences(properties) == [sentence]


def test_all_wrong_values_are_told_at_once() -> None:
    assert len(sentences({"log.segment.bytes": "3", "num.partitions": "0"})) == 2


def test_missing_identity_is_told() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({"controller.quorum.bootstrap.servers": "a:1"})
    assert refused.value.sentences[:2] == (
        "process.roles is missing: valid values are broker, controller or both.",
        "node.id is missing: valid values are [0,...].",
    )


def test_of_a_node_without_roles_nothing_is_said_that_depends_on_them() -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({"node.id": "1", "controller.quorum.bootstrap.servers": "a:1", "listeners": "PLAINTEXT://:9092"})
    assert [sentence for sentence in refused.value.sentences if "roles" in sentence or "listeners" in sentence] == [
        "process.roles is missing: valid values are broker, controller or both."
    ]


def test_broker_only_node_must_not_be_a_voter() -> None:
    properties = {"process.roles": "broker", "listeners": "PLAINTEXT://:9092", "controller.quorum.voters": "1@a:1"}
    assert sentences(properties) == [
        "If process.roles contains just the 'broker' role, the node id 1 must not be included in the set of voters "
        "controller.quorum.voters='1@a:1'."
    ]


def test_overrides_make_a_new_config_and_leave_the_old_one() -> None:
    before = config()
    after = before.with_overrides({"log.segment.bytes": "2097152"})
    assert (before.log_segment_bytes, after.log_segment_bytes) == (1 << 30, 2_097_152)
    assert after.node_id == 1
    with pytest.raises(ConfigError):
        before.with_overrides({"log.segment.bytes": "1"})


def test_connections_of_one_address_can_have_a_bound_of_their_own() -> None:
    limited = config(**{"max.connections.per.ip": "5", "max.connections.per.ip.overrides": "10.0.0.1:100"})
    assert (limited.max_connections_of("10.0.0.1"), limited.max_connections_of("10.0.0.2")) == (100, 5)


def test_dynamic_changes_are_refused_as_kafka_does() -> None:
    BrokerConfig.validate_dynamic("log.segment.bytes", "1048576")
    BrokerConfig.validate_dynamic("num.io.threads", "16")  # without effect, but stored
    BrokerConfig.validate_dynamic("some.plugin.setting", "x")
    with pytest.raises(InvalidConfigError, match=r"^Cannot update these configs dynamically: node\.id\.$"):
        BrokerConfig.validate_dynamic("node.id", "2")
    with pytest.raises(InvalidConfigError, match=r"log\.segment\.bytes='1': valid values are \[1048576,\.\.\.\]\."):
        BrokerConfig.validate_dynamic("log.segment.bytes", "1")


def test_the_topics_of_a_bucket_are_named_for_all_brokers_alike() -> None:
    BrokerConfig.validate_dynamic("remote.wal.topics", "a,b.*", per_broker=False)
    with pytest.raises(InvalidConfigError, match=r"^Cannot update these configs for one broker, leaders and followers"):
        BrokerConfig.validate_dynamic("remote.wal.topics", "a", per_broker=True)
    with pytest.raises(InvalidConfigError, match=r"remote\.wal\.topics='\(': valid values are names of topics or reg"):
        BrokerConfig.validate_dynamic("remote.wal.topics", "(", per_broker=False)
