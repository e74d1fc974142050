"""Which seeds the tests of a story run: those that once found something, and as many more as they are told."""

import os
from pathlib import Path
from typing import Final

ONE_SEED: Final = os.environ.get("WHERRY_SEED")
"""Of one run that is to be repeated."""


def seeds_of(regressions: str, more: int = 0) -> list[int]:
    """Those in the file of that name, one to a line and what it found behind it, and the first `more`; or the one."""
    if ONE_SEED is not None:
        return [int(ONE_SEED)]
    lines = Path(__file__).with_name(regressions).read_text(encoding="utf-8").splitlines()
    found = [int(line.split()[0]) for line in lines if line and not line.startswith("#")]
    return list(dict.fromkeys([*found, *range(more)]))
