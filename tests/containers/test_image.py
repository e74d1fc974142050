"""The image alone: what `docker run` of it is, and that it holds no more than the broker."""

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from tests.containers.compose_project import BUILD_S, EVERY_S, ROOT
from tests.support.broker_process import free_port
from tests.support.docker_tools import docker
from tests.support.patience import PATIENCE_S, until

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1200)]

IMAGE = "wherry:test"
BASE = "python:3.11-slim-bookworm"
ADDED_BYTES_MAX = 130_000_000


@pytest.fixture(scope="module")
def image() -> str:
    docker("build", "--tag", IMAGE, str(ROOT), timeout_s=BUILD_S)
    return IMAGE


@contextlib.contextmanager
def container(*arguments: str) -> Iterator[str]:
    """The id of a container that is removed at the end."""
    name = docker("run", "--detach", *arguments)
    try:
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def state(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("inspect", name))[0]["State"]
    return found


def health(name: str) -> str:
    return str(state(name)["Health"]["Status"])


def test_one_broker_without_any_setting_serves_and_stops_in_order(image: str) -> None:
    """The port inside is the port outside: it tells clients 127.0.0.1 with the port it listens at."""
    port = free_port()
    listeners = f"PLAINTEXT://:{port},CONTROLLER://127.0.0.1:9190"
    told = f"PLAINTEXT://127.0.0.1:{port}"
    options = ["--env", f"WHERRY_LISTENERS={listeners}", "--env", f"WHERRY_ADVERTISED_LISTENERS={told}"]
    with container("--publish", f"127.0.0.1:{port}:{port}", *options, image) as name:
        until(lambda: health(name) == "healthy", "healthy", lambda: docker("logs", name), every_s=EVERY_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all"})
        producer.produce("greetings", b"hello")
        assert producer.flush(PATIENCE_S) == 0
        assert docker("exec", name, "id", "-u") == "10001"
        assert docker("exec", name, "cat", "/proc/1/comm").startswith(("wherry", "python"))
        docker("stop", "--time", "60", name)
        assert state(name)["ExitCode"] == 0, "SIGTERM did not reach the broker"


def test_the_health_check_tells_of_a_broker_that_does_not_serve(image: str) -> None:
    """Without its controller it waits, and is not healthy."""
    waiting = ("WHERRY_PROCESS_ROLES=broker", "WHERRY_LISTENERS=PLAINTEXT://:9092", "WHERRY_NODE_ID=2")
    options = [word for setting in waiting for word in ("--env", setting)]
    with container(
        "--health-start-period", "1s", "--health-interval", "1s", "--health-retries", "2", *options, image
    ) as name:
        until(lambda: health(name) == "unhealthy", "unhealthy", lambda: docker("logs", name), every_s=EVERY_S)
        assert state(name)["Running"]


def test_the_image_holds_what_the_broker_needs_and_no_more(image: str) -> None:
    added = int(docker("inspect", "--format", "{{.Size}}", image)) - int(
        docker("inspect", "--format", "{{.Size}}", BASE)
    )
    assert added < ADDED_BYTES_MAX, f"{added} bytes above {BASE}"
    program = "import importlib.metadata as m; print(*(each.name.lower() for each in m.distributions()))"
    there = set(docker("run", "--rm", "--entrypoint", "python", image, "-c", program).replace("_", "-").split())
    locked = re.findall(r"^([\w-]+)==", (ROOT / "requirements-runtime.lock").read_text(), re.M)
    assert there == {*locked, "wherry"}


def test_every_file_of_the_package_is_in_the_image(image: str) -> None:
    """Files that are not Python's have to be named in pyproject.toml."""
    listing = "cd /opt/wherry/lib/python3*/site-packages && find broker -type f -not -name '*.pyc'"
    there = docker("run", "--rm", "--entrypoint", "sh", image, "-c", listing).split()
    tracked = subprocess.run(
        ["git", "ls-files", "broker"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    pages = {"broker/README.md"}
    assert set(tracked) - pages - set(there) == set()


def test_a_wrong_setting_is_a_sentence(image: str) -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", "--env", "WHERRY_NUM_PARTITIONS=none", image],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "num.partitions" in done.stderr
