"""Whether the tests that other tests name exist."""

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def _functions(path: str) -> frozenset[str]:
    """The test functions of a file; empty without the file."""
    try:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return frozenset()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


def missing_tests(node_ids: Iterable[str]) -> list[str]:
    """Those of `tests/unit/x/test_y.py::test_z` that do not exist."""
    return sorted({node_id for node_id in node_ids if not _exists(node_id)})


def _exists(node_id: str) -> bool:
    path, _, function = node_id.partition("::")
    return function.partition("[")[0] in _functions(path)
