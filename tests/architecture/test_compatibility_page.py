"""What docs/compatibility.md says of the peers' suites is what tests/suites/expected lists: neither shrinks alone."""

import re

import pytest

from tests.suites.expected_list import DIRECTORY, NEITHER, PASS, ExpectedList

from .source_tree import ROOT

PAGE = (ROOT / "docs" / "compatibility.md").read_text()
SUITES = sorted(path.stem for path in DIRECTORY.glob("*.txt"))


def row_of(suite: str) -> list[str]:
    """Cells of the suite's row: suite, version and commit, date, passed on Apache Kafka, passed here, excepted."""
    (row,) = re.findall(rf"^\| {re.escape(suite)} \|.*$", PAGE, re.MULTILINE)
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_every_list_has_a_row() -> None:
    assert SUITES == ["aiokafka", "kafka-python", "librdkafka"]
    for suite in SUITES:
        _, version, date, *_ = row_of(suite)
        assert ExpectedList(suite).title == f"{suite} {version}, {date}, beside Apache Kafka 4.3.1"


@pytest.mark.parametrize("suite", SUITES)
def test_the_score_is_the_number_of_tests_listed(suite: str) -> None:
    expected = ExpectedList(suite)
    excepted = sum(len(expected.names(kind)) for kind in expected.kinds if kind not in (PASS, NEITHER))
    passed = len(expected.names(PASS))
    assert row_of(suite)[3:] == [str(passed + excepted), str(passed), str(excepted)]


@pytest.mark.parametrize("suite", SUITES)
def test_every_test_that_does_not_pass_is_named_under_its_reason(suite: str) -> None:
    expected = ExpectedList(suite)
    for kind in expected.kinds:
        if kind == PASS:
            continue
        (section,) = re.findall(
            rf"^### {re.escape(suite)}: {re.escape(kind)}\b.*?(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL
        )
        named = re.findall(r"`([^`]+)`", section)
        missing = [name for name in expected.names(kind) if re.split(r"::", name)[-1] not in named]
        assert not missing, f"{suite}, {kind}: {missing}"
