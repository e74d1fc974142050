"""The files of this repository, as the architecture tests look at them."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "broker"

_NOT_OURS = {"__pycache__", "build", "dist", "data", "node_modules", "target"}


def modules() -> list[Path]:
    """Every Python module of the product."""
    return sorted(PACKAGE.rglob("*.py"))


def syntax_trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in modules():
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def repository_files() -> Iterator[Path]:
    """Every file that belongs to the repository: no caches, no environments, no data."""
    for directory, names, files in os.walk(ROOT):
        names[:] = sorted(
            name
            for name in names
            if name not in _NOT_OURS and not name.endswith(".egg-info") and (not name.startswith(".") or name == ".ci")
        )
        yield from (Path(directory) / name for name in sorted(files) if not name.startswith("."))
