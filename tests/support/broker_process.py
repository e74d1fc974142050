"""One real broker process for tests: started, asked, killed and started again on the same data."""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.patience import PATIENCE_S, until

ANSWER_S = 10  # it is asked again

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


# Below what Linux gives to clients (ip_local_port_range), without those among which S3 servers look for their own.
PORTS_BELOW_EPHEMERAL = (*range(12_000, 20_000), *range(22_000, 32_000))


# None comes twice before all have: whoever was given one may not listen there yet.
_ports = itertools.chain.from_iterable(
    random.sample(PORTS_BELOW_EPHEMERAL, len(PORTS_BELOW_EPHEMERAL)) for _ in itertools.count()
)


def free_port() -> int:
    """A port that stays free for whoever listens on it again after a restart: no outgoing connection takes it."""
    while True:
        port = next(_ports)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


class BrokerProcess:
    """`wherry server` on free ports of 127.0.0.1, data below `directory`; use it as a context manager."""

    patience_s = PATIENCE_S  # until it is ready, and until it has ended

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port, self.controller_port, self.metrics_port = free_port(), free_port(), free_port()
        self.overrides = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "metrics.http.listener": f"127.0.0.1:{self.metrics_port}",
            "log.dirs": str(self.data),
            **QUICK,
            **(overrides or {}),
        }
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> Self:
        """Start and wait until /readyz says 200."""
        self.launch()
        return self.wait_until_ready()

    def launch(self) -> None:
        """Start and do not wait."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "broker", "server"]
        for name, value in self.overrides.items():
            command += ["--override", f"{name}={value}"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("WHERRY_")}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.starts += 1

    def wait_until_ready(self) -> Self:
        assert self._process is not None, "the broker was not started"
        until(self._is_alive_and_ready, "the broker is ready", self.log_tail, patience_s=self.patience_s)
        return self

    def _is_alive_and_ready(self) -> bool:
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is not None:
            raise AssertionError(f"the broker ended with {self._process.returncode}:\n{self.log_tail()}")
        return self.is_ready()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=ANSWER_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None, "the broker was not started"
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: alive, and deaf."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None, "the broker was not started"
        self._process.send_signal(signal.SIGTERM)
        return self.wait_for_end()

    def wait_for_end(self) -> int:
        assert self._process is not None, "the broker was not started"
        try:
            return self._process.wait(self.patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"no stop within {self.patience_s:g} s of SIGTERM:\n{self.log_tail()}") from None

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.log_file.read_text(errors="replace")
        return ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples of a metric whose labels include the given ones; 0 while it has none."""
        total = 0.0
        for line in self.metrics().splitlines():
            match = re.fullmatch(rf"{re.escape(name)}(?:\{{(?P<labels>.*)\}})? (?P<value>\S+)", line)
            if match is None:
                continue
            have = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match["labels"] or ""))
            if all(have.get(key) == value for key, value in labels.items()):
                total += float(match["value"])
        return total

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        if self.is_running():
            self._process.kill()  # type: ignore[union-attr]
            self._process.wait()  # type: ignore[union-attr]
