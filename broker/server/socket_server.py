"""All connections of one kind of listener (Kafka's SocketServer): who may connect, what they share, who is idle."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from broker.common.byte_budget import ByteBudget
from broker.common.read_buffers import ReadBuffers
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metrics.registry import Counter
from broker.metrics.request_metrics import IDLE, SHUTDOWN, STALLED
from broker.network.byte_stream import Network
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.listener import Listener
from broker.server.connection import ServerConnection
from broker.server.dispatcher import Dispatcher
from broker.server.request_context import RequestContext
from broker.server.shared_receive_buffer import SharedReceiveBuffer

UNSENT_RESPONSE_BYTES_MAX: Final = 256 << 20  # as much as requests have: answers of five readers at fetch.max.bytes
STALLED_SECONDS_MAX: Final = 30.0  # request.timeout.ms of the clients: whoever takes longer has given the request up
STALLED_SWEEP_SECONDS: Final = STALLED_SECONDS_MAX / 4  # in which an eighth of what a request holds has to arrive
IDLE_SWEEP_SECONDS_MAX: Final = STALLED_SECONDS_MAX / 4
IDLE_SWEEPS_PER_LIMIT: Final = 4  # an idle connection is closed at most a quarter of the limit late


@dataclass(frozen=True, slots=True)
class ListenerEndpoint:
    """What a connection needs to know of the listener it came through."""

    listener_name: str
    security_protocol: str
    frames: Counter


class SocketServer:
    """Connections of the broker's listeners, or of the controller's.

    `answer_budget` counts the answers that wait for clients to take them; who reads for answers looks at what is left.

    Life: construct, `async with running()`, `bind` per listener, `start_accepting`, `stop_accepting`, leave.  Leaving
    closes every connection.
    """

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        dispatcher: Dispatcher,
        network: Network | None = None,
        answer_budget: ByteBudget | None = None,
    ) -> None:
        self._config = config
        self._network = network
        self.dispatcher = dispatcher
        self.metrics = dispatcher.metrics
        self.stopwatch = dispatcher.metrics.stopwatch
        self.byte_budget = ByteBudget(config.current.queued_max_request_bytes)
        self.metrics.in_flight_bytes.append(lambda: self.byte_budget.used_bytes)
        self.answer_budget = answer_budget or ByteBudget(UNSENT_RESPONSE_BYTES_MAX)
        self.metrics.unsent_bytes.append(lambda: self.answer_budget.used_bytes)
        self.receive_buffer = SharedReceiveBuffer()
        self.request_buffers = ReadBuffers()  # for requests too large for the shared one
        self.quotas = ConnectionQuotas()
        self.now: Callable[[], float] = lambda: 0.0
        self.request_bytes_max = config.current.socket_request_max_bytes
        self.idle_closed_count = 0
        self._connections: dict[ServerConnection, None] = {}
        self.is_accepting = False
        self._listeners: list[Listener] = []
        self._tasks = BackgroundTasks("socket-server")
        self._woken: dict[ServerConnection, None] = {}
        self._connection_count = 0
        self._throttled: dict[ServerConnection, asyncio.TimerHandle] = {}
        self.metrics.throttled_connections.append(lambda: len(self._throttled))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["SocketServer"]:
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self._tasks.start("idle-connections", self._close_idle_connections())
        self._tasks.start("stalled-connections", self._close_stalled_connections())
        try:
            yield self
        finally:
            await self.close()

    async def bind(self, listener_name: str, host: str, port: int, security_protocol: str = "PLAINTEXT") -> int:
        """Take the address of a listener; returns the port, which the system chooses for port 0.

        Clients are refused until `start_accepting`.  OSError when the address is taken.
        """
        endpoint = ListenerEndpoint(listener_name, security_protocol, self.metrics.frames.labels(listener_name))
        config = self._config.current
        listener = Listener(
            listener_name,
            lambda: ServerConnection(self, endpoint),
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            network=self._network,
        )
        bound_port = await listener.bind(host, port)
        self._listeners.append(listener)
        return bound_port

    async def start_accepting(self) -> None:
        for listener in self._listeners:
            await listener.start_accepting()
        self.is_accepting = True

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections live on."""
        self.is_accepting = False
        for listener in self._listeners:
            listener.stop_accepting()

    async def close(self) -> None:
        self.stop_accepting()
        await self._tasks.cancel_all()
        for connection in list(self._connections):
            connection.close(SHUTDOWN)
        await asyncio.sleep(0)  # the transports say goodbye in the next turn
        for connection in list(self._connections):
            connection.abort(SHUTDOWN)
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()

    # Connections call these.

    def admit(self, connection: ServerConnection) -> str | None:
        """Take in a new connection, or say why not."""
        peer, local = connection.addresses()
        host, port = peer
        endpoint = connection.endpoint
        self._connection_count += 1
        connection.context = RequestContext(
            listener_name=endpoint.listener_name,
            security_protocol=endpoint.security_protocol,
            client_host=host,
            client_port=port,
            local_port=local[1],
            connection_id=f"{local[0]}:{local[1]}-{host}:{port}-{self._connection_count}",
        )
        refusal = self.quotas.refusal(host, self._config.current)
        if refusal is not None:
            self.metrics.connections_refused.labels(endpoint.listener_name, refusal).increment()
            return refusal
        connection.set_socket_options()
        self.quotas.add(host)
        self._connections[connection] = None
        self.metrics.connections_opened.labels(endpoint.listener_name).increment()
        self._count(endpoint.listener_name, 1)
        return None

    def forget(self, connection: ServerConnection) -> None:
        """The connection is gone; one that was refused was never here."""
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._woken.pop(connection, None)
        timer = self._throttled.pop(connection, None)
        if timer is not None:
            timer.cancel()
        self.quotas.remove(connection.context.client_host)
        self._count(connection.endpoint.listener_name, -1)

    def run_soon(self, connection: ServerConnection) -> None:
        """Let the connection go on in the next turn: never inside another connection's request."""
        if not self._woken:
            self._loop.call_soon(self._run_woken)
        self._woken[connection] = None

    def _run_woken(self) -> None:
        woken, self._woken = self._woken, {}
        for connection in woken:
            connection.go_on()

    def throttle(self, connection: ServerConnection, delay_ms: int) -> None:
        """Let the connection go on after so long; of several delays the one that ends last counts."""
        ends_at = self.now() + delay_ms / 1000
        timer = self._throttled.get(connection)
        if timer is not None:
            if timer.when() >= ends_at:
                return
            timer.cancel()
        self._throttled[connection] = self._loop.call_at(ends_at, self._end_throttle, connection)

    def _end_throttle(self, connection: ServerConnection) -> None:
        del self._throttled[connection]
        connection.end_throttle()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _count(self, listener_name: str, by: int) -> None:
        counts = self.metrics.connections
        counts[listener_name] = counts.get(listener_name, 0) + by

    async def _close_idle_connections(self) -> None:
        while True:
            limit_seconds = self._config.current.connections_max_idle_ms / 1000
            pause = IDLE_SWEEP_SECONDS_MAX
            if limit_seconds >= 0:
                self.close_idle(limit_seconds)
                pause = min(pause, max(limit_seconds / IDLE_SWEEPS_PER_LIMIT, 0.01))
            await asyncio.sleep(pause)

    async def _close_stalled_connections(self) -> None:
        while True:
            await asyncio.sleep(STALLED_SWEEP_SECONDS)
            self.close_stalled()

    def close_idle(self, limit_seconds: float) -> None:
        """Abort what was silent for longer, unless it waits for an answer of ours."""
        silent_since = self.now() - limit_seconds
        for connection in list(self._connections):
            if connection.last_active_at < silent_since and not connection.has_open_requests:
                self.idle_closed_count += 1
                connection.abort(IDLE)

    def close_stalled(self) -> None:
        """Abort those that keep memory and do not do their part: it is for others."""
        silent_since = self.now() - STALLED_SECONDS_MAX
        do_others_wait = self.byte_budget.has_waiting
        for connection in list(self._connections):
            if connection.has_stalled(silent_since, do_others_wait=do_others_wait):
                connection.abort(STALLED)
