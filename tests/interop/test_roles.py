"""Controllers and brokers as processes of their own: who joins whom, who waits, and who is refused."""

import signal
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.node_process import NodeProcess
from tests.support.broker_process import free_port
from tests.support.cluster_process import ClusterProcess, NodeOfCluster
from tests.support.log_events import events_in
from tests.support.patience import PATIENCE_MS, PATIENCE_S, until
from tests.support.quorum_client import QuorumClient

pytestmark = pytest.mark.interop


def controller(directory: Path) -> NodeProcess:
    return NodeProcess.server(
        directory, {"process.roles": "controller", "node.id": "9", "listeners": "CONTROLLER://127.0.0.1:0"}
    )


def broker(directory: Path, controller_port: int, **more: str) -> NodeProcess:
    return NodeProcess.server(
        directory,
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            **{name.replace("_", "."): value for name, value in more.items()},
        },
    )


def event(node: NodeProcess, name: str) -> dict[str, object]:
    """The first line of this name in a node's log, once it is there."""

    def logged() -> dict[str, object] | None:
        return next((each for each in events_in(node.stderr) if each["event"] == name), None)

    line = until(logged, f"an event {name}", lambda: node.stderr)
    assert line is not None
    return line


def test_a_broker_joins_a_controller_and_ends_without_it(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        leader.ready()
        assert "clients" not in leader.stdout
        assert leader.http_status("/readyz") == 200
        port = leader.port("controller")
        with broker(tmp_path / "broker", port) as node:
            node.ready()
            meta = {
                name: (tmp_path / name / "data" / "meta.properties").read_text().split("cluster.id=")[1].split()[0]
                for name in ("controller", "broker")
            }
            assert meta["broker"] == meta["controller"]
            producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
            assert producer.list_topics(timeout=PATIENCE_S).cluster_id == meta["broker"]
            producer.produce("t", b"hello")
            assert producer.flush(PATIENCE_S) == 0
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["t"])
            message = until(lambda: consumer.poll(0.2), "a record", lambda: node.stderr, every_s=0)
            assert message.value() == b"hello"
            consumer.commit(asynchronous=False)
            consumer.close()

            # Without its controller a stop waits for the leaderships to move, and a second signal ends the wait.
            leader.end(signal.SIGKILL)
            node.process.send_signal(signal.SIGTERM)
            until(lambda: '"pending_controlled_shutdown"' in node.stderr, "the stop waits", lambda: node.stderr)
            assert node.end(signal.SIGINT) == 128 + signal.SIGINT
            assert "Traceback" not in node.stderr


def test_a_broker_of_another_cluster_is_refused_with_both_ids(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        port = leader.ready().port("controller")
        ours = "MkU3OEVBNTcwNTJENDM2Qk"
        directory = tmp_path / "broker" / "data"
        directory.mkdir(parents=True)
        (directory / "meta.properties").write_text(
            f"version=1\ncluster.id={ours}\nnode.id=1\ndirectory.id=LTNojMnBShS6ELDEP2qStQ\n"
        )
        theirs = event(leader, "node_starting")["cluster_id"]
        with broker(tmp_path / "broker", port) as node:
            assert node.wait() == 2
            assert node.stderr.splitlines()[-1] == (
                f"wherry: {directory}/meta.properties belongs to cluster.id={ours}, but the cluster is "
                f"cluster.id={theirs}: this data is of another cluster."
            )
        assert leader.end() == 0


def controller_at(port: int, directory: Path) -> NodeOfCluster:
    """A controller that is not started yet, and where it will be."""
    address = f"CONTROLLER://127.0.0.1:{port}"
    return NodeOfCluster(directory, 9, ["controller"], {"listeners": address, "advertised.listeners": address}, None)


def test_a_broker_with_the_id_of_its_controller_ends(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        port = leader.ready().port("controller")
        with broker(tmp_path / "broker", port, node_id="9") as node:
            assert node.wait() == 1
            assert node.stderr.splitlines()[-1] == (
                "wherry: node.id=9 is that of a controller: a broker in a process of its own needs another one"
            )


@pytest.mark.parametrize("is_formatted", [False, True])
def test_a_broker_waits_for_its_controller(tmp_path: Path, is_formatted: bool) -> None:
    port = free_port()
    leader = controller_at(port, tmp_path / "controller")
    if is_formatted:  # it was here before: the cluster id is known, and the registration waits
        for directory, node_id in (("controller", 9), ("broker", 1)):
            formatted(tmp_path / directory, node_id)
    with broker(tmp_path / "broker", port) as node:
        event(node, "controller_not_reached")
        assert node.process.poll() is None
        with leader:
            node.ready()
            assert node.http_status("/readyz") == 200
            assert node.end() == 0


def test_a_broker_that_waited_for_a_controller_of_another_cluster_ends(tmp_path: Path) -> None:
    port = free_port()
    formatted(tmp_path / "broker", 1)
    with broker(tmp_path / "broker", port) as node:
        event(node, "controller_not_reached")
        with controller_at(port, tmp_path / "controller"):
            assert node.wait() == 1
            assert node.stderr.splitlines()[-1] in (
                f"wherry: the controller at 127.0.0.1:{port} belongs to another cluster than MkU3OEVBNTcwNTJENDM2Qk, "
                "which meta.properties of this broker names",
                "wherry: the controller belongs to another cluster than MkU3OEVBNTcwNTJENDM2Qk, which meta.properties "
                "names",
            )


def formatted(directory: Path, node_id: int, roles: str = "broker", cluster_id: str = "MkU3OEVBNTcwNTJENDM2Qk") -> str:
    """`wherry format` for the data directory of a node; returns what it says."""
    directory.mkdir(exist_ok=True)
    listener = "CONTROLLER" if roles == "controller" else "PLAINTEXT"
    listeners = [f"{listener}://127.0.0.1:0"] if roles != "broker,controller" else ["PLAINTEXT://:0", "CONTROLLER://:0"]
    properties = {
        "process.roles": roles,
        "node.id": node_id,
        "listeners": ",".join(listeners),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "log.dirs": directory / "data",
    }
    file = directory / "node.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [sys.executable, "-m", "broker", "format", "--cluster-id", cluster_id, str(file)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout


def test_each_role_can_be_formatted_beforehand(tmp_path: Path) -> None:
    ours = "MkU3OEVBNTcwNTJENDM2Qk"
    for directory, node_id, roles in (
        ("controller", 9, "controller"),
        ("broker", 1, "broker"),
        ("both", 5, "broker,controller"),
    ):
        said = formatted(tmp_path / directory, node_id, roles)
        assert f"cluster.id={ours} node.id={node_id} directory.id=" in said
    with (
        controller(tmp_path / "controller") as leader,
        broker(tmp_path / "broker", leader.ready().port("controller")) as node,
    ):
        node.ready()
        assert AdminClient({"bootstrap.servers": node.bootstrap}).list_topics(timeout=PATIENCE_S).cluster_id == ours
    with NodeProcess.server(tmp_path / "both", {"node.id": "5"}) as both:
        both.ready()
        assert AdminClient({"bootstrap.servers": both.bootstrap}).list_topics(timeout=PATIENCE_S).cluster_id == ours


@pytest.mark.parametrize("setting", ["controller.quorum.voters", "controller.quorum.bootstrap.servers"])
def test_brokers_live_through_a_restart_of_their_controller(tmp_path: Path, setting: str) -> None:
    # A broker that has not heard of its controller for a session refuses to lead.
    settings = {"broker.session.timeout.ms": str(PATIENCE_MS)}
    processes = ClusterProcess(tmp_path, settings=settings, dedicated_controller=True)
    leader = processes.controller
    assert leader is not None
    if setting == "controller.quorum.voters":
        for node in processes.nodes.values():
            node.overrides["controller.quorum.bootstrap.servers"] = ""
            node.overrides["controller.quorum.voters"] = f"100@127.0.0.1:{leader.controller_port}"
    with processes as cluster:
        cluster_id = str(cluster.admin().list_topics(timeout=PATIENCE_S).cluster_id)
        metadata = QuorumClient([leader.controller_port], cluster_id)
        before = {each.id: each.epoch for each in metadata.image().brokers.values()}
        assert sorted(before) == [1, 2, 3]
        cluster.create_topic("kept", 2, 3)
        leader.kill()
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        errors: list[object] = []
        for number in range(20):  # the brokers serve on without it
            producer.produce("kept", str(number), on_delivery=lambda error, _message: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
        assert errors == [None] * 20
        leader.start()
        fresh = QuorumClient([leader.controller_port], cluster_id)
        after = fresh.image()
        assert {each.id: each.epoch for each in after.brokers.values()} == before
        assert not any(each.fenced for each in after.brokers.values())
        assert fresh.leader_epoch > metadata.leader_epoch
        cluster.create_topic("new", 2, 3)
        assert all(node.is_ready() for node in cluster.brokers)


def test_a_second_process_of_an_id_gives_up_and_disturbs_nobody(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        port = leader.ready().port("controller")
        with broker(tmp_path / "one", port) as one:
            registered = event(one.ready(), "broker_registered")["broker_epoch"]
            with broker(tmp_path / "other", port, initial_broker_registration_timeout_ms="5000") as twin:
                assert twin.wait() == 1
                assert twin.stderr.splitlines()[-1] == (
                    "wherry: broker 1 could not register within 5000 ms: another process with node.id=1 is alive"
                )
            cluster_id = str(
                AdminClient({"bootstrap.servers": one.bootstrap}).list_topics(timeout=PATIENCE_S).cluster_id
            )
            image = QuorumClient([port], cluster_id).image()
            assert (image.brokers[1].epoch, image.brokers[1].fenced) == (registered, False)
            assert one.http_status("/readyz") == 200
