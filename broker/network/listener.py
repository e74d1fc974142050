"""One listener of the node: binds, accepts, and stops."""

import asyncio

from broker.network.byte_stream import KERNEL_DECIDES, AsyncioNetwork, ListenOptions, MakeProtocol, Network


class ListenError(OSError):
    """An address that cannot be listened on; the message names the listener and says why."""


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
        self._address = name

    async def bind(self, host: str, port: int) -> int:
        """Take the address without accepting yet; an empty host is every interface, port 0 a free one.

        Returns the port.  ListenError when the address cannot be bound.
        """
        assert self._server is None, f"listener {self.name} is bound once"
        self._address = f"{self.name}://{host}:{port}"
        try:
            self._server, bound_port = await self._network.bind(self._make_protocol, host, port, self._options)
        except OSError as error:
            raise self._refused(error) from error
        return bound_port

    async def start_accepting(self) -> None:
        """ListenError when somebody else took the address since it was bound."""
        assert self._server is not None, f"listener {self.name} is not bound"
        try:
            await self._server.start_serving()
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> ListenError:
        return ListenError(f"listener {self._address}: {error.strerror or error}")

    def stop_accepting(self) -> None:
        """Close the listening socket; accepted connections live on."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        self.stop_accepting()
        self._server = None
