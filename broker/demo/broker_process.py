"""BrokerProcess: one broker of the demonstration, as a process that does not outlive this one."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # prctl(2)


def broker_command(properties_file: Path) -> list[str]:
    return [sys.executable, "-m", "broker", "server", str(properties_file)]


def broker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Without settings: one that is meant for a single broker would be given to all of them."""
    return {name: value for name, value in environment.items() if not name.startswith("WHERRY_")}


class BrokerProcess:
    """May be started again after it has ended.  Its own session keeps Ctrl-C of the terminal from it: whoever started
    it tells it to stop, and the kernel does when that one dies."""

    def __init__(self, command: Sequence[str], log_file: Path, environment: Mapping[str, str]) -> None:
        self._command = list(command)
        self._log_file = log_file
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Append to the log file what it says; OSError when it cannot be started."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=end_with_parent(os.getpid()),
            )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last run; a negative one is that of a signal, and None while it runs, or was not started."""
        return None if self._process is None else self._process.poll()

    def stop(self) -> None:
        """Ask it to end in order."""
        if self.is_running:
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9; it has ended when this returns."""
        if self.is_running:
            self._send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def end_with_parent(parent_pid: int) -> Callable[[], None] | None:
    """What a child calls before anything else, so that it is told to stop when its parent dies in whichever way.

    None where the kernel has no such thing (it is Linux'): there, a parent that is killed leaves its children.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def ask_for_signal() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent_pid:
            os._exit(0)  # it died before it could be asked for

    return ask_for_signal
