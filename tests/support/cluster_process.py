"""A cluster of real broker processes for tests: N of ours on 127.0.0.1, killed, paused and started again by node id."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

import confluent_kafka
import confluent_kafka.admin

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, until

DEDICATED_CONTROLLER_ID = 100
METADATA_S = 20  # of one question: it is asked again


class NodeOfCluster(BrokerProcess):
    """One process of a cluster, whose settings name all of their addresses.

    `advertised_port` and `advertised_controller_port` are what others dial, where a relay stands in front of the node.
    """

    def __init__(
        self,
        directory: Path,
        node_id: int,
        roles: Sequence[str],
        settings: Mapping[str, str],
        controllers: str | None,
        advertised_port: int | None = None,
        advertised_controller_port: int | None = None,
    ) -> None:
        super().__init__(directory)
        self.node_id, self.roles = node_id, tuple(roles)
        self.advertised_port = advertised_port or self.port
        self.advertised_controller_port = advertised_controller_port or self.controller_port
        bound, advertised = [], []
        if "broker" in roles:
            bound.append(f"PLAINTEXT://127.0.0.1:{self.port}")
            advertised.append(f"PLAINTEXT://127.0.0.1:{self.advertised_port}")
        if "controller" in roles:
            bound.append(f"CONTROLLER://127.0.0.1:{self.controller_port}")
            advertised.append(f"CONTROLLER://127.0.0.1:{self.advertised_controller_port}")
        self.overrides |= {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(bound),
            "advertised.listeners": ",".join(advertised),
            "controller.quorum.bootstrap.servers": controllers or f"127.0.0.1:{self.advertised_controller_port}",
            "broker.rack": f"rack-{node_id}",
            **settings,
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.advertised_port}"


class ClusterNode(Protocol):
    """One process of a cluster, of ours or of Apache Kafka."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data(self) -> Path: ...
    @property
    def roles(self) -> Sequence[str]: ...
    def launch(self) -> None: ...
    def wait_until_ready(self) -> object: ...
    def is_running(self) -> bool: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def stop(self) -> int: ...
    def log_text(self) -> str: ...
    def log_tail(self, lines: int = 60) -> str: ...
    def __exit__(self, *exception: object) -> None: ...


class Cluster:
    """What can be done to the nodes of any cluster; use it as a context manager."""

    nodes: Mapping[int, ClusterNode]
    controller: ClusterNode | None
    brokers: Sequence[ClusterNode]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def node_ids(self) -> list[int]:
        """Of the brokers."""
        return [node_id for node_id, node in self.nodes.items() if "broker" in node.roles]

    def start(self) -> Self:
        """Launch all at once, and wait until each is ready."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def stop(self) -> None:
        """SIGTERM to one broker after the other, the controller's process last."""
        last = self.controller
        for node in sorted(self.nodes.values(), key=lambda node: node is last):
            if node.is_running():
                node.stop()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self.nodes[node_id].kill()

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self.nodes[node_id].pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self.nodes[node_id].resume()

    def launch(self, node_id: int) -> None:
        """Start a node that was stopped or killed, and do not wait."""
        self.nodes[node_id].launch()

    def restart(self, node_id: int) -> None:
        """Start a node again and wait until it is ready; a running one is stopped first, in order."""
        if self.nodes[node_id].is_running():
            self.graceful_stop(node_id)
        self.nodes[node_id].launch()
        self.nodes[node_id].wait_until_ready()

    def graceful_stop(self, node_id: int) -> int:
        """SIGTERM, and wait; returns the exit code."""
        return self.nodes[node_id].stop()

    def admin(self, **config: object) -> confluent_kafka.admin.AdminClient:
        return confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap, **config})

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 3, config: Mapping[str, str] | None = None
    ) -> None:
        """Created, and known with a leader to every broker."""
        new = confluent_kafka.admin.NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        admin = self.admin()  # kept: it takes what it was asked down with it
        admin.create_topics([new])[name].result(PATIENCE_S)
        for broker in self.brokers:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
            until(
                lambda asked=admin: _has_leaders(asked, name, partitions),  # type: ignore[misc]
                f"the broker at {broker.bootstrap} knows {name} with leaders",
                broker.log_tail,
            )

    def wait_for_full_isr(self, topic: str, patience_s: float = PATIENCE_S) -> None:
        """Until every replica of every partition is in sync, and every broker is there."""
        admin = self.admin()
        found: list[str | None] = [None]

        def is_whole() -> bool:
            found[:] = [what_is_missing(admin, topic, len(self.brokers))]
            return found == [None]

        until(is_whole, f"{topic} is in sync everywhere", lambda: found[0], patience_s=patience_s)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        for node in self.nodes.values():
            node.__exit__()


class ClusterProcess(Cluster):
    """`brokers` processes of ours, node ids from 1, each with its data, ports and rack; use it as a context manager.

    Their controller is in broker 1, or in a process of its own (`dedicated_controller`), or an external quorum whose
    servers `controllers` names as "host:port,host:port,host:port"; an external one must be up before `start`.
    `settings` hold for every process, `settings_by_node` for one.  Replication factors of internal topics are as
    large as the cluster allows, at most 3.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        settings_by_node: Mapping[int, Mapping[str, str]] | None = None,
        controllers: str | None = None,
        dedicated_controller: bool = False,
        advertised_ports: Mapping[int, int] | None = None,
        advertised_controller_port: int | None = None,
    ) -> None:
        assert controllers is None or not dedicated_controller, "an external quorum leaves no room for a controller"
        self.directory = directory
        self._common = {"offsets.topic.replication.factor": str(min(3, brokers)), **(settings or {})}
        self._by_node = settings_by_node or {}
        self._advertised = advertised_ports or {}
        self.controller: BrokerProcess | None = None
        self.nodes: dict[int, NodeOfCluster] = {}
        node_ids = range(1, brokers + 1)
        if controllers is None:
            home = DEDICATED_CONTROLLER_ID if dedicated_controller else 1
            roles = ["controller"] if dedicated_controller else ["broker", "controller"]
            first = self._node(home, roles, None, advertised_controller_port)
            self.controller = self.nodes[home] = first
            controllers = f"127.0.0.1:{first.advertised_controller_port}"
        for node_id in node_ids:
            if node_id not in self.nodes:
                self.nodes[node_id] = self._node(node_id, ["broker"], controllers)
        self.brokers: list[BrokerProcess] = [self.nodes[node_id] for node_id in node_ids]

    def _node(
        self, node_id: int, roles: Sequence[str], controllers: str | None, controller_port: int | None = None
    ) -> NodeOfCluster:
        settings = {**self._common, **self._by_node.get(node_id, {})}
        directory = self.directory / f"node-{node_id}"
        return NodeOfCluster(
            directory, node_id, roles, settings, controllers, self._advertised.get(node_id), controller_port
        )

    def broker(self, node_id: int) -> BrokerProcess:
        """The process of this node id; a dedicated controller has one as well."""
        return self.nodes[node_id]

    def settings_of(self, node_id: int) -> dict[str, str]:
        return dict(self.nodes[node_id].overrides)


def _has_leaders(admin: confluent_kafka.admin.AdminClient, topic: str, partitions: int) -> bool:
    # Asked for all topics: asking for one by name may create it.
    known = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
    if known is None or known.error is not None or len(known.partitions) != partitions:
        return False
    return all(partition.leader >= 0 for partition in known.partitions.values())


def what_is_missing(admin: confluent_kafka.admin.AdminClient, topic: str, brokers: int) -> str | None:
    """Why a topic is not as healthy as it can be; None when it is.  A fenced broker is not listed by Metadata."""
    try:
        answer = admin.list_topics(timeout=METADATA_S)
    except confluent_kafka.KafkaException as error:
        return f"no metadata: {error}"
    if len(answer.brokers) != brokers:
        return f"brokers {sorted(answer.brokers)} of {brokers}"
    known = answer.topics.get(topic)
    if known is None or not known.partitions:
        return f"{topic} is not known"
    for number, partition in sorted(known.partitions.items()):
        if partition.leader < 0:
            return f"{topic}-{number} has no leader"
        if set(partition.isrs) != set(partition.replicas):
            return f"{topic}-{number} has the in-sync replicas {partition.isrs} of {partition.replicas}"
    return None
