"""Settings of plug-ins, whose names begin as another setting says (Kafka's `*.impl.prefix`)."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.config.setting import Config


class ManagerPrefix(NamedTuple):
    """`usual` is how the names of our own settings begin, `given` how they begin in this configuration."""

    usual: str
    given: str


def read_under_other_prefixes(config: Config, prefixes: Iterable[ManagerPrefix]) -> dict[str, Any]:
    """The values of known settings whose names begin otherwise than usual, by attribute.  ConfigError."""
    values: dict[str, Any] = {}
    for usual, given in prefixes:
        if given == usual:
            continue
        for setting in config.settings():
            if setting.name.startswith(usual):
                text = config.properties.get(given + setting.name.removeprefix(usual))
                values[setting.attribute] = setting.default if text is None else setting.read(text)
    return values


def names_under(config: Config, prefix: ManagerPrefix) -> frozenset[str]:
    """How our own settings of that manager are named in this configuration."""
    settings = (setting.name for setting in config.settings() if setting.name.startswith(prefix.usual))
    return frozenset(prefix.given + name.removeprefix(prefix.usual) for name in settings)


def properties_under(config: Config, prefix: str) -> Mapping[str, str]:
    """All that was given under a prefix, without the prefix."""
    return {name[len(prefix) :]: text for name, text in config.properties.items() if name.startswith(prefix)}
