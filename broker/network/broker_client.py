"""A client connection to another node: requests out, answers matched by correlation id (Kafka's NetworkClient)."""

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

from broker.common.tasks import BackgroundTasks
from broker.network.byte_stream import AsyncioNetwork, ByteStream, Network
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError
from broker.protocol.requests import decode_response, encode_request
from broker.protocol.response_schema import RequestSchema

T = TypeVar("T")

API_VERSIONS_VERSION: Final = 4
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024  # a fetch answers with 50 MiB or so, and one batch beyond its limit
UNSUPPORTED_VERSION: Final = 35

_LENGTH: Final = Struct(">i")
_CORRELATION_ID_MAX: Final = 0x7FFFFFFF


class BrokerClientError(ConnectionError):
    """No answer: the connection could not be made, broke, or said something that is not the protocol."""


class _Pending(NamedTuple):
    read: Callable[[bytes], Any]
    answer: "asyncio.Future[Any]"


class BrokerClient:
    """One connection, made on demand and again after a failure.  Requests may overlap; each has its own deadline.

    A request that runs into its deadline closes the connection, as Kafka's clients do: the peer may be gone.
    `close()` ends it; a client that was closed connects again when it is used again.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        network: Network | None = None,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._network: Network = network or AsyncioNetwork()
        self._response_bytes_max = response_bytes_max
        self._stream: ByteStream | None = None
        self._connecting: asyncio.Future[ByteStream] | None = None
        self._pending: dict[int, _Pending] = {}
        self._correlation_id = 0
        self._tasks = BackgroundTasks(f"client:{host}:{port}")
        self._versions: dict[int, tuple[int, int]] | None = None

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        """The answer's entity, of the same version.

        TimeoutError when `timeout_ms` (connecting included) is over, else BrokerClientError.
        """
        return await self._within(timeout_ms, self._send(api_key, version, entity))

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], T], timeout_ms: int) -> T:
        """As `send`, with a codec of the caller's: `write(correlation_id, client_id)` makes the whole request, and
        `read` what is returned from the response without its length; MalformedFrameError closes the connection."""
        return await self._within(timeout_ms, self._exchange(write, read))

    async def versions(self, timeout_ms: int) -> dict[int, tuple[int, int]]:
        """What the peer offers: (lowest, highest) by api key.  Asked once per connection."""
        return await self._within(timeout_ms, self._ask_versions())

    async def close(self) -> None:
        """Close the connection; requests without an answer fail."""
        self._disconnect("the client was closed")
        await self._tasks.cancel_all()

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    async def _within(self, timeout_ms: int, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await work
        except TimeoutError:
            self._disconnect(f"no answer within {timeout_ms} ms")
            raise TimeoutError(f"{self.host}:{self.port} did not answer within {timeout_ms} ms") from None

    async def _send(self, api_key: int, version: int, entity: Any) -> Any:
        return await self._exchange(
            lambda correlation_id, client_id: encode_request(api_key, version, correlation_id, client_id, entity),
            lambda frame: decode_response(api_key, version, frame)[1],
        )

    async def _exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], T]) -> T:
        stream = await self._connected()
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        frame = write(correlation_id, self._client_id)
        self._pending[correlation_id] = _Pending(read, answer)
        try:
            stream.write(frame)
            await stream.drain()
            return await answer
        except OSError as error:
            self._disconnect(str(error))
            raise BrokerClientError(f"{self.host}:{self.port}: {error}") from error
        finally:
            self._pending.pop(correlation_id, None)

    async def _ask_versions(self) -> dict[int, tuple[int, int]]:
        await self._connected()
        if self._versions is None:
            schema = RequestSchema.of(ApiKey.API_VERSIONS, API_VERSIONS_VERSION)
            request = schema.ApiVersionsRequest(client_software_name="wherry", client_software_version="1")
            response = await self._send(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, request)
            if response.error_code:
                raise BrokerClientError(f"{self.host}:{self.port} answers ApiVersions with {response.error_code.name}")
            self._versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        return self._versions

    async def _connected(self) -> ByteStream:
        """The open connection, or a new one; callers that come meanwhile wait for the same."""
        if self._stream is not None:
            return self._stream
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_future()
            self._connecting.add_done_callback(self._connection_attempt_ended)
            self._tasks.start("connect", self._connect(self._connecting))
        try:
            return await asyncio.shield(self._connecting)
        except (OSError, EOFError) as error:
            raise BrokerClientError(f"{self.host}:{self.port}: {error}") from error

    def _connection_attempt_ended(self, attempt: "asyncio.Future[ByteStream]") -> None:
        self._connecting = None
        attempt.exception()  # taken here too: nobody may be waiting any more

    async def _connect(self, attempt: "asyncio.Future[ByteStream]") -> None:
        """A refused connection is an answer to those who wait, not a failure of this task."""
        try:
            stream = await self._network.connect(self.host, self.port)
        except (OSError, EOFError) as error:
            attempt.set_exception(error)
            return
        except asyncio.CancelledError:
            attempt.set_exception(BrokerClientError("the client was closed"))
            raise
        self._stream = stream
        self._versions = None
        self._tasks.start("reader", self._read_answers(stream))
        attempt.set_result(stream)

    async def _read_answers(self, stream: ByteStream) -> None:
        try:
            while True:
                (size,) = _LENGTH.unpack(await stream.read_exactly(_LENGTH.size))
                if not _LENGTH.size <= size <= self._response_bytes_max:
                    raise MalformedFrameError(f"a response of {size} bytes")
                self._deliver(await stream.read_exactly(size))
        except (OSError, EOFError, MalformedFrameError) as error:
            if self._stream is stream:
                self._disconnect(str(error) or type(error).__name__)

    def _deliver(self, frame: bytes) -> None:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        pending = self._pending.get(correlation_id)
        if pending is None or pending.answer.done():
            return  # its caller was cancelled
        pending.answer.set_result(pending.read(frame))

    def _disconnect(self, reason: str) -> None:
        stream, self._stream = self._stream, None
        self._versions = None
        if stream is not None:
            stream.close()
        pending, self._pending = self._pending, {}
        for each in pending.values():
            if not each.answer.done():
                each.answer.set_exception(BrokerClientError(f"{self.host}:{self.port}: {reason}"))
