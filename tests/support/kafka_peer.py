"""A real Apache Kafka, one combined broker and controller: the judge and the neighbour of our broker in tests."""

import contextlib
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support import java_tools
from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S, until

COMPLAINT = re.compile(r"\] (ERROR|FATAL) ")

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class KafkaPeer:
    """`kafka.Kafka` on free ports of 127.0.0.1, data below `directory`; use it as a context manager.

    A directory that holds data already, ours or its own, is kept; a new one is formatted first with `features`
    (`StorageTool format --feature`).  `static_voters`: the quorum is kraft.version 0, as before KIP-853.
    Starting takes 5 to 20 seconds and 400 MB.
    """

    def __init__(
        self,
        directory: Path,
        overrides: Mapping[str, str] | None = None,
        features: tuple[str, ...] = (),
        *,
        static_voters: bool = False,
    ) -> None:
        self.directory = directory
        self.port, self.controller_port = free_port(), free_port()
        self.features = features
        self.settings = {
            **SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            **self._quorum(static_voters),
            "log.dirs": str(directory / "data"),
            **(overrides or {}),
        }
        self._format_options = () if static_voters else ("--standalone",)
        self._process: subprocess.Popen[bytes] | None = None

    def _quorum(self, static_voters: bool) -> dict[str, str]:
        address = f"127.0.0.1:{self.controller_port}"
        if static_voters:
            return {"controller.quorum.voters": f"{SETTINGS['node.id']}@{address}"}
        return {"controller.quorum.bootstrap.servers": address}

    @property
    def data(self) -> Path:
        return Path(self.settings["log.dirs"])

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / "kafka.log"

    def log_text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.log_file.read_text(errors="replace")
        return ""

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def complaints(self) -> list[str]:
        """What it logged that is not in order."""
        return [line for line in self.log_text().splitlines() if COMPLAINT.search(line)]

    def start(self) -> Self:
        """Start and wait until the broker listens to clients."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        with self.log_file.open("ab") as log:
            command = _java("kafka.Kafka", str(properties), log_directory=self.directory)
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until(lambda: self._listens(self.port), "Apache Kafka is ready", self.log_tail)
        return self

    def _listens(self, port: int) -> bool:
        """Fails at once when it has ended."""
        assert self._process is not None, "it was not started"
        if self._process.poll() is not None:
            raise AssertionError(f"Apache Kafka ended with {self._process.returncode}:\n{self.log_tail()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    def _format(self, properties: Path) -> None:
        features = [word for feature in self.features for word in ("--feature", feature)]
        cluster = "d2hlcnJ5LXRlc3QtcGVlcg"
        command = ["format", *self._format_options, "-t", cluster, "-c", str(properties), *features]
        subprocess.run(_java("kafka.tools.StorageTool", *command), check=True, capture_output=True, timeout=PATIENCE_S)

    def stop(self) -> None:
        """SIGTERM: a controlled shutdown."""
        assert self._process is not None, "the peer was not started"
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None, "the peer was not started"
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _java(main: str, *arguments: str, log_directory: Path = Path(".")) -> list[str]:
    return [
        "java",
        "-Xms128m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dpeer.log.level=info",
        f"-Dkafka.logs.dir={log_directory}",
        f"-Dlog4j2.configurationFile={java_tools.ROOT / 'tests/java/log4j2.properties'}",
        "-cp",
        f"{java_tools.JARS}/*",
        main,
        *arguments,
    ]
