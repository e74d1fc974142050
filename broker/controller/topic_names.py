"""Which names a topic may have (Kafka's Topic class)."""

import re
from collections.abc import Iterable
from typing import Final

from broker.common.errors import InvalidTopicError

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """InvalidTopicError with Kafka's sentence."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicError(f"Topic name is invalid: {reason}")


def unified_name(name: str) -> str:
    """Names that differ in `.` and `_` only would share their metrics' names."""
    return name.replace(".", "_")


def find_collision(name: str, existing: Iterable[str]) -> str | None:
    """Another name that unifies to the same."""
    unified = unified_name(name)
    return next((other for other in existing if other != name and unified_name(other) == unified), None)
