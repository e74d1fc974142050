"""Reads the files of vectors that stand beside the golden tests."""

from pathlib import Path


def lines_of(path: Path) -> list[list[str]]:
    """The words of each line that is neither blank nor a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if line.strip() and not line.startswith("#")]
