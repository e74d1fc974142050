"""`wherry` as an operator runs it: any arguments, what it says on both streams, signals and exit codes."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.patience import PATIENCE_S, until

ANY_PORTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    "metrics.http.listener": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


def as_overrides(properties: Mapping[str, str]) -> list[str]:
    return [argument for name, value in properties.items() for argument in ("--override", f"{name}={value}")]


class NodeProcess:
    """One process; ports are read from what it announces."""

    def __init__(self, directory: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._err = directory / "stdout.txt", directory / "stderr.txt"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WHERRY_")},
            **(environment or {}),
        }
        command = [sys.executable, "-m", "broker", *arguments]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    @classmethod
    def server(cls, directory: Path, properties: Mapping[str, str], *arguments: str) -> Self:
        """A node of both roles on free ports, data in `directory`/data unless told otherwise."""
        data = {"log.dirs": str(directory / "data")}
        return cls(directory, ["server", *arguments, *as_overrides({**ANY_PORTS, **data, **properties})])

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def ready(self) -> Self:
        """Wait until it says that it is."""

        def says_so() -> bool:
            if "metrics  " in self.stdout:
                return True
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.stderr}"
            return False

        until(says_so, "the node is ready", lambda: self.stderr)
        return self

    def port(self, line: str) -> int:
        found = re.search(rf"^  {line} .*:(\d+)", self.stdout, re.MULTILINE)
        assert found is not None, self.stdout
        return int(found[1])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port('clients')}"

    def http_status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port('metrics')}{path}", timeout=PATIENCE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {PATIENCE_S:g} s:\n{self.stderr}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
