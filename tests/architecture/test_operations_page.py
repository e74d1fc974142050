"""The commands of docs/operations.md are those the tests run."""

import pytest

from broker.server.supported_features import FORMAT_ADVICE
from tests.support.apache_controllers import FORMAT_ARGUMENTS, LATEST_RELEASE

from .source_tree import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("release", FORMAT_ARGUMENTS)
def test_controllers_are_formatted_as_the_page_says(release: str) -> None:
    (section,) = [part for part in PAGE.split("# Apache Kafka ") if part.startswith(release)]
    lines = section.splitlines()
    assert lines[1].startswith("bin/kafka-storage.sh format ")
    assert lines[2].strip() == FORMAT_ARGUMENTS[release]


def test_a_refused_broker_advises_the_same() -> None:
    assert FORMAT_ARGUMENTS[LATEST_RELEASE] in FORMAT_ADVICE
