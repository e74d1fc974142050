"""A Kafka client as thin as the wire: it sends exactly what a test says, and shows exactly what comes back."""

import itertools
import socket
import struct
from typing import Any, Self

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response, encode_request
from broker.protocol.response_schema import RequestSchema
from tests.support.patience import PATIENCE_S

LENGTH = struct.Struct(">i")


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class WireClient:
    """One blocking connection."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", timeout_s: float = PATIENCE_S, receive_buffer_bytes: int | None = None
    ) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._correlation_ids = itertools.count(1)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, api_key: ApiKey, version: int, entity: Any) -> int:
        """Send a request without waiting; returns its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(encode_request(api_key, version, correlation_id, "wire-client", entity))
        return correlation_id

    def receive_frame(self) -> bytes:
        """The next response without its length; ConnectionClosed at the end of the stream."""
        (size,) = LENGTH.unpack(self._read(LENGTH.size))
        return self._read(size)

    def receive(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        return decode_response(api_key, version, self.receive_frame())

    def ask(self, api_key: ApiKey, version: int, entity: Any) -> Any:
        """Send a request and return the body of its answer."""
        sent = self.send(api_key, version, entity)
        received, body = self.receive(api_key, version)
        assert received == sent, f"answer {received} to request {sent}"
        return body

    def request(self, api_key: ApiKey, version: int) -> RequestSchema:
        """The classes to build a request with."""
        return RequestSchema.of(api_key, version)

    def is_closed(self, timeout_s: float = PATIENCE_S) -> bool:
        """Whether the broker closes the connection, without a byte before it."""
        self._socket.settimeout(timeout_s)
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = self._socket.recv(size)
            except ConnectionResetError:
                part = b""
            if not part:
                raise ConnectionClosed
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
