"""Prometheus' own checker, if it is there."""

import shutil
import subprocess

from tests.support.patience import PATIENCE_S


def why_not_available() -> str | None:
    """None when promtool can be run."""
    return None if shutil.which("promtool") else "promtool is missing: install Debian's package prometheus"


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What promtool says to these arguments."""
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
