"""How the text of a setting becomes a value and back: the types of Kafka's ConfigDef, and a few structured ones."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_LIST_SEPARATOR = re.compile(r"\s*,\s*")
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://\[?([0-9A-Za-z.\-%_:]*?)\]?:(-?[0-9]+)", re.ASCII)


class ConfigType(IntEnum):
    """Kafka's types of settings, numbered as DescribeConfigs sends them (DescribeConfigsResponse.ConfigType)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True)
class ValueType(Generic[T]):
    """One type of value: its Kafka name, how to read it (ValueError with a reason) and how to write it."""

    config_type: ConfigType
    parse: Callable[[str], T]
    format: Callable[[T], str]


class HostPort(NamedTuple):
    """Where something listens; an empty host means every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """One endpoint of this node (Kafka's EndPoint).  Port 0 lets the operating system choose."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        return f"{self.name}://{HostPort(self.host, self.port)}"


class Voter(NamedTuple):
    """One controller of a static quorum: `id@host:port`."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.node_id}@{HostPort(self.host, self.port)}"


def parse_integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("not a whole number")
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"does not fit {bits} bits")
    return value


def _parse_double(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("not a number") from None
    if value != value:
        raise ValueError("not a number")
    return value


def _format_double(value: float) -> str:
    """Java's form of the numbers we have: no plus sign and no leading zero in the exponent."""
    return re.sub(r"e\+?(-?)0*", r"E\1", repr(float(value)))


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("expected true or false")
    return lowered == "true"


def parse_list(text: str) -> tuple[str, ...]:
    stripped = text.strip()
    return tuple(_LIST_SEPARATOR.split(stripped)) if stripped else ()


def _parse_port(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not 0 <= int(text) <= 65535:
        raise ValueError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def parse_host_port(text: str) -> HostPort:
    host, separator, port = text.rpartition(":")
    if not separator:
        raise ValueError(f"{text!r} is not of the form host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return HostPort(host, _parse_port(port))


def _parse_listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    name = match[1].upper()
    return Listener(name, match[2], _parse_port(match[3]), name)


def _parse_voter(text: str) -> Voter:
    node_id, separator, address = text.partition("@")
    if not separator or not _INTEGER.fullmatch(node_id):
        raise ValueError(f"{text!r} is not of the form id@host:port")
    return Voter(parse_integer(node_id, 32), *parse_host_port(address))


def _parse_map(text: str) -> Mapping[str, str]:
    entries = {}
    for entry in parse_list(text):
        key, separator, value = entry.rpartition(":")
        if not separator:
            raise ValueError(f"{entry!r} is not of the form key:value")
        entries[key.strip()] = value.strip()
    return entries


def _parse_roles(text: str) -> frozenset[str]:
    roles = parse_list(text)
    if len(set(roles)) != len(roles):
        raise ValueError("a role is named twice")
    return frozenset(roles)


def _join(items: Any) -> str:
    return ",".join(map(str, items))


def _list_of(parse: Callable[[str], T]) -> ValueType[tuple[T, ...]]:
    return ValueType(ConfigType.LIST, lambda text: tuple(map(parse, parse_list(text))), _join)


INT: Final = ValueType[int](ConfigType.INT, lambda text: parse_integer(text, 32), str)
SHORT: Final = ValueType[int](ConfigType.SHORT, lambda text: parse_integer(text, 16), str)
LONG: Final = ValueType[int](ConfigType.LONG, lambda text: parse_integer(text, 64), str)
DOUBLE: Final = ValueType[float](ConfigType.DOUBLE, _parse_double, _format_double)
BOOLEAN: Final = ValueType[bool](ConfigType.BOOLEAN, _parse_boolean, lambda value: "true" if value else "false")
STRING: Final = ValueType[str](ConfigType.STRING, str, str)
CLASS: Final = ValueType[str](ConfigType.CLASS, str, str)
PASSWORD: Final = ValueType[str](ConfigType.PASSWORD, str, lambda _: "[hidden]")
LIST: Final = ValueType[tuple[str, ...]](ConfigType.LIST, parse_list, _join)
PATH: Final = ValueType[Path](ConfigType.STRING, Path, str)
MAP: Final = ValueType[Mapping[str, str]](
    ConfigType.STRING, _parse_map, lambda value: ",".join(f"{key}:{entry}" for key, entry in value.items())
)
ROLES: Final = ValueType[frozenset[str]](ConfigType.LIST, _parse_roles, lambda value: _join(sorted(value)))
LISTENERS: Final = _list_of(_parse_listener)
HOST_PORTS: Final = _list_of(parse_host_port)
VOTERS: Final = _list_of(_parse_voter)
HOST_PORT: Final = ValueType[HostPort](ConfigType.STRING, parse_host_port, str)
