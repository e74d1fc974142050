"""The planted bugs still fit the tree.  Whether the simulation finds them is `make planted`."""

from pathlib import Path

import pytest

from tests.simulation import planted


def test_there_are_planted_bugs() -> None:
    assert len(planted.patches([])) >= 5


@pytest.mark.parametrize("patch", planted.patches([]), ids=lambda patch: patch.stem)
def test_a_planted_bug_still_applies(patch: Path) -> None:
    assert planted.apply(patch, planted.ROOT, check=True) == ""
