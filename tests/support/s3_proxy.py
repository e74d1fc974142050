"""S3Proxy: stands before an S3 server and does to requests and answers what networks and busy stores do.

The Host header is passed on, so the server behind still checks signatures.
"""

import asyncio
import re
import socket
import struct
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect", "content-length"}
_ERRORS = {
    "slow_down": (503, "SlowDown"),
    "internal": (500, "InternalError"),
    "denied": (403, "AccessDenied"),
    "conflict": (409, "ConditionalRequestConflict"),
    "bad_digest": (400, "BadDigest"),
}


@dataclass
class ProxyFault:
    """`action`: a name of an error answer, reset (before it is done), lost_reply (after), hang, cut (half of the
    answer's body), or garbage (200, and no answer of S3)."""

    action: str
    method: str
    path: str = ""
    times: int = 1

    def takes(self, method: str, path: str) -> bool:
        if self.times <= 0 or method != self.method or re.search(self.path, path) is None:
            return False
        self.times -= 1
        return True


@dataclass
class Reply:
    """What the server behind answered."""

    status: int
    headers: CIMultiDict[str]
    body: bytes


class S3Proxy:
    """`async with` it; `url` is where clients go.  `requests` counts methods, `paths` are all of them in order."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._faults: list[ProxyFault] = []
        self.requests: Counter[str] = Counter()
        self.url = ""

    def fail(self, action: str, method: str, path: str = "", times: int = 1) -> None:
        self._faults.append(ProxyFault(action, method, path, times))

    def heal(self) -> None:
        """No more faults; what hangs already goes on hanging."""
        self._faults.clear()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
            skip_auto_headers={"Content-Type", "User-Agent", "Accept", "Accept-Encoding"},
        )
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method] += 1
        path = request.raw_path
        fault = next((each for each in self._faults if each.takes(request.method, path)), None)
        action = fault.action if fault else ""
        body = await request.read()
        if action in _ERRORS:
            return error_answer(*_ERRORS[action])
        if action == "hang":
            await asyncio.sleep(3600)
        if action == "garbage":
            return web.Response(text="<html>a sign-on page")
        if action == "reset":
            return reset(request)
        if (refusal := self.refusal(request)) is not None:
            return refusal
        reply = await self.forward(request, body)
        if action == "lost_reply":
            return reset(request)
        if action == "cut":
            return await _cut(request, reply)
        return web.Response(status=reply.status, headers=reply.headers, body=reply.body)

    def refusal(self, request: web.Request) -> web.Response | None:
        """An answer instead of the server's."""
        return None

    async def forward(self, request: web.Request, body: bytes) -> Reply:
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP]
        url = URL(self._upstream + request.raw_path, encoded=True)
        sent = body if body or request.method in ("PUT", "POST") else None
        async with self._session.request(
            request.method, url, headers=headers, data=sent, allow_redirects=False
        ) as answer:
            kept = _HOP_BY_HOP - {"content-length"} if request.method == "HEAD" else _HOP_BY_HOP
            passed = [(name, value) for name, value in answer.headers.items() if name.lower() not in kept]
            return Reply(answer.status, CIMultiDict(passed), await answer.read())


def error_answer(status: int, code: str, message: str = "injected") -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return web.Response(status=status, text=text, content_type="application/xml")


def reset(request: web.Request) -> web.Response:
    """Ends the connection with RST."""
    assert request.transport is not None
    connection = request.transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()  # type: ignore[attr-defined]
    return web.Response()


async def _cut(request: web.Request, reply: Reply) -> web.StreamResponse:
    answer = web.StreamResponse(status=reply.status, headers=reply.headers)
    answer.content_length = len(reply.body)
    await answer.prepare(request)
    await answer.write(reply.body[: len(reply.body) // 2])
    await asyncio.sleep(0.05)  # so that it arrives before the reset, which would throw it away
    reset(request)
    return answer
