"""A SocketServer with handlers of the test's own, over loopback or over a transport that is a list."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from broker.common.disk import DiskExecutor
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.protocol.requests import encode_request
from broker.protocol.response_schema import RequestSchema
from broker.server.api_registry import ApiHandler, ApiRegistry
from broker.server.api_version_manager import ApiVersionManager
from broker.server.connection import ServerConnection
from broker.server.dispatcher import Dispatcher
from broker.server.handlers.api_versions import api_versions
from broker.server.socket_server import ListenerEndpoint, SocketServer

PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9190",
    "log.dirs": "unused",
}


def handler_of(function: Callable[..., Any]) -> ApiHandler:
    handler: ApiHandler = function.__api_handler__  # type: ignore[attr-defined]
    return handler


def dispatcher_of(
    *functions: Callable[..., Any], services: Iterable[object] = (), disk: DiskExecutor | None = None
) -> Dispatcher:
    """ApiVersions and the given handlers."""
    registry = ApiRegistry(handler_of(each) for each in (api_versions, *functions))
    return Dispatcher(registry, [ApiVersionManager(registry), *services], RequestMetrics(MetricsRegistry()), disk)


def server_of(
    *functions: Callable[..., Any],
    services: Iterable[object] = (),
    overrides: dict[str, str] | None = None,
    disk: DiskExecutor | None = None,
) -> SocketServer:
    config = BrokerConfig.from_properties({**PROPERTIES, **(overrides or {})})
    return SocketServer(ConfigHolder(config), dispatcher_of(*functions, services=services, disk=disk))


@asynccontextmanager
async def listening(server: SocketServer) -> AsyncIterator[int]:
    """Run the server on a free port of loopback."""
    async with server.dispatcher.running(), server.running():
        port = await server.bind("PLAINTEXT", "127.0.0.1", 0)
        await server.start_accepting()
        yield port


class RecordingTransport:
    """A transport without a socket: what is written is kept, and reading is a flag."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.writes = 0
        self.write_buffer_size = 0
        self.is_reading = True
        self.is_closed = False
        self.protocol: ServerConnection | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_buffer_high = high

    def get_write_buffer_size(self) -> int:
        return self.write_buffer_size

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("127.0.0.1", 40000), "sockname": ("127.0.0.1", 9092)}.get(name)

    def writelines(self, buffers: Iterable[Any]) -> None:
        assert not self.is_closed
        self.writes += 1
        for buffer in buffers:
            self.written += buffer

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def responses(self) -> list[bytes]:
        """The whole responses written so far, without their lengths."""
        found, position = [], 0
        while position < len(self.written):
            size = int.from_bytes(self.written[position : position + 4], "big")
            found.append(bytes(self.written[position + 4 : position + 4 + size]))
            position += 4 + size
        return found

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(each[:4], "big", signed=True) for each in self.responses()]


def connected(server: SocketServer) -> tuple[ServerConnection, RecordingTransport]:
    """A connection on a recording transport; the server must be running."""
    endpoint = ListenerEndpoint("PLAINTEXT", "PLAINTEXT", server.metrics.frames.labels("PLAINTEXT"))
    connection, transport = ServerConnection(server, endpoint), RecordingTransport()
    transport.protocol = connection
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def receive(connection: ServerConnection, data: bytes) -> int:
    """Deliver one read, as an event loop would: as much as the buffer takes; returns how much that was."""
    buffer = connection.get_buffer(-1)
    size = min(len(buffer), len(data))
    buffer[:size] = data[:size]
    connection.buffer_updated(size)
    return size


async def receive_all(connection: ServerConnection, transport: RecordingTransport, chunks: Iterable[bytes]) -> None:
    """Deliver chunks one after the other, waiting while the connection does not read."""
    for chunk in chunks:
        while chunk and not transport.is_closed:
            if transport.is_reading:
                chunk = chunk[receive(connection, chunk) :]
            else:
                await asyncio.sleep(0)
    await turns()


async def turns(count: int = 5) -> None:
    """Let the loop go round, for what was put off to a later turn."""
    for _ in range(count):
        await asyncio.sleep(0)


def request(api_key: int, version: int, correlation_id: int, **fields: Any) -> bytes:
    """A whole request, with its length."""
    schema = RequestSchema.of(api_key, version)  # type: ignore[arg-type]
    name = next(each for each in vars(schema) if each.endswith("Request"))
    return encode_request(api_key, version, correlation_id, "test", getattr(schema, name)(**fields))
