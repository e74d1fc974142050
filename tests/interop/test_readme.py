"""README.md as a newcomer goes through it: a fresh checkout with Python, make and the package registries.

Its commands beside the running demonstration are in test_demo.py, those with containers in tests/containers.
"""

import re
from collections.abc import Iterator

import pytest

from tests.interop.newcomer import INSTALL_S, Newcomer, Terminal
from tests.support import readme
from tests.support.broker_process import free_port
from tests.support.demo_process import free_demo_port

pytestmark = [pytest.mark.interop, pytest.mark.checkout, pytest.mark.timeout(1200)]

READY = "metrics  "
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """Who has installed everything with the first command."""
    with Newcomer(tmp_path_factory.mktemp("newcomer")) as newcomer:
        (first,) = (command for command in readme.commands("Run it") if command.startswith("make "))
        demo = newcomer.open(f'{first} OPTIONS="--port {free_demo_port()}"')
        demo.wait_for("Ready after", INSTALL_S)
        demo.interrupt()
        quiet = newcomer.open(f'{first} OPTIONS="--port {free_demo_port()} --no-load"')
        quiet.wait_for("Ready after")
        quiet.interrupt()
        assert "--no-load" in newcomer.run(".venv/bin/wherry demo --help")
        yield newcomer


def of_broker(command: str, number: int) -> str:
    """With its number for N."""
    return re.sub(r"(bucket|broker)-N\b", rf"\1-{number}", command)


def start_all(newcomer: Newcomer, exports: list[str], server: str) -> list[Terminal]:
    """A terminal for each broker, in which all of that is typed."""
    terminals = [newcomer.open("\n".join(of_broker(each, number) for each in (*exports, server))) for number in BROKERS]
    for terminal in terminals:
        terminal.wait_for(READY)
    return terminals


def stop_all(terminals: list[Terminal]) -> None:
    for terminal in reversed(terminals):  # the controller is in the first
        terminal.interrupt()


def logs_of(newcomer: Newcomer, topic: str) -> set[bytes]:
    """Each content that a replica's log has."""
    place = newcomer.checkout / "data/cluster"
    return {path.read_bytes() for path in place.glob(f"broker-?/{topic}-0/{0:020}.log")}


def is_held_by_all(text: str) -> bool:
    """Of what kcat says of a topic with one partition."""
    in_sync = re.search(r"isrs: (\S+)", text)
    return in_sync is not None and sorted(in_sync[1].split(",")) == [str(number) for number in BROKERS]


@pytest.mark.kcat
@pytest.mark.java
def test_three_brokers_by_hand_through_buckets_and_tiered(newcomer: Newcomer) -> None:
    *servers, produce, look = readme.commands("Three brokers")
    assert len(servers) == len(BROKERS)
    terminals = [newcomer.open(command) for command in servers]
    for terminal in terminals:
        terminal.wait_for(READY)
    newcomer.run(produce)
    newcomer.run_until(look, is_held_by_all)
    stop_all(terminals)
    (log,) = logs_of(newcomer, "greetings")
    assert b"hello" in log

    *settings, server, produce, list_buckets, verify = readme.commands("Through buckets")
    terminals = start_all(newcomer, settings, server)
    newcomer.run(produce)
    newcomer.run_until(list_buckets, lambda text: ".wal" in text)
    leader = re.search(r'topic "greetings".*?leader (\d)', newcomer.run(look), re.DOTALL)
    assert leader is not None
    verified = newcomer.run(of_broker(verify, int(leader[1])))
    assert re.search(r"batches in logs: [1-9]\d* equal.*; 0 problems", verified), verified
    newcomer.run_until(look, is_held_by_all)
    stop_all(terminals)
    (log,) = logs_of(newcomer, "greetings")
    assert b"hello again" in log

    *more, server, create, produce, find_copies, find_local, consume, count_reads = readme.commands("Tiered")
    terminals = start_all(newcomer, [*settings, *more], server)
    newcomer.run(create)
    newcomer.run(produce)
    newcomer.run_until(find_copies, lambda text: text.count(".log") >= 4)
    newcomer.run_until(find_local, lambda text: len(text.splitlines()) == len(BROKERS))
    assert newcomer.run(consume).strip() == "500000"
    counts = [float(line.split()[-1]) for line in newcomer.run(count_reads).splitlines()]
    assert sum(counts) > 0
    stop_all(terminals)


@pytest.mark.kcat
def test_one_broker(newcomer: Newcomer) -> None:
    """By make, from a file, and installed without make; ports and data are set by the environment."""
    by_make, by_hand, from_a_file, with_a_variable = readme.commands("One broker")
    port = free_port()
    variables = {
        "WHERRY_LISTENERS": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{free_port()}",
        "WHERRY_METRICS_HTTP_LISTENER": "127.0.0.1:0",
    }
    (newcomer.checkout / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlog.dirs=./data/from-a-file\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9190\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    annotated = ".venv/bin/wherry server config/broker.properties"
    assert annotated in (readme.ROOT / "README.md").read_text()
    for command in (by_make, from_a_file, annotated, with_a_variable, by_hand):
        if command is by_hand:
            newcomer.run("rm -rf .venv")  # it makes its own; last, because others use what make has installed
        broker = newcomer.open(command, **variables)
        broker.wait_for(READY, INSTALL_S)
        newcomer.run(f"echo hello | kcat -b 127.0.0.1:{port} -P -t greetings")
        broker.interrupt()
