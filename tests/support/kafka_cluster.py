"""A cluster of Apache Kafka's processes with the surface of our own: it judges checkers, and benchmarks beside ours."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support import java_tools
from tests.support.cluster_process import DEDICATED_CONTROLLER_ID, Cluster
from tests.support.kafka_peer import KafkaPeer
from tests.support.patience import until

SMALL_JVM: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaNode(KafkaPeer):
    """One JVM of a cluster."""

    def __init__(
        self, directory: Path, node_id: int, roles: Sequence[str], settings: Mapping[str, str], jvm: Sequence[str]
    ) -> None:
        super().__init__(directory, static_voters=True)
        self.node_id, self.roles, self._jvm = node_id, tuple(roles), tuple(jvm)
        self.advertised_port, self.advertised_controller_port = self.port, self.controller_port
        self._more = dict(settings)

    def complete(self, voters: str) -> None:
        """All addresses are known."""
        bound, advertised = [], []
        if "broker" in self.roles:
            bound.append(f"PLAINTEXT://127.0.0.1:{self.port}")
            advertised.append(f"PLAINTEXT://127.0.0.1:{self.advertised_port}")
        if "controller" in self.roles:
            bound.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
            advertised.append(f"CONTROLLER://127.0.0.1:{self.advertised_controller_port}")
        self.settings |= {
            "process.roles": ",".join(self.roles),
            "node.id": str(self.node_id),
            "listeners": ",".join(bound),
            "advertised.listeners": ",".join(advertised),
            "controller.quorum.voters": voters,
            "broker.rack": f"rack-{self.node_id}",
            **self._more,
        }
        if "broker" not in self.roles:
            self.settings.pop("inter.broker.listener.name")

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node was not started"
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.advertised_port}"

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        options = [
            f"-Dkafka.logs.dir={self.directory}",
            f"-Dlog4j2.configurationFile={java_tools.ROOT / 'tests/java/log4j2.properties'}",
            *("-cp", f"{java_tools.JARS}/*"),
        ]
        with self.log_file.open("ab") as log:
            command = ["java", *self._jvm, *options, "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_until_ready(self) -> None:
        """The listener of a broker opens when the controller has let it in."""
        port = self.port if "broker" in self.roles else self.controller_port
        until(lambda: self._listens(port), "Apache Kafka is ready", self.log_tail)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:  # type: ignore[override]
        super().stop()
        assert self._process is not None
        return 0 if self._process.returncode == 128 + signal.SIGTERM else self._process.returncode


class KafkaCluster(Cluster):
    """As `ClusterProcess`, with Apache Kafka's brokers; the quorum is one static voter.  Needs `make java-tools`."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        dedicated_controller: bool = False,
        advertised_ports: Mapping[int, int] | None = None,
        advertised_controller_port: int | None = None,
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        factor = str(min(3, brokers))
        common = {
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            **(settings or {}),
        }
        self.nodes: dict[int, KafkaNode] = {}
        home = DEDICATED_CONTROLLER_ID if dedicated_controller else 1
        for node_id in dict.fromkeys((home, *range(1, brokers + 1))):
            roles = [role for role, has in (("broker", node_id <= brokers), ("controller", node_id == home)) if has]
            node = KafkaNode(directory / f"node-{node_id}", node_id, roles, common, jvm)
            node.advertised_port = (advertised_ports or {}).get(node_id, node.port)
            self.nodes[node_id] = node
        self.controller = self.nodes[home]
        self.controller.advertised_controller_port = advertised_controller_port or self.controller.controller_port
        for node in self.nodes.values():
            node.complete(f"{home}@127.0.0.1:{self.controller.advertised_controller_port}")
        self.brokers = [self.nodes[node_id] for node_id in range(1, brokers + 1)]
