"""ConfigsImage: what was set dynamically, per resource."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, NamedTuple


class ConfigResourceType(IntEnum):
    """Kafka's ConfigResource.Type, as it stands in records and requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


CLUSTER_DEFAULT: Final = ""  # the name under which dynamic defaults of all brokers are kept


class ConfigResource(NamedTuple):
    type: ConfigResourceType
    name: str


NO_PROPERTIES: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Only what differs from the nodes' own files and defaults; nothing here is an effective value."""

    EMPTY: ClassVar["ConfigsImage"]

    by_resource: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)

    def properties(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        return self.by_resource.get(ConfigResource(resource_type, name), NO_PROPERTIES)


ConfigsImage.EMPTY = ConfigsImage()
