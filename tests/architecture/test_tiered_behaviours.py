"""The table of docs/testing.md that says which test shows which behaviour of tiered storage tells the truth."""

import re

import pytest

from .source_tree import ROOT

BEHAVIOURS = 55
_ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def rows() -> dict[int, list[str]]:
    page = (ROOT / "docs" / "testing.md").read_text()
    section = page[page.index("\n## Tiered storage\n") :]
    return {int(number): re.findall(r"`([^`]+)`", cell) for number, cell in _ROW.findall(section)}


def names_in(file: str) -> list[str]:
    return _TEST.findall((ROOT / "tests" / f"{file}.py").read_text())


def numbers_of(test: str) -> set[int]:
    """Those the name begins with: 24 and 25 of `test_24_and_25_offsets`."""
    begin = re.match(r"test_((?:\d+_(?:and_)?)*)", test)
    assert begin is not None
    return {int(number) for number in re.findall(r"\d+", begin[1])}


def test_every_behaviour_has_a_row() -> None:
    assert sorted(rows()) == list(range(1, BEHAVIOURS + 1))


@pytest.mark.parametrize("behaviour", range(1, BEHAVIOURS + 1))
def test_what_is_named_is_there(behaviour: int) -> None:
    shown_by = rows()[behaviour]
    assert shown_by
    for each in shown_by:
        file, _, test = each.partition("::")
        if test:
            assert test in names_in(file), f"{file} has no {test}"
        else:
            assert any(behaviour in numbers_of(name) for name in names_in(file)), f"{file} has no test_{behaviour}_..."
