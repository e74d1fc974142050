"""One listener of the node: binds, accepts, and stops."""

import asyncio

from broker.network.byte_stream import KERNEL_DECIDES, AsyncioNetwork, ListenOptions, MakeProtocol, Network


class Listener:
    """`make_protocol` is called for each accepted connection."""

    def __init__(
        self,
        name: str,
        make_protocol: MakeProtocol,
        *,
        backlog: int = 50,
        send_buffer_bytes: int = KERNEL_DECIDES,
        receive_buffer_bytes: int = KERNEL_DECIDES,
        network: Network | None = None,
    ) -> None:
        self.name = name
        self._make_protocol = make_protocol
        self._options = ListenOptions(backlog, send_buffer_bytes, receive_buffer_bytes)
        self._network: Network = network or AsyncioNetwork()
        self._server: asyncio.AbstractServer | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address without accepting yet; an empty host is every interface, port 0 a free one.

        Returns the port.  OSError when the address cannot be bound.
        """
        assert self._server is None, f"listener {self.name} is bound once"
        self._server, bound_port = await self._network.bind(self._make_protocol, host, port, self._options)
        return bound_port

    async def start_accepting(self) -> None:
        assert self._server is not None, f"listener {self.name} is not bound"
        await self._server.start_serving()

    def stop_accepting(self) -> None:
        """Close the listening socket; accepted connections live on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.stop_accepting()
        self._server = None
