"""HttpEndpoint: /metrics, /healthz and /readyz for Prometheus and for whoever starts and watches this process.

It answers GET and HEAD, one request per connection, and nothing that could cost much: requests are bounded in size,
time and number, and the metrics' text is made in parts between which the event loop runs.
"""

import asyncio
import contextlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import structlog

from broker.common.tasks import BackgroundTasks
from broker.metrics.exposition import CONTENT_TYPE, text_parts
from broker.metrics.registry import MetricsRegistry

log = structlog.get_logger(__name__)

REQUEST_SIZE_MAX: Final = 8192  # scrapers send a few hundred bytes
REQUEST_TIMEOUT_S: Final = 5.0
RESPONSE_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 32  # a few scrapers and probes; beyond it a connection is closed at once

_TEXT = "text/plain; charset=utf-8"


def _not_ready() -> str:
    return "not ready"


class HttpEndpoint:
    """Serves between `start()` and `close()`.  `port` is the bound one, which matters when 0 was asked for."""

    def __init__(
        self,
        host: str,
        port: int,
        registry: MetricsRegistry,
        is_ready: Callable[[], bool],
        *,
        reason: Callable[[], str] = _not_ready,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`reason` says why not while `is_ready()` is False."""
        self.host = host
        self.port = port
        self._registry = registry
        self._is_ready = is_ready
        self._reason = reason
        self._request_timeout_s = request_timeout_s
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self._tasks = BackgroundTasks("http-endpoint")

    async def start(self) -> None:
        """Bind and serve; OSError when the address is taken."""
        self._server = await asyncio.start_server(
            self._accept, self.host or None, self.port, limit=REQUEST_SIZE_MAX, backlog=CONNECTIONS_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop serving; answers under way are cut off."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._tasks.cancel_all()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections[writer] = None
        self._tasks.start("connection", self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._request_timeout_s):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                writer.write(await self._answer(head))
                await writer.drain()
        except asyncio.LimitOverrunError:
            writer.write(_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"request too large\n"))
        except TimeoutError:
            log.debug("http_request_timed_out")
        except (OSError, asyncio.IncompleteReadError):
            log.debug("http_connection_lost")
        finally:
            del self._connections[writer]
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, head: bytes) -> bytes:
        request_line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(request_line) != 3 or not request_line[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, b"expected an HTTP/1.x request\n")
        method, target, _ = request_line
        if method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", extra="Allow: GET, HEAD\r\n")
        try:
            status, body, content_type = await self._resource(target.partition("?")[0])
        except Exception:  # a gauge whose owner cannot be read must not halt the broker, as a failed task would
            log.exception("http_resource_failed", target=target)
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n")
        return _response(status, body, content_type, with_body=method == "GET")

    async def _resource(self, path: str) -> tuple[HTTPStatus, bytes, str]:
        if path == "/metrics":
            return HTTPStatus.OK, await self._metrics_text(), CONTENT_TYPE
        if path == "/healthz":
            return HTTPStatus.OK, b"ok\n", _TEXT
        if path == "/readyz":
            if self._is_ready():
                return HTTPStatus.OK, b"ready\n", _TEXT
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self._reason()}\n".encode(), _TEXT
        return HTTPStatus.NOT_FOUND, b"try /metrics, /healthz or /readyz\n", _TEXT

    async def _metrics_text(self) -> bytes:
        parts = []
        for part in text_parts(self._registry):
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)


def _response(
    status: HTTPStatus, body: bytes, content_type: str = _TEXT, *, with_body: bool = True, extra: str = ""
) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
