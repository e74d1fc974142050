"""docker-compose.yml as somebody would start it, with a project name and ports of its own."""

import json
import os
import shlex
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.support import docker_tools, java_tools
from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
BROKERS = ("broker-1", "broker-2", "broker-3")
BUILD_S = 900  # everything is downloaded and installed, on a busy machine
EVERY_S = 0.5  # each look starts a process

# Ports of the host by the variable that sets them, with what docker-compose.yml and the README say.
PORTS = {
    "BROKER_1_PORT": 9092,
    "BROKER_2_PORT": 9093,
    "BROKER_3_PORT": 9094,
    "METRICS_1_PORT": 9404,
    "METRICS_2_PORT": 9405,
    "METRICS_3_PORT": 9406,
    "PROMETHEUS_PORT": 9090,
    "S3_PORT": 8333,
    "GRAFANA_PORT": 3000,
}


class ComposeProject:
    """Use it as a context manager: at its end containers, volumes and networks are gone, whatever happened."""

    def __init__(self, directory: Path, name: str, files: Sequence[str] = ("docker-compose.yml",)) -> None:
        self.directory, self.name = directory, f"wherry-{name}-{os.getpid()}"
        self.ports = {variable: free_port() for variable in PORTS}
        self.environment = {
            **os.environ,
            "COMPOSE_PROJECT_NAME": self.name,
            "COMPOSE_FILE": ":".join(str(ROOT / file) for file in files),
            "WHERRY_IMAGE": "wherry:test",
            **{variable: str(port) for variable, port in self.ports.items()},
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[f'BROKER_{number}_PORT']}" for number in (1, 2, 3))

    def compose(self, *arguments: str, timeout_s: float = PATIENCE_S) -> str:
        """Run compose in the checkout; returns what it printed, and fails with its errors on a non-zero exit."""
        command = docker_tools.compose_command()
        assert command is not None, "there is no compose"
        return self._run([*command, *arguments], timeout_s)

    def shell(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Run a command as the README has it, in the checkout; only its ports are replaced by those of this project."""
        for variable, port in PORTS.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{self.ports[variable]}")
        self._lay_shims()
        return self._run(["bash", "-euo", "pipefail", "-c", text], timeout_s)

    def up(self, *options: str) -> None:
        self.compose("up", "-d", *options, timeout_s=BUILD_S)
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Until each broker's health check says so; fails at once when one has ended."""
        for service in BROKERS:
            until(
                lambda service=service: self._is_healthy(service),  # type: ignore[misc]
                f"{service} is healthy",
                self.report,
                every_s=EVERY_S,
            )

    def _is_healthy(self, service: str) -> bool:
        found = self.inspect(service)
        assert found["RestartCount"] == 0, f"{service} ended by itself\n{self.report()}"
        return bool(found["State"]["Health"]["Status"] == "healthy")

    def container_ids(self, *options: str) -> list[str]:
        """Of all containers of this project that run."""
        return docker_tools.docker(
            "ps", "-q", *options, "--filter", f"label=com.docker.compose.project={self.name}"
        ).split()

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine says of the service's container, also of one that has ended."""
        label = f"label=com.docker.compose.service={service}"
        found = self.container_ids("-a", "--filter", label, "--filter", "label=com.docker.compose.oneoff=False")
        assert len(found) == 1, f"{service} has the containers {found}"
        answer: dict[str, Any] = json.loads(docker_tools.docker("inspect", found[0]))[0]
        return answer

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-color", service)

    def tool(self, name: str, *arguments: str) -> str:
        """Run one of Apache Kafka's tools in a container beside the brokers."""
        return self.compose("run", "--rm", "-T", "tools", name, *arguments)

    def prometheus(self, path: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus' HTTP API, once it answers: it refuses while it starts."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.ports['PROMETHEUS_PORT']}/api/v1/{path}?{query}"

        def answered() -> Any:
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                    return json.load(answer)
            except OSError:
                return None

        return until(answered, f"Prometheus answers {url}", self.report, every_s=EVERY_S)["data"]

    def sum_of(self, query: str) -> float:
        """The sum of the series a query finds; 0 when it finds none."""
        return sum(float(series["value"][1]) for series in self.prometheus("query", query=query)["result"])

    def report(self) -> str:
        """What is known when something went wrong."""
        shown = [self.compose("ps")]
        shown += [
            f"--- {each}\n" + "\n".join(self.logs(each).splitlines()[-25:]) for each in (*BROKERS, "s3", "buckets")
        ]
        return "\n".join(shown)

    def _run(self, command: Sequence[str], timeout_s: float) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        shown = f"{shlex.join(command)} exited {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, shown
        return done.stdout

    def _lay_shims(self) -> None:
        """`docker compose` where only docker-compose is there, and a tool of Apache Kafka from its jars."""
        shims = self.directory / "bin"
        if shims.exists():
            return
        shims.mkdir()
        texts = {"kafka-producer-perf-test.sh": f'exec {shlex.join(java_tools.command("ProducerPerformance"))} "$@"'}
        if docker_tools.compose_command() == ("docker-compose",):
            docker, compose = shutil.which("docker"), shutil.which("docker-compose")
            texts["docker"] = f'if [ "$1" = compose ]; then shift; exec {compose} "$@"; fi\nexec {docker} "$@"'
        for name, text in texts.items():
            (shims / name).write_text(f"#!/bin/bash\n{text}\n")
            (shims / name).chmod(0o755)
        self.environment["PATH"] = f"{shims}:{os.environ['PATH']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "5")
