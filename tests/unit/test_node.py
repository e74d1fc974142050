import asyncio
import signal
import socket
from pathlib import Path

import pytest

from broker.config.setting import ConfigError
from broker.node import (
    Ending,
    Node,
    NodeError,
    announcement,
    ask_for_cluster_id,
    on_loop_error,
    start_unless_ended,
    wait_for_cluster_id,
)
from broker.server.broker_lifecycle_manager import BrokerReplacedError, BrokerStartError
from tests.support.patience import eventually
from tests.unit.node_support import node_config, running_node

CLEAN_MARKER = ".kafka_cleanshutdown"


async def test_both_halves_start_and_the_announcement_has_the_real_ports(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as node:
        assert node.is_ready
        assert node.broker is not None
        assert node.controller is not None
        assert node.http is not None
        client, controller = node.broker.ports["PLAINTEXT"], node.controller.ports["CONTROLLER"]
        assert announcement(node, 1.234)[1:] == [
            f"  clients     127.0.0.1:{client} (PLAINTEXT)",
            f"  controller  127.0.0.1:{controller}",
            f"  data        {tmp_path}",
            f"  metrics     http://127.0.0.1:{node.http.port}/metrics",
            f"  try         kcat -b 127.0.0.1:{client} -L",
        ]
        assert announcement(node, 1.234)[0].endswith("is ready after 1.23 s")
        status = await node.status()
        assert (status["node_id"], status["not_ready"], status["cluster"]["controller_id"]) == (1, None, 1)
        assert [each["state"] for each in status["cluster"]["brokers"]] == ["serving"]
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert not node.is_ready
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_a_controller_and_a_broker_that_joins_it(tmp_path: Path) -> None:
    controller_config = node_config(
        tmp_path / "controller",
        process_roles="controller",
        node_id="9",
        listeners="CONTROLLER://127.0.0.1:0",
    )
    async with running_node(controller_config) as controller:
        assert controller.controller is not None
        assert controller.broker is None
        assert controller.is_ready
        port = controller.controller.ports["CONTROLLER"]
        assert [line.split()[0] for line in announcement(controller, 1)[1:]] == ["controller", "data", "metrics"]
        config = node_config(
            tmp_path / "broker",
            process_roles="broker",
            node_id="1",
            listeners="PLAINTEXT://127.0.0.1:0",
            controller_quorum_bootstrap_servers=f"127.0.0.1:{port}",
        )
        cluster_id = await ask_for_cluster_id(config, controller.network)
        async with running_node(config) as broker:
            assert broker.is_ready
            assert broker.broker is not None
            assert broker.broker.identity.cluster_id == cluster_id
            assert broker.controller is None
            assert (await broker.status())["cluster"]["controller_id"] == 9
            seen = await controller.status()
            assert (seen["roles"], seen["cluster_id"]) == (["controller"], cluster_id)
            assert (seen["cluster"]["controller_id"], len(seen["cluster"]["brokers"])) == (9, 1)
        meta = (tmp_path / "broker" / "meta.properties").read_text()
        assert f"cluster.id={cluster_id}" in meta
        (tmp_path / "broker" / "meta.properties").write_text(meta.replace(str(cluster_id), "MkU3OEVBNTcwNTJENDM2Qk"))
        with pytest.raises(ConfigError, match=f"MkU3OEVBNTcwNTJENDM2Qk.*{cluster_id}"):
            await Node(config).start()


async def test_without_a_controller_an_empty_directory_stays_without_identity(tmp_path: Path) -> None:
    config = node_config(
        tmp_path,
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:0",
        initial_broker_registration_timeout_ms="200",
    )
    network = Node(config).network
    assert await ask_for_cluster_id(config, network) is None
    with pytest.raises(BrokerStartError, match=r"no controller told the cluster id.*is one of 127.*wherry format"):
        await wait_for_cluster_id(config, network)


async def test_another_node_id_is_refused_with_both_named(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)):
        pass
    with pytest.raises(ConfigError, match=r"node\.id=1, but node\.id=7 is configured"):
        await Node(node_config(tmp_path, node_id="7")).start()


async def test_a_second_node_on_one_directory_is_refused(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)):
        with pytest.raises(NodeError, match=rf"{tmp_path}/\.lock is locked: another broker runs on this directory"):
            await Node(node_config(tmp_path)).start()


@pytest.mark.parametrize("setting", ["listeners", "metrics_http_listener"])
async def test_a_port_that_is_taken_is_named_and_all_is_released(tmp_path: Path, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        value = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
            "metrics_http_listener": f"127.0.0.1:{port}",
        }[setting]
        with pytest.raises(NodeError, match=f"127.0.0.1:{port}: .*in use"):
            await Node(node_config(tmp_path, **{setting: value})).start()
    async with running_node(node_config(tmp_path)) as node:
        assert node.is_ready


@pytest.mark.parametrize(
    ("listener", "enable", "expected"),
    [
        ("127.0.0.1:0", "false", True),
        ("localhost:0", "false", True),
        ("0.0.0.0:0", "false", False),
        (":0", "false", False),
        ("0.0.0.0:0", "true", True),
    ],
)
def test_faults_can_be_set_on_loopback_or_where_it_is_allowed(
    tmp_path: Path, listener: str, enable: str, expected: bool
) -> None:
    settings = {"metrics_http_listener": listener, "wherry_fault_switch_enable": enable}
    node = Node(node_config(tmp_path, **settings))
    assert (node.faults is not None) is expected


# How it ends


async def test_a_start_is_given_up_when_the_node_is_told_to_end(tmp_path: Path) -> None:
    ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    node = Node(node_config(tmp_path))

    async def end_in_the_middle() -> None:
        await eventually(lambda: node.controller, "its controller starts", every_s=0)
        ended.set_result(Ending(0))

    ending = asyncio.create_task(end_in_the_middle())
    assert not await start_unless_ended(node, ended)
    await ending
    await asyncio.sleep(0)  # nothing of the cancellation is left over for this task
    assert not node.is_ready
    async with running_node(node_config(tmp_path)) as again:
        assert again.is_ready


async def test_a_start_that_nobody_stops_is_completed(tmp_path: Path) -> None:
    ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    node = Node(node_config(tmp_path))
    assert await start_unless_ended(node, ended)
    assert node.is_ready
    ended.set_result(Ending(0))
    await asyncio.sleep(0)
    await node.stop()


async def test_what_the_cluster_does_ends_the_node_in_order_and_what_nobody_expected_at_once() -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Ending] = loop.create_future()
    halted: list[int] = []
    on_loop_error({"message": "lost", "exception": OSError("late"), "future": ended}, ended, halted.append)
    on_loop_error({"message": "Task was destroyed but it is pending!", "task": object()}, ended, halted.append)
    assert (ended.done(), halted) == (False, [])
    on_loop_error({"message": "x", "exception": BrokerReplacedError("replaced")}, ended, halted.append)
    on_loop_error({"message": "x", "exception": BrokerStartError("again")}, ended, halted.append)
    assert (ended.result(), halted) == (Ending(1, "replaced"), [])
    on_loop_error({"message": "x", "exception": AssertionError("broken")}, ended, halted.append)
    assert halted == [1]


def test_a_signal_ends_the_process_of_a_node_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import broker.node

    lines: list[str] = []

    def announce(line: str) -> None:
        lines.append(line)
        if "try" in line:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(broker.node, "tune_process", lambda: None)  # the settings of this process stay as they are
    monkeypatch.setattr(broker.node, "gc_freeze", lambda: None)
    assert broker.node.run(node_config(tmp_path), announce=announce) == 0
    assert len(lines) == 6
    assert (tmp_path / CLEAN_MARKER).exists()
