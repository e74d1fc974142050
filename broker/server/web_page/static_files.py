"""The files of the page, as they are in the package: what varies comes from /status and /metrics."""

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

_NAMES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/metrics.js": ("metrics.js", "text/javascript; charset=utf-8"),
}


class StaticFile(NamedTuple):
    content_type: str
    body: bytes


@cache
def static_files() -> Mapping[str, StaticFile]:
    """By the path they are asked for; read from the disk once."""
    folder = resources.files(__package__) / "static"
    return {path: StaticFile(kind, (folder / name).read_bytes()) for path, (name, kind) in _NAMES.items()}
