"""The planted bugs still fit the tree.  Whether they are found is `make planted`."""

from pathlib import Path

import pytest

from tests.simulation import planted
from tests.simulation.hunt import STORIES
from tests.simulation.planted import Planted


def test_there_are_planted_bugs() -> None:
    assert len(planted.patches([])) >= 30


@pytest.mark.parametrize("patch", planted.patches([]), ids=lambda patch: patch.stem)
def test_a_planted_bug_still_applies(patch: Path) -> None:
    assert planted.apply(patch, planted.ROOT, check=True) == ""


@pytest.mark.parametrize("patch", planted.patches([]), ids=lambda patch: patch.stem)
def test_what_is_to_find_it_exists(patch: Path) -> None:
    read = Planted.read(patch)
    assert read.tests or read.stories
    assert set(read.stories) <= STORIES.keys()
    for name in read.tests:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (planted.ROOT / path).read_text(encoding="utf-8"), name


def test_each_rule_of_replication_through_buckets_and_of_tiers_has_its_line_in_the_docs() -> None:
    page = (planted.ROOT / "docs/testing.md").read_text(encoding="utf-8")
    rules = {patch.stem for patch in planted.patches([]) if patch.parent.name in ("wal", "tiered")}
    assert {rule for rule in rules if f"| `{rule}` |" not in page} == set()


def test_what_a_patch_says_is_read(tmp_path: Path) -> None:
    patch = tmp_path / "rule.patch"
    patch.write_text(
        "No rule.\n\nFound by: tests/unit/test_a.py::test_b\nFound by: seeds of wal\n"
        "\n--- a/broker/a.py\n+++ b/broker/a.py\n@@ -1 +1 @@\n-Found by: nobody\n+x\n"
    )
    assert Planted.read(patch) == Planted(patch, ("tests/unit/test_a.py::test_b",), ("wal",))


def test_a_test_that_finds_nothing_and_python_that_is_broken_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n):\n    assert n == 1\n\n"
        "def test_two():\n    pass\n\n"
        "def test_three():\n    unknown\n"
    )
    failed = planted.run_tests(["test_it.py"], tmp_path)
    assert failed.keys() == {"test_it.py::test_one", "test_it.py::test_three"}
    assert not planted.NO_FINDING.match(failed["test_it.py::test_one"])
    assert planted.NO_FINDING.match(failed["test_it.py::test_three"])
