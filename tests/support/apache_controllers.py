"""Quorums of Apache Kafka's own controllers: controller-only JVMs that our brokers join."""

import contextlib
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tests.support import java_tools
from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S, until
from tests.support.quorum_client import leader_by

CLUSTER_ID: Final = "d2hlcnJ5LXF1b3J1bS0wMQ"
FIRST_NODE_ID: Final = 3001  # not the id of any broker: Apache's quorum wants them apart

SETTINGS: Final = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
    # Twice and three times the defaults: with less, three JVMs on a busy machine keep taking the lead from each other.
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.election.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "4000",
    "controller.performance.always.log.threshold.ms": "600000",  # that the machine is slow is no error of theirs
}
COMPLAINT = re.compile(r"\] (ERROR|FATAL) ")
OF_ITSELF = re.compile(r"Unexpected error handling request RequestHeader\(apiKey=CONTROLLER_REGISTRATION,")

# By release: what switches off the finalized features our brokers do not have.  docs/operations.md has the same words.
_WITHOUT = ("group.version=0", "transaction.version=0", "eligible.leader.replicas.version=0")
_WITHOUT_LATER = (*_WITHOUT, "share.version=0", "streams.version=0")
FORMAT_ARGUMENTS: Final = {
    "4.0": "--release-version 4.0 " + " ".join(f"--feature {each}" for each in _WITHOUT),
    "4.1": "--release-version 4.1 " + " ".join(f"--feature {each}" for each in _WITHOUT_LATER),
    "4.2": "--release-version 4.2 " + " ".join(f"--feature {each}" for each in _WITHOUT_LATER),
}
LATEST_RELEASE: Final = "4.2"  # of those whose metadata.version our brokers know: later controllers are formatted as it


def format_arguments(version: str) -> list[str]:
    """The arguments of `kafka-storage format` for controllers of this version, beside those every one has."""
    release = version.rpartition(".")[0]
    return FORMAT_ARGUMENTS.get(release, FORMAT_ARGUMENTS[LATEST_RELEASE]).split()


def why_not_available(version: str) -> str | None:
    """None when controllers of this version can run, else the sentence a skipped test shows."""
    if not (java_tools.jars_of(version) / ".complete").exists():
        return f"Apache Kafka {version} is not in .cache: run `make java-tools KAFKA_VERSION={version}` (needs Maven)"
    return None


class ApacheControllers:
    """`voters` controllers of one version on free ports of 127.0.0.1, data below `directory`; a context manager.

    They are formatted with what docs/operations.md tells operators, unless `format_with` says otherwise.
    `static_voters`: the quorum is kraft.version 0, as before KIP-853.  A controller takes 3 s to start and 150 MB.
    """

    def __init__(
        self,
        directory: Path,
        version: str,
        *,
        voters: int = 3,
        static_voters: bool = False,
        format_with: Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory, self.version, self.cluster_id = directory, version, CLUSTER_ID
        self.static_voters = static_voters
        self.ports = {FIRST_NODE_ID + index: free_port() for index in range(voters)}
        self._format_with = tuple(format_arguments(version) if format_with is None else format_with)
        self._settings = dict(settings or {})
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def broker_settings(self) -> dict[str, str]:
        """How a broker is told of this quorum."""
        if self.static_voters:
            return {"controller.quorum.voters": self._static_voters(), "controller.quorum.bootstrap.servers": ""}
        return {"controller.quorum.bootstrap.servers": self.bootstrap}

    def start(self) -> Self:
        """Format what is not formatted, start all, and wait until one of them leads."""
        unformatted = [home for home in map(self._prepare, self.ports) if not (home / "data/meta.properties").exists()]
        for formatting in [self._format(home) for home in unformatted]:  # all at once
            output = formatting.communicate(timeout=PATIENCE_S)[0]
            assert formatting.returncode == 0, f"{formatting.args!r}:\n{output}"
        for node_id in self.ports:
            self.start_node(node_id)
        self.wait_for_leader()
        return self

    def start_node(self, node_id: int) -> None:
        """Start one controller; it is not waited for."""
        home = self._home(node_id)
        with self.log_file(node_id).open("ab") as log:
            command = java_tools.server_command(self.version, "kafka.Kafka", str(home / "server.properties"), home=home)
            self._processes[node_id] = subprocess.Popen(command, stdout=log, stderr=log)

    def is_running(self, node_id: int) -> bool:
        process = self._processes.get(node_id)
        return process is not None and process.poll() is None

    def kill(self, node_id: int) -> None:
        """kill -9."""
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def pause(self, node_id: int) -> None:
        """SIGSTOP, until `resume`."""
        self._processes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

    def leader(self) -> tuple[int, int]:
        """(node id, epoch) of the controller that leads by its own word; (-1, -1) while none does."""
        best = (-1, -1)
        for node_id, port in self.ports.items():
            if self.is_running(node_id):
                best = max(best, leader_by(port), key=lambda each: each[1])
        return best

    def wait_for_leader(self, after_epoch: int = -1) -> int:
        """The id of a leader of a later epoch than the given one, once there is one."""

        def later() -> tuple[int, int] | None:
            for node_id, process in self._processes.items():
                ended = process.poll()
                if ended not in (None, -signal.SIGKILL):
                    raise AssertionError(f"controller {node_id} ended with {ended}:\n{self.log_tail(node_id)}")
            leader, epoch = self.leader()
            return (leader, epoch) if epoch > after_epoch else None

        found = until(later, f"a controller leads after epoch {after_epoch}", lambda: self.log_tail(FIRST_NODE_ID))
        assert found is not None
        return found[0]

    def fail_over(self) -> int:
        """kill -9 of the leader; returns who led, once somebody else does."""
        leader, epoch = self.leader()
        self.kill(leader)
        self.wait_for_leader(epoch)
        return leader

    def log_file(self, node_id: int) -> Path:
        return self._home(node_id) / "controller.log"

    def log_tail(self, node_id: int, lines: int = 30) -> str:
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log_file(node_id).read_text(errors="replace").splitlines()[-lines:])
        return ""

    def complaints(self) -> list[str]:
        """What they logged that is not in order.

        A controller that starts registers with the leader, which may be itself and not be active yet: it complains of
        that, and tries again.
        """
        lines = [line for node_id in self.ports for line in self.log_file(node_id).read_text().splitlines()]
        return [line for line in lines if COMPLAINT.search(line) and not OF_ITSELF.search(line)]

    def stop(self) -> None:
        """kill -9 of all: nothing of them is used again."""
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def _home(self, node_id: int) -> Path:
        return self.directory / f"controller-{node_id}"

    def _static_voters(self) -> str:
        return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in self.ports.items())

    def _prepare(self, node_id: int) -> Path:
        home = self._home(node_id)
        home.mkdir(parents=True, exist_ok=True)
        quorum = {"controller.quorum.bootstrap.servers": self.bootstrap}
        if self.static_voters:
            quorum = {"controller.quorum.voters": self._static_voters()}
        listener = f"CONTROLLER://127.0.0.1:{self.ports[node_id]}"
        properties = {
            **SETTINGS,
            "node.id": str(node_id),
            "listeners": listener,
            "log.dirs": str(home / "data"),
            **quorum,
            **self._settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (home / "server.properties").write_text(text)
        return home

    def _format(self, home: Path) -> "subprocess.Popen[str]":
        voters: list[str] = []
        if not self.static_voters:
            entries = [f"{each}@127.0.0.1:{port}:{_directory_id(each)}" for each, port in self.ports.items()]
            voters = ["--initial-controllers", ",".join(entries)]
        words = ["format", "-t", CLUSTER_ID, "-c", str(home / "server.properties"), *voters, *self._format_with]
        command = java_tools.server_command(self.version, "kafka.tools.StorageTool", *words, home=home)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *exception: object) -> None:
        self.stop()


def _directory_id(node_id: int) -> str:
    return f"controllerdir-{node_id:05d}AAA"[:21] + "A"
