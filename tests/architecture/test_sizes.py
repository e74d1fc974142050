"""Functions and files stay small enough to be read at once."""

import ast
from pathlib import Path

from .source_tree import PACKAGE, ROOT, modules, syntax_trees

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the signature to the end; the docstring, which is a manual page of a handler, does not count."""
    assert function.end_lineno is not None
    length = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        assert first.end_lineno is not None
        length -= first.end_lineno - first.lineno + 1
    return length


def _is_declaration(path: Path, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The constructor of a group of metrics is a list of them, one after the other."""
    return path.name.endswith("_metrics.py") and function.name == "__init__"


def test_functions_are_short() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}: {_length(node)} lines"
        for path, tree in syntax_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _length(node) > FUNCTION_LINES_MAX
        and not _is_declaration(path, node)
    ]
    assert not long, "\n".join(long)


def test_files_are_short() -> None:
    counts = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert counts, f"no modules under {PACKAGE}"
    long = [f"{path}: {count} lines" for path, count in counts.items() if count > FILE_LINES_MAX]
    assert not long, "\n".join(long)
