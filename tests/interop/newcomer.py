"""A newcomer: a fresh checkout in an empty directory, terminals, and what README.md says."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.support import java_tools
from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
INSTALL_S = 600  # everything is downloaded and installed
INTERRUPTED = (0, 130, -signal.SIGINT)  # make ends itself by the signal
# Ports of the README and of config/cluster; other ones take their places.
PORTS = (9092, 9093, 9094, 9190, 9404, 9405, 9406)
NOT_THEIRS = ("WHERRY_", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS", "OPTIONS", "FILE")  # also what make hands down
TOOLS = {
    "kafka-topics.sh": java_tools.command("TopicCommand"),
    "kafka-producer-perf-test.sh": java_tools.command("ProducerPerformance"),
}


class Terminal:
    """One command that goes on, and all it said."""

    def __init__(self, command: str, directory: Path, environment: dict[str, str], out: Path) -> None:
        self.command, self._out = command, out
        with out.open("wb") as stream:
            self.process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self._out.read_text(errors="replace")

    def wait_for(self, text: str, patience_s: float = PATIENCE_S) -> None:
        """Fails at once when the command has ended without it."""

        def says_it() -> bool:
            has_ended = self.process.poll() is not None
            if text in self.text:
                return True
            assert not has_ended, f"{self.command} ended:\n{self.text}"
            return False

        until(says_it, f"{self.command} says {text}", lambda: self.text, patience_s=patience_s)

    def interrupt(self) -> None:
        """Ctrl-C: everything in the terminal gets it, and it ends as it should."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(PATIENCE_S) in INTERRUPTED, self.text

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


class Newcomer:
    """Use it as a context manager: at its end all terminals are closed."""

    def __init__(self, directory: Path) -> None:
        """Nothing of this checkout's environment is used: neither its .venv nor its variables."""
        self.checkout, self._tools = directory / "wherry", directory / "bin"
        self._ports = {port: free_port() for port in PORTS}
        self._terminals: list[Terminal] = []
        self._copy_checkout()
        self._lay_tools()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)}
        places = [place for place in kept["PATH"].split(":") if not place.startswith(str(ROOT))]
        self.environment = {**kept, "PATH": ":".join([str(self._tools), *places])}

    def _copy_checkout(self) -> None:
        """As `git clone` would make it, of what is here now, but for ports."""
        names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.checkout / name)
        for file in (self.checkout / "config/cluster").iterdir():
            file.write_text(self.with_ports(file.read_text()))

    def _lay_tools(self) -> None:
        """`python3`, and Apache Kafka's tools as if its distribution was installed."""
        self._tools.mkdir()
        python = [str(Path(sys.base_prefix) / "bin/python3")]
        for name, command in {"python3": python, **TOOLS}.items():
            (self._tools / name).write_text(f'#!/bin/bash\nexec {shlex.join(command)} "$@"\n')
            (self._tools / name).chmod(0o755)

    def with_ports(self, text: str) -> str:
        """Also of several in braces, as curl and bash read them."""
        text = text.replace("127.0.0.1:940{4,5,6}", "127.0.0.1:{9404,9405,9406}")
        return re.sub(r"\b(9092|9093|9094|9190|940[456])\b", lambda found: str(self._ports[int(found[1])]), text)

    def run(self, command: str, timeout_s: float = PATIENCE_S) -> str:
        """What it printed; fails with that and its errors on a non-zero exit."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.with_ports(command)],
            cwd=self.checkout,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def run_until(self, command: str, is_right: Callable[[str], bool]) -> str:
        """Typed again and again until it prints what is expected."""
        text = ""

        def prints_it() -> bool:
            nonlocal text
            text = self.run(command)
            return is_right(text)

        until(prints_it, f"{command} prints what is expected", lambda: text, every_s=1)
        return text

    def open(self, command: str, **variables: str) -> Terminal:
        terminal = Terminal(
            self.with_ports(command),
            self.checkout,
            {**self.environment, **variables},
            self._tools.parent / f"terminal-{len(self._terminals)}.txt",
        )
        self._terminals.append(terminal)
        return terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for terminal in self._terminals:
            terminal.close()
