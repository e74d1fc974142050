"""What can be broken in a demonstration: the bucket of a zone, a broker, or a zone with both."""

import re
from enum import StrEnum
from typing import Final, NamedTuple, Self

from broker.config.setting import ConfigError

_PLANNED: Final = re.compile(r"(?P<what>[a-z0-9-]+)(?::(?P<at>\d+(?:\.\d+)?))?(?::(?P<span>\d+(?:\.\d+)?))?")


class TargetKind(StrEnum):
    BUCKET = "bucket"
    BROKER = "broker"
    ZONE = "zone"


class Target(NamedTuple):
    """`name` is a zone's letter or a broker's number."""

    kind: TargetKind
    name: str

    @property
    def key(self) -> str:
        """What is pressed for it: the number of a broker, the letter of a bucket's zone, a capital for the zone."""
        return self.name.upper() if self.kind is TargetKind.ZONE else self.name

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


class PlannedBreak(NamedTuple):
    """Seconds after the cluster is ready, and how many seconds later it is healed; None: not by itself."""

    target: Target
    after_seconds: float
    heal_after_seconds: float | None

    @classmethod
    def parse(cls, text: str, known: list[Target]) -> Self:
        """`bucket-a`, `bucket-a:10` (ten seconds after the start) or `bucket-a:10:20` (and healed after 20 more).

        ConfigError when that is not one of the `known` targets.
        """
        match = _PLANNED.fullmatch(text)
        target = next((each for each in known if match is not None and str(each) == match["what"]), None)
        if match is None or target is None:
            names = ", ".join(map(str, known))
            raise ConfigError(f"--break {text}: valid values are {names}, each with :SECONDS or :SECONDS:SECONDS.")
        span = match["span"]
        return cls(target, float(match["at"] or 0), None if span is None else float(span))
