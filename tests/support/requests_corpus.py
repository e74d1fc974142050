"""The recorded requests of real clients, for tests that want every key and version that is in use."""

import re
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).parents[1] / "golden" / "requests"
NAME = re.compile(r"k(\d+)_v(\d+)_")


class RecordedRequest(NamedTuple):
    name: str
    api_key: int
    version: int
    frame: bytes


def recorded_requests(api_key: int | None = None) -> list[RecordedRequest]:
    """All of them, or those of one key, by name."""
    found = []
    for path in sorted(DIRECTORY.glob("*.bin")):
        match = NAME.match(path.name)
        assert match is not None, path.name
        key, version = int(match[1]), int(match[2])
        if api_key is None or key == api_key:
            found.append(RecordedRequest(path.stem, key, version, path.read_bytes()))
    return found
