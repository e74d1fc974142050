"""The relays: pairs are told apart by the client id, cut in one direction or both, and mended."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.cluster.faults import both_ways, cuts_around
from tests.support.broker_process import free_port
from tests.support.patience import PATIENCE_S
from tests.support.relay import CLIENT, CONTROLLER, Relays, source_of

SILENCE_S = 0.3


def frame(client_id: str | None, body: bytes = b"") -> bytes:
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id.encode()
    content = bytes(8) + name + body
    return len(content).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    ("client_id", "source"),
    [
        ("broker-2-fetcher-0", "2"),
        ("broker-3", "3"),
        ("raft-client-1", "1"),
        ("2", "2"),
        ("chaos-librdkafka-1", CLIENT),
        (None, CLIENT),
    ],
)
def test_a_connection_is_known_by_its_client_id(client_id: str | None, source: str) -> None:
    assert source_of(frame(client_id)) == source


def test_too_little_to_tell_is_waited_for() -> None:
    whole = frame("broker-2")
    assert {source_of(whole[:size]) for size in range(len(whole))} == {None}


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def connect(port: int, client_id: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    connection.sendall(frame(client_id))
    return connection


def receive(connection: socket.socket, size: int, timeout_s: float = PATIENCE_S) -> bytes:
    connection.settimeout(timeout_s)
    data = b""
    with contextlib.suppress(TimeoutError):
        while len(data) < size and (piece := connection.recv(size - len(data))):
            data += piece
    return data


@pytest.mark.parametrize("cut", [{("2", "1")}, {("1", "2")}, both_ways([("1", "2")])])
def test_a_cut_pair_stands_still_and_the_others_go_on(echo_port: int, cut: set[tuple[str, str]]) -> None:
    port = free_port()
    with Relays() as relays:
        relays.listen("1", port, echo_port)
        with connect(port, "broker-2") as two, connect(port, "broker-3") as three:
            assert receive(two, len(frame("broker-2"))) == frame("broker-2")
            assert receive(three, len(frame("broker-3"))) == frame("broker-3")
            assert relays.seen == {("2", "1"), ("3", "1")}
            relays.cut(cut)
            two.sendall(b"held")
            three.sendall(b"goes")
            assert receive(three, 4) == b"goes"
            assert receive(two, 4, SILENCE_S) == b""
            with connect(port, "broker-2-fetcher-0") as another:  # accepted, and silent
                assert receive(another, 4, SILENCE_S) == b""
                relays.heal()
                assert receive(two, 4) == b"held"
                assert receive(another, 18 + 14) == frame("broker-2-fetcher-0")


def test_reset_connections_are_lost_and_others_are_not(echo_port: int) -> None:
    port = free_port()
    with Relays() as relays:
        relays.listen("1", port, echo_port)
        with connect(port, "broker-2") as two, connect(port, "app") as client:
            size = len(frame("broker-2"))
            assert len(receive(two, size)) == size
            receive(client, len(frame("app")))
            relays.cut({("2", "1")})
            relays.reset([("2", "1")])
            with contextlib.suppress(ConnectionError):
                assert receive(two, 1) == b""
            client.sendall(b"x")
            assert receive(client, 1) == b"x"


def test_the_broker_that_holds_the_controller_takes_it_along() -> None:
    cuts = cuts_around(1, [2, 3], holds_controller=True)
    assert cuts["all"] == both_ways([("1", CLIENT), ("1", "2"), ("1", "3"), (CONTROLLER, "2"), (CONTROLLER, "3")])
    cuts = cuts_around(2, [1, 3], holds_controller=False)
    assert cuts["all"] == both_ways([("2", CLIENT), ("2", "1"), ("2", "3"), ("2", CONTROLLER)])
    assert cuts["what it sends to all"] == {("2", CLIENT), ("2", "1"), ("2", "3"), ("2", CONTROLLER)}
    assert cuts["what the controller hears"] == {("2", CONTROLLER)}
