"""A queue of requests to the controller that leads now, over a connection of its own.

One channel per purpose (heartbeats, forwarding, partition changes, producer ids), each with one request in flight, as
Kafka's NodeToControllerChannelManager: a queue that is stuck must not starve the heartbeats.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from broker.common.errors import ErrorCode, RequestTimedOutError
from broker.common.tasks import BackgroundTasks
from broker.server.controller_finder import ControllerFinder, ControllerNode, Endpoint

log = structlog.get_logger(__name__)

RETRY_BACKOFF_MS = 50  # NodeToControllerRequestThread's back-off between two attempts of one request

ChangesController = Callable[[Any], bool]


class ControllerConnection(Protocol):
    """A connection to one controller; it connects on demand and may be used again after a failure."""

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        """The answer's entity; OSError or TimeoutError when there is none."""

    async def versions(self, timeout_ms: int) -> dict[int, tuple[int, int]]:
        """The controller's answer to ApiVersions: (lowest, highest) by api key."""

    async def close(self) -> None: ...


ConnectToController = Callable[[Endpoint], ControllerConnection]


def has_not_controller_error(response: Any) -> bool:
    """Whether an answer's top-level error says that somebody else leads."""
    return bool(getattr(response, "error_code", ErrorCode.none) == ErrorCode.not_controller)


@dataclass(slots=True)
class _Pending:
    entity: Any
    deadline: float
    changes_controller: ChangesController
    answer: "asyncio.Future[Any]"


class NodeToControllerChannel:
    """Requests in order, one in flight, repeated on the next leader until their deadline.

    A request is sent again after a lost connection, a time-out, or an answer that says "not the controller": it must
    be one the controller can see twice.
    """

    def __init__(
        self,
        purpose: str,
        finder: ControllerFinder,
        connect: ConnectToController,
        *,
        request_timeout_ms: int,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        self.purpose = purpose
        self._finder = finder
        self._connect = connect
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._queue: deque[_Pending] = deque()
        self._arrived = asyncio.Event()
        self._connection: ControllerConnection | None = None
        self._connected_to: ControllerNode | None = None
        self._tasks = BackgroundTasks(f"to-controller-{purpose}")
        self._log = log.bind(channel=purpose)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["NodeToControllerChannel"]:
        """Send what is queued; on leaving, requests without an answer are cancelled."""
        self._tasks.start("sender", self._send_forever())
        try:
            yield self
        finally:
            await self._tasks.cancel_all()
            await self._disconnect()
            for pending in self._queue:
                pending.answer.cancel()
            self._queue.clear()

    @property
    def queue_size(self) -> int:
        """Requests that wait for their turn or their answer."""
        return len(self._queue)

    async def send(
        self, entity: Any, *, timeout_ms: int | None = None, changes_controller: ChangesController | None = None
    ) -> Any:
        """The controller's answer to a request entity (its class tells key and version).

        `timeout_ms` bounds the whole, queueing and retries included; None means no bound, for requests that must
        not get lost.  `changes_controller` tells from an answer whether to ask the next leader instead.
        Raises RequestTimedOutError when the time is over.
        """
        loop = asyncio.get_running_loop()
        deadline = float("inf") if timeout_ms is None else loop.time() + timeout_ms / 1000
        answer: asyncio.Future[Any] = loop.create_future()
        self._queue.append(_Pending(entity, deadline, changes_controller or has_not_controller_error, answer))
        self._arrived.set()
        if timeout_ms is None:
            return await answer
        try:
            async with asyncio.timeout_at(deadline):
                return await answer
        except TimeoutError:
            raise RequestTimedOutError(f"the controller did not answer within {timeout_ms} ms") from None

    async def _send_forever(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            pending = self._queue[0]
            if pending.answer.done() or await self._try_once(pending):  # its caller gave up or was cancelled
                self._queue.popleft()
            else:
                await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _try_once(self, pending: _Pending) -> bool:
        """One attempt; True when the request needs no other."""
        remaining = pending.deadline - asyncio.get_running_loop().time()
        if remaining <= 0:
            return True  # the caller's own deadline has told it, or is about to
        try:
            async with asyncio.timeout(min(remaining, self._request_timeout_ms / 1000)):
                connection = await self._connection_to_leader()
                key, version = pending.entity.__api_key__, pending.entity.__version__
                response = await connection.send(int(key), int(version), pending.entity, self._request_timeout_ms)
        except (OSError, TimeoutError) as error:
            self._log.debug("controller_unreachable", error=str(error) or type(error).__name__)
            await self._disconnect()
            return pending.answer.done()
        if pending.changes_controller(response):
            self._log.info("controller_changed", was=self._connected_to and self._connected_to.node_id)
            await self._disconnect()
            return pending.answer.done()
        if not pending.answer.done():
            pending.answer.set_result(response)
        return True

    async def _connection_to_leader(self) -> ControllerConnection:
        leader = await self._finder.wait_for_leader()
        if self._connection is None or leader != self._connected_to:
            await self._disconnect()
            self._connection = self._connect(leader.endpoint)
            self._connected_to = leader
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection, self._connected_to = self._connection, None, None
        if connection is not None:
            await connection.close()
