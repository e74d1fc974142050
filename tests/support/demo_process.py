"""`wherry demo` as a process on free ports: what it says, what its brokers say, and what is left of it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from broker.demo.layout import CONTROLLER_PORT_OFFSET, METRICS_PORT_OFFSET
from broker.demo.scrape import Scrape
from tests.support.broker_process import PORTS_BELOW_EPHEMERAL, free_port
from tests.support.patience import PATIENCE_S, until


def free_demo_port(brokers: int = 3) -> int:
    """The first of ports that are all free, for `--port`."""
    while True:
        port = free_port()
        wanted = [port + offset + number for offset in (0, METRICS_PORT_OFFSET) for number in range(brokers)]
        wanted.append(port + CONTROLLER_PORT_OFFSET)
        if max(wanted) <= PORTS_BELOW_EPHEMERAL[-1] and all(map(_is_free, wanted)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class DemoProcess:
    """Use it as a context manager: whatever is left of it is killed at the end."""

    def __init__(
        self, directory: Path, *options: str, port: int | None = None, streams: Mapping[str, Any] | None = None
    ) -> None:
        """Data and output are below `directory`; `streams` are other ones for it than a file and nothing."""
        directory.mkdir(parents=True, exist_ok=True)
        self.data = directory / "demo"
        self.port = free_demo_port() if port is None else port
        self._out = directory / "stdout.txt"
        self._options = options
        self._streams = streams
        self.process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        return self._out.read_text(errors="replace") if self._out.exists() else ""

    @property
    def events(self) -> list[str]:
        return [line for line in self.output.splitlines() if line.startswith("event ")]

    @property
    def lines(self) -> list[dict[str, str]]:
        """Of each second, the values by their names."""
        *whole, _ = self.output.split("\n")
        return [dict(word.split("=", 1) for word in line.split(" ")) for line in whole if line.startswith("t_s=")]

    def launch(self) -> Self:
        command = [sys.executable, "-m", "broker", "demo", "--data", str(self.data), "--port", str(self.port)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WHERRY_")}
        with self._out.open("wb") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT, **(self._streams or {})}
            self.process = subprocess.Popen([*command, *self._options], env=environment, **streams)
        return self

    def start(self) -> Self:
        """And wait until it is ready."""
        self.launch()
        self.wait_for(lambda: bool(self.lines), "the demo is ready")
        return self

    def wait_for(self, is_so: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Fails at once when the demo has ended."""

        def is_so_while_it_runs() -> bool:
            if is_so():
                return True
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.tail()}"
            return False

        until(is_so_while_it_runs, what, self.tail, patience_s=patience_s)

    def wait_for_line(self, is_so: Callable[[dict[str, str]], bool], what: str, since: int = 0) -> dict[str, str]:
        """The first line from number `since` on of which it is so: states that pass are found in what was said."""
        found: list[dict[str, str]] = []

        def is_said() -> bool:
            found[:] = filter(is_so, self.lines[since:])
            return bool(found)

        self.wait_for(is_said, what)
        return found[0]

    def tail(self) -> str:
        return "\n".join(self.output.splitlines()[-40:])

    def metrics(self, *names: str) -> Scrape:
        """Of all brokers that answer, added up."""
        scrapes = []
        for number in range(3):
            with contextlib.suppress(OSError):
                address = f"http://127.0.0.1:{self.port + METRICS_PORT_OFFSET + number}/metrics"
                with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                    scrapes.append(Scrape.parse(answer.read().decode(), names))
        return Scrape.sum_of(scrapes)

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.tail()}") from None

    def brokers(self) -> list[int]:
        """The processes of its brokers that live, whoever their parent is by now."""
        return [pid for pid, command in _processes() if self._is_broker(command)]

    def wait_until_nothing_is_left(self) -> None:
        until(lambda: not self.brokers(), "no broker is left", self.brokers)

    def cluster_ids(self) -> set[str]:
        found = set()
        for file in self.data.glob("broker-*/meta.properties"):
            found |= {line for line in file.read_text().splitlines() if line.startswith("cluster.id=")}
        return found

    def _is_broker(self, command: Sequence[str]) -> bool:
        return "server" in command and any(word.startswith(f"{self.data}/broker-") for word in command)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.brokers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, list[str]]]:
    """All that run here; not those that have ended and are waited for."""
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if state != "Z":
                found.append((int(place.name), words))
    return found
