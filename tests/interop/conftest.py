"""The broker that the tests of real clients share: one process for a module, fresh topics for each test."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process
        assert process.is_running(), f"the broker died:\n{process.log_tail()}"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """A factory of brokers for one test, each with its own data unless told otherwise."""
    started: list[BrokerProcess] = []

    def start(overrides: dict[str, str] | None = None, directory: Path | None = None) -> BrokerProcess:
        process = BrokerProcess(directory or tmp_path / f"broker-{len(started)}", overrides)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.__exit__()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test's own."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{name[:80]}-{next(_numbers)}"
