"""Classes that a setting names: by a short name of ours, or by a dotted path of somebody else's."""

import importlib
from collections.abc import Mapping
from typing import TypeVar

from broker.config.setting import ConfigError

T = TypeVar("T")


def named_class(setting: str, name: str, short_names: Mapping[str, str], kind: type[T]) -> type[T]:
    """The class that `setting` is set to; `short_names` gives dotted paths.

    ConfigError when it is not set, when there is none of that name, or it is no `kind`.
    """
    if not name:
        raise ConfigError(f"{setting} must be set: {' or '.join(short_names)}, or the path of a class")
    module_name, _, class_name = short_names.get(name, name).rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), class_name) if module_name else None
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{setting}={name} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        known = " or ".join(short_names)
        raise ConfigError(f"{setting}={name} is no {kind.__name__}: it must be {known}, or the path of a class")
    return found
