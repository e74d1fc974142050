"""Pages that are made from the code are current."""

import subprocess
import sys

import pytest

from .source_tree import ROOT


@pytest.mark.parametrize(
    "generator", ["broker.config.reference", "broker.metrics.reference", "broker.server.protocol_reference"]
)
def test_generated_pages_are_current(generator: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", generator, "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"{checked.stderr}\nrun: python -m {generator}"
