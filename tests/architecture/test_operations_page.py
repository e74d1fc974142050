"""The commands of docs/operations.md are those the tests run, and what it names is there."""

import re

import pytest

from broker.metrics.reference import all_metrics
from broker.server.supported_features import FORMAT_ADVICE
from tests.support.apache_controllers import FORMAT_ARGUMENTS, LATEST_RELEASE

from .source_tree import PACKAGE, ROOT, modules

PAGE = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("release", FORMAT_ARGUMENTS)
def test_controllers_are_formatted_as_the_page_says(release: str) -> None:
    (section,) = [part for part in PAGE.split("# Apache Kafka ") if part.startswith(release)]
    lines = section.splitlines()
    assert lines[1].startswith("bin/kafka-storage.sh format ")
    assert lines[2].strip() == FORMAT_ARGUMENTS[release]


def test_a_refused_broker_advises_the_same() -> None:
    assert FORMAT_ARGUMENTS[LATEST_RELEASE] in FORMAT_ADVICE


def test_the_metrics_it_names_exist() -> None:
    named = set(re.findall(r"`((?:kafka|broker|org_apache)_[a-z_]+)", PAGE)) - _NO_METRICS
    known = {definition.name for _, definitions in all_metrics() for definition in definitions}
    assert len(named) > 40
    assert named <= known, named - known


def test_the_lines_of_the_log_it_names_are_written() -> None:
    (section,) = re.findall(r"^### When something fails$(.*?)^###", PAGE, re.DOTALL | re.MULTILINE)
    first_cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    named = {event for cell in first_cells for event in re.findall(r"`([a-z_]+)`", cell)} - {"access_denied"}
    source = "\n".join(path.read_text() for path in modules())
    assert len(named) > 20
    assert not [event for event in named if f'"{event}"' not in source]


def test_what_replication_through_buckets_complains_of_is_on_the_page() -> None:
    parts = [*PACKAGE.rglob("wal/**/*.py"), *PACKAGE.rglob("metadata_topic/*.py"), *PACKAGE.glob("objectstore/*.py")]
    complaint = re.compile(r'(?:\.warning|\.error|\bsay|_say|_tell|_give_up)\((?:[a-z_.]+, )*\s*"([a-z_]+)"')
    events = {event for path in parts for event in complaint.findall(path.read_text())}
    assert len(events) > 30
    assert not [event for event in sorted(events) if f"`{event}`" not in PAGE]


def test_what_tiered_storage_complains_of_is_on_the_page() -> None:
    parts = [
        *PACKAGE.rglob("tiering/*.py"),
        *PACKAGE.glob("replication/*remote*.py"),
        PACKAGE / "replication/tier_state.py",
    ]
    complaint = re.compile(r'(?:\.warning|\.error|\.exception|\bsay)\(\s*"([a-z_]+)"')
    events = {event for path in parts for event in complaint.findall(path.read_text())}
    assert len(events) > 15
    assert not [event for event in sorted(events) if f"`{event}`" not in PAGE]


def test_the_lines_it_names_of_tiered_storage_are_written() -> None:
    (section,) = re.findall(r"^### What you see and what to do$(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    first_cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")]
    named = {event for cell in first_cells for event in re.findall(r"`([a-z_]+)`", cell)}
    source = "\n".join(path.read_text() for path in modules())
    assert len(named) > 20
    assert not [event for event in named if f'"{event}"' not in source]


# Lines of the log that begin like metrics.
_NO_METRICS = {
    "broker_left_the_cluster",
    "broker_fenced_itself",
    "broker_registration_refused",
    "broker_registered_again",
}
