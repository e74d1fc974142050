"""HttpEndpoint: /metrics, /healthz and /readyz for Prometheus and for whoever starts and watches this process.

Beside them there is a page for people, at /, which shows what /metrics and /status say.

It answers GET and HEAD, one request per connection, and nothing that could cost much: requests are bounded in size,
time and number, and the metrics' text is made in parts between which the event loop runs.  The only thing that can be
changed here are the faults of buckets (/faults), and only where somebody allowed it.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import structlog

from broker.common.tasks import BackgroundTasks
from broker.metrics.exposition import CONTENT_TYPE, text_parts
from broker.metrics.registry import MetricsRegistry
from broker.server.web_page.static_files import static_files

log = structlog.get_logger(__name__)

REQUEST_SIZE_MAX: Final = 8192  # scrapers send a few hundred bytes
REQUEST_TIMEOUT_S: Final = 5.0
RESPONSE_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 32  # a few scrapers and probes; beyond it a connection is closed at once

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_FAULTS = "/faults"
# A page made of our own files alone: what a rack or a topic is called can never become part of it.
_HEADERS: Final = (
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n"
)
_FAULTS_ARE_OFF = (
    "faults can be set where metrics.http.listener is bound to loopback, or with wherry.fault.switch.enable=true\n"
)


class Faults(Protocol):
    """What can be switched here (`FaultSwitch`)."""

    def set(self, wanted: Any) -> None:
        """ValueError with a sentence for what makes no sense."""

    def describe(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]  # by name in small letters

    @property
    def is_of_another_site(self) -> bool:
        """A page of somebody else, open in a browser that can reach us, sends it."""
        origin = self.headers.get("origin")
        return origin is not None and origin != f"http://{self.headers.get('host')}"


class _Refused(Exception):
    """With the answer's status and text."""

    def __init__(self, status: HTTPStatus, text: str, extra: str = "") -> None:
        super().__init__(text)
        self.response = _response(status, text.encode(), extra=extra)


def _not_ready() -> str:
    return "not ready"


async def _no_status() -> Any:
    return {}


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
        status: Callable[[], Awaitable[Any]] = _no_status,
        faults: Faults | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`reason` says why not while `is_ready()` is False, `status` what the page shows beside the metrics (JSON);
        without `faults` none can be set."""
        self.host = host
        self.port = port
        self._registry = registry
        self._is_ready = is_ready
        self._reason = reason
        self._status = status
        self._faults = faults
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
                request = _parsed(await reader.readuntil(b"\r\n\r\n"))
                body = await _body(request, reader)
            async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                writer.write(await self._answer(request, body))
                await writer.drain()
        except _Refused as refused:
            writer.write(refused.response)
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

    async def _answer(self, request: _Request, body: bytes) -> bytes:
        try:
            if request.method == "POST":
                status, answer, content_type = self._set_faults(request, body)
            else:
                status, answer, content_type = await self._resource(request.path)
        except _Refused as refused:
            return refused.response
        except Exception:  # a gauge whose owner cannot be read must not halt the broker, as a failed task would
            log.exception("http_resource_failed", target=request.path)
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n")
        return _response(status, answer, content_type, with_body=request.method != "HEAD")

    def _set_faults(self, request: _Request, body: bytes) -> tuple[HTTPStatus, bytes, str]:
        faults = self._allowed_faults()
        if request.is_of_another_site:
            raise _Refused(HTTPStatus.FORBIDDEN, "a page of another site may not set faults\n")
        try:
            faults.set(json.loads(body))
        except ValueError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{error}\n") from error
        return HTTPStatus.OK, _as_json(faults.describe()), _JSON

    def _allowed_faults(self) -> Faults:
        if self._faults is None:
            raise _Refused(HTTPStatus.FORBIDDEN, _FAULTS_ARE_OFF)
        return self._faults

    async def _resource(self, path: str) -> tuple[HTTPStatus, bytes, str]:
        if path == "/metrics":
            return HTTPStatus.OK, await self._metrics_text(), CONTENT_TYPE
        if path == "/healthz":
            return HTTPStatus.OK, b"ok\n", _TEXT
        if path == "/readyz":
            if self._is_ready():
                return HTTPStatus.OK, b"ready\n", _TEXT
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{self._reason()}\n".encode(), _TEXT
        if path == _FAULTS:
            return HTTPStatus.OK, _as_json(self._allowed_faults().describe()), _JSON
        if path == "/status":
            return HTTPStatus.OK, _as_json(await self._status()), _JSON
        if (file := static_files().get(path)) is not None:
            return HTTPStatus.OK, file.body, file.content_type
        return HTTPStatus.NOT_FOUND, b"try /, /metrics, /healthz or /readyz\n", _TEXT

    async def _metrics_text(self) -> bytes:
        parts = []
        for part in text_parts(self._registry):
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)


def _parsed(head: bytes) -> _Request:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refused(HTTPStatus.BAD_REQUEST, "expected an HTTP/1.x request\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    request = _Request(words[0], words[1].partition("?")[0], headers)
    if request.method not in ("GET", "HEAD") and (request.method, request.path) != ("POST", _FAULTS):
        allowed = "GET, HEAD, POST" if request.path == _FAULTS else "GET, HEAD"
        raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"only {allowed}\n", extra=f"Allow: {allowed}\r\n")
    return request


async def _body(request: _Request, reader: asyncio.StreamReader) -> bytes:
    if request.method != "POST":
        return b""
    length = request.headers.get("content-length", "")
    if not (length.isascii() and length.isdecimal()):
        raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a POST needs its Content-Length\n")
    if int(length[:10]) > REQUEST_SIZE_MAX:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request too large\n")
    return await reader.readexactly(int(length))


def _as_json(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _response(
    status: HTTPStatus, body: bytes, content_type: str = _TEXT, *, with_body: bool = True, extra: str = ""
) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"{_HEADERS}{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
