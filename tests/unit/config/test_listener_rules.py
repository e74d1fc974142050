import pytest

from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.setting import ConfigError
from broker.config.value_types import Listener


def sentences(**properties: str) -> list[str]:
    changed = {name.replace("_", "."): value for name, value in properties.items()}
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({**DEFAULT_SINGLE_NODE, **changed})
    return list(refused.value.sentences)


def test_several_listeners_for_inside_and_outside_a_container_network() -> None:
    config = BrokerConfig(
        {
            **DEFAULT_SINGLE_NODE,
            "listeners": "INSIDE://0.0.0.0:19092,OUTSIDE://0.0.0.0:9092,CONTROLLER://:9190",
            "advertised.listeners": "INSIDE://broker:19092,OUTSIDE://localhost:9092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert config.broker_listeners == (
        Listener("INSIDE", "0.0.0.0", 19092, "PLAINTEXT"),
        Listener("OUTSIDE", "0.0.0.0", 9092, "PLAINTEXT"),
    )
    assert [str(entry) for entry in config.advertised_broker_listeners] == [
        "INSIDE://broker:19092",
        "OUTSIDE://localhost:9092",
    ]
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "", 9190, "PLAINTEXT"),)
    assert config.inter_broker_listener_name == "INSIDE"


def test_port_zero_may_be_repeated() -> None:
    config = BrokerConfig({**DEFAULT_SINGLE_NODE, "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"})
    assert [entry.port for entry in config.listeners] == [0, 0]


def test_controller_names_are_plaintext_without_a_map() -> None:
    properties = {k: v for k, v in DEFAULT_SINGLE_NODE.items() if k != "listener.security.protocol.map"}
    assert BrokerConfig(properties).controller_listeners[0].security_protocol == "PLAINTEXT"


def test_inter_broker_listener_follows_the_protocol_when_it_is_not_named() -> None:
    properties = {k: v for k, v in DEFAULT_SINGLE_NODE.items() if k != "inter.broker.listener.name"}
    assert BrokerConfig(properties).inter_broker_listener_name == "PLAINTEXT"


def test_a_controller_alone_needs_no_listener_for_brokers() -> None:
    alone = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "QUORUM://127.0.0.1:9190",
        "listener.security.protocol.map": "QUORUM:PLAINTEXT",
        "controller.listener.names": "QUORUM",
        "controller.quorum.voters": "1@127.0.0.1:9190",
    }
    assert BrokerConfig(alone).controller_listeners == (Listener("QUORUM", "127.0.0.1", 9190, "PLAINTEXT"),)


def test_names_are_compared_in_upper_case() -> None:
    config = BrokerConfig(
        {
            **DEFAULT_SINGLE_NODE,
            "listeners": "plaintext://:9092,controller://:9190",
            "controller.listener.names": "controller",
        }
    )
    assert config.controller_listener_names == ("CONTROLLER",)
    assert [entry.name for entry in config.broker_listeners] == ["PLAINTEXT"]


def test_tls_and_sasl_are_refused_for_now() -> None:
    assert sentences(
        listeners="SSL://:9093,CONTROLLER://:9190",
        listener_security_protocol_map="SSL:SSL,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="SSL",
    ) == ["listeners=SSL://:9093: the security protocol SSL is not supported yet; valid values are [PLAINTEXT]."]


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"listeners": ""}, "listeners is empty: at least one listener as NAME://host:port is needed."),
        (
            {"listeners": "PLAINTEXT:9092"},
            "listeners='PLAINTEXT:9092': 'PLAINTEXT:9092' is not of the form NAME://host:port.",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:TLS"},
            "listener.security.protocol.map=CONTROLLER:TLS: valid protocols are "
            "[PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL].",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "listeners=CONTROLLER://127.0.0.1:9190: no security protocol defined for listener CONTROLLER; add it to "
            "listener.security.protocol.map.",
        ),
        (
            {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3"},
            "listeners: each listener must have a different name, "
            "listeners=PLAINTEXT://:1,PLAINTEXT://:2,CONTROLLER://:3.",
        ),
        (
            {"listeners": "PLAINTEXT://:9190,CONTROLLER://:9190"},
            "listeners: each listener must have a different port, listeners=PLAINTEXT://:9190,CONTROLLER://:9190.",
        ),
        (
            {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        ),
        (
            {"security.inter.broker.protocol": "PLAINTEXT"},
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (
            {"inter.broker.listener.name": "INSIDE"},
            "Listener with name INSIDE defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map.",
        ),
        (
            {"inter.broker.listener.name": "CONTROLLER"},
            "inter.broker.listener.name=CONTROLLER must be a listener name defined in advertised.listeners. The valid "
            "options based on currently configured listeners are PLAINTEXT.",
        ),
        (
            {"controller.listener.names": ""},
            "controller.listener.names is missing: name at least one listener of the controllers.",
        ),
        (
            {"controller.listener.names": "OTHER"},
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when "
            "running the KRaft controller role.",
        ),
        (
            {"process.roles": "broker"},
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role: CONTROLLER.",
        ),
        (
            {"process.roles": "controller"},
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller.",
        ),
    ],
)
def test_listeners_that_do_not_fit_are_refused(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig({**DEFAULT_SINGLE_NODE, **properties})
    assert refused.value.sentences == (sentence,)


def test_advertised_names_are_a_subset_of_the_listeners() -> None:
    assert sentences(
        advertised_listeners="PLAINTEXT://a:1,OUTSIDE://a:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ) == [
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
        "PLAINTEXT,OUTSIDE. The valid options based on the current configuration are PLAINTEXT,CONTROLLER."
    ]


def test_a_broker_needs_a_listener_that_is_not_the_controllers() -> None:
    assert sentences(advertised_listeners="CONTROLLER://a:1") == [
        "There must be at least one broker advertised listener. Perhaps all listeners appear in "
        "controller.listener.names?"
    ]
