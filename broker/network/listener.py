"""A listening socket: binds, accepts, and stops."""

import asyncio
import socket
from collections.abc import Callable

KERNEL_DECIDES = -1


class Listener:
    """One listener of the node; `make_protocol` is called for each accepted connection."""

    def __init__(
        self,
        name: str,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        backlog: int = 50,
        send_buffer_bytes: int = KERNEL_DECIDES,
        receive_buffer_bytes: int = KERNEL_DECIDES,
    ) -> None:
        self.name = name
        self._make_protocol = make_protocol
        self._backlog = backlog
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._server: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address without accepting yet; an empty host is every interface, port 0 a free one.

        Returns the port.  OSError when the address cannot be bound.
        """
        assert self._server is None, f"listener {self.name} is bound once"
        loop = asyncio.get_running_loop()
        bound = await self._bind(host, port)
        self._server = await loop.create_server(
            self._make_protocol, sock=bound, backlog=self._backlog, start_serving=False
        )
        return int(bound.getsockname()[1])

    async def start_accepting(self) -> None:
        assert self._server is not None, f"listener {self.name} is not bound"
        await self._server.start_serving()

    async def _bind(self, host: str, port: int) -> socket.socket:
        """A socket whose options the accepted ones inherit."""
        if host:
            addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = addresses[0]
        elif socket.has_dualstack_ipv6():
            family, kind, protocol, address = socket.AF_INET6, socket.SOCK_STREAM, 0, ("::", port)
        else:
            family, kind, protocol, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
            if self._send_buffer_bytes != KERNEL_DECIDES:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self._receive_buffer_bytes != KERNEL_DECIDES:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            bound.setblocking(False)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
        return bound

    def stop_accepting(self) -> None:
        """Close the listening socket; accepted connections live on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.stop_accepting()
        self._server = None
