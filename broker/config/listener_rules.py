"""How listeners, their protocols and the roles of a node must fit together, in the sentences of Kafka's KafkaConfig."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config.network_settings import SECURITY_PROTOCOLS, NetworkSettings
from broker.config.value_types import Listener

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

SUPPORTED_PROTOCOLS = frozenset({"PLAINTEXT"})  # where TLS and SASL will come in

_ANY_ADDRESS = ("0.0.0.0", "::")


def protocol_map(config: NetworkSettings) -> Mapping[str, str]:
    """The protocol of each listener name; controllers' names are PLAINTEXT when the map was not given (KIP-595)."""
    protocols = {name.upper(): protocol.upper() for name, protocol in config.listener_security_protocol_map.items()}
    if not config.is_set("listener.security.protocol.map"):
        for name in config.controller_listener_names:
            protocols.setdefault(name.upper(), "PLAINTEXT")
    return protocols


def with_protocols(listeners: Iterable[Listener], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    return tuple(entry._replace(security_protocol=protocols[entry.name]) for entry in listeners)


def inter_broker_listener_name(config: NetworkSettings) -> str:
    return (config.inter_broker_listener_name or config.security_inter_broker_protocol).upper()


def _repeated(values: Iterable[object]) -> bool:
    return any(count > 1 for count in Counter(values).values())


def _names(listeners: Iterable[Listener]) -> str:
    return ",".join(dict.fromkeys(entry.name for entry in listeners))


def _one_map_entry_each(setting: str, listeners: Sequence[Listener], protocols: Mapping[str, str]) -> list[str]:
    sentences = []
    if _repeated(entry.name for entry in listeners):
        sentences.append(f"{setting}: each listener must have a different name, {setting}={_text(listeners)}.")
    for entry in listeners:
        protocol = protocols.get(entry.name)
        if protocol is None:
            sentences.append(
                f"{setting}={entry}: no security protocol defined for listener {entry.name}; add it to "
                "listener.security.protocol.map."
            )
        elif protocol not in SUPPORTED_PROTOCOLS:
            sentences.append(
                f"{setting}={entry}: the security protocol {protocol} is not supported yet; valid values are "
                f"[{', '.join(sorted(SUPPORTED_PROTOCOLS))}]."
            )
    return sentences


def _text(listeners: Iterable[Listener]) -> str:
    return ",".join(map(str, listeners))


def listener_problems(config: NetworkSettings, protocols: Mapping[str, str]) -> list[str]:
    """What is wrong with the listeners by themselves."""
    sentences = [
        f"listener.security.protocol.map={name}:{protocol}: valid protocols are [{', '.join(SECURITY_PROTOCOLS)}]."
        for name, protocol in protocols.items()
        if protocol not in SECURITY_PROTOCOLS
    ]
    if sentences:
        return sentences
    if not config.listeners:
        return ["listeners is empty: at least one listener as NAME://host:port is needed."]
    sentences += _one_map_entry_each("listeners", config.listeners, protocols)
    sentences += _one_map_entry_each("advertised.listeners", config.advertised_listeners, protocols)
    if _repeated((entry.host, entry.port) for entry in config.listeners if entry.port):
        sentences.append(f"listeners: each listener must have a different port, listeners={_text(config.listeners)}.")
    for entry in config.advertised_listeners:
        if entry.host in _ANY_ADDRESS:
            sentences.append(
                f"advertised.listeners cannot use the nonroutable meta-address {entry.host}. Use a routable IP address."
            )
    if config.is_set("inter.broker.listener.name") and config.is_set("security.inter.broker.protocol"):
        sentences.append("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    name = config.inter_broker_listener_name.upper()
    if name and name not in protocols:
        sentences.append(
            f"Listener with name {name} defined in inter.broker.listener.name not found in "
            "listener.security.protocol.map."
        )
    return sentences


def role_problems(config: "BrokerConfig") -> list[str]:
    """What is wrong with the listeners for the roles of this node; needs resolved names."""
    if not config.controller_listener_names:
        return ["controller.listener.names is missing: name at least one listener of the controllers."]
    if not config.process_roles:
        return []  # that is said already, and what would be right depends on them
    sentences = _controller_problems(config)
    if config.is_broker:
        sentences += _broker_problems(config)
    elif any(entry.name not in config.controller_listener_names for entry in config.listeners):
        sentences.append(
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller."
        )
    return sentences


def _controller_problems(config: "BrokerConfig") -> list[str]:
    own = config.controller_listeners
    if config.is_controller and not own:
        return [
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when "
            "running the KRaft controller role."
        ]
    if not config.is_controller and own:
        return [
            f"controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            f"running KRaft with just the broker role: {_names(own)}."
        ]
    return []


def _broker_problems(config: "BrokerConfig") -> list[str]:
    listening = {entry.name for entry in config.listeners}
    sentences = []
    if any(entry.name not in listening for entry in config.advertised_broker_listeners):
        sentences.append(
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            f"{_names(config.advertised_listeners)}. The valid options based on the current configuration are "
            f"{_names(config.listeners)}."
        )
    if not config.advertised_broker_listeners:
        sentences.append(
            "There must be at least one broker advertised listener. Perhaps all listeners appear in "
            "controller.listener.names?"
        )
    elif config.inter_broker_listener_name not in {entry.name for entry in config.advertised_broker_listeners}:
        sentences.append(
            f"inter.broker.listener.name={config.inter_broker_listener_name} must be a listener name defined in "
            "advertised.listeners. The valid options based on currently configured listeners are "
            f"{_names(config.advertised_broker_listeners)}."
        )
    return sentences
