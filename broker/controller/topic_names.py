"""Which names a topic may have (Kafka's Topic class)."""

import re
from typing import Final

from broker.common.errors import InvalidTopicError
from broker.metadata.topics_delta import TopicsDelta
from broker.metadata.topics_image import TopicsImage

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


class UnifiedNames:
    """Which topic has a unified name: an index over the image, so that creating one topic does not look at all."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def rebuild(self, topics: TopicsImage) -> None:
        self._names = {unified_name(name): name for name in topics.by_name}

    def update(self, delta: TopicsDelta) -> None:
        for name in delta.deleted_topics.values():
            if self.find(name) == name:
                del self._names[unified_name(name)]
        for topic in delta.changed_topics.values():
            if topic.before is None:
                self._names[unified_name(topic.name)] = topic.name

    def find(self, name: str) -> str | None:
        """The topic whose name unifies to the same."""
        return self._names.get(unified_name(name))
