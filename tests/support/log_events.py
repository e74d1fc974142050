"""What a node logged."""

import json
from typing import Any


def events_in(log: str) -> list[dict[str, Any]]:
    """The events of a node's log, in order; without a last line that it is still writing."""
    *whole, _ = log.split("\n")
    return [json.loads(line) for line in whole if line.startswith("{")]
