"""What is asked of a broker's HTTP listener: one short request, one answer."""

import asyncio
import json
from typing import Any, Final, NamedTuple

from broker.demo.layout import HOST

TIMEOUT_SECONDS: Final = 2.0
ANSWER_BYTES_MAX: Final = 64 << 20


class HttpAnswer(NamedTuple):
    status: int
    body: bytes


async def http_get(port: int, path: str) -> HttpAnswer:
    """OSError (TimeoutError among them) when there is no answer."""
    return await _exchange(port, f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())


async def http_post(port: int, path: str, value: Any) -> HttpAnswer:
    """A JSON value; OSError when there is no answer."""
    body = json.dumps(value).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Length: {len(body)}\r\n\r\n"
    return await _exchange(port, head.encode() + body)


async def _exchange(port: int, request: bytes) -> HttpAnswer:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(request)
            answer = await _all(reader)
        finally:
            writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ConnectionError(f"port {port} does not speak HTTP")
    return HttpAnswer(int(words[1]), body)


async def _all(reader: asyncio.StreamReader) -> bytes:
    """Until the connection is closed: brokers close it behind the answer."""
    parts, size = [], 0
    while part := await reader.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise ConnectionError("an answer without an end")
    return b"".join(parts)
