"""What is in directories that processes under test change meanwhile."""

import os
from pathlib import Path


def files_under(directory: Path, suffix: str = "") -> list[Path]:
    """Files at any depth whose names end so, sorted; a directory that goes away meanwhile has none (rglob raises)."""
    found = ((Path(parent), names) for parent, _, names in os.walk(directory))
    return sorted(parent / name for parent, names in found for name in names if name.endswith(suffix))
