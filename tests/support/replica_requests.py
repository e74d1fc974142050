"""Requests of kio's classes to the handlers of replicas, through the same bytes as on the wire."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    has_request_header_tags,
)
from broker.protocol.response_schema import RequestSchema
from broker.replication.remote_log import RemoteLog
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from tests.support.builders import LISTENER, ReplicaWorld, settle

CONTEXT = RequestContext(LISTENER, "PLAINTEXT", "127.0.0.1", 40_000, 9092, "connection-1")


class Answer:
    """The slot's owner: what became of one request."""

    def __init__(self) -> None:
        self.slot: ResponseSlot | None = None
        self.closed: str | None = None

    def on_slot_filled(self, slot: ResponseSlot) -> None:
        self.slot = slot

    def close(self, reason: str) -> None:
        self.closed = reason

    @property
    def is_filled(self) -> bool:
        return self.slot is not None

    @property
    def frame(self) -> bytes:
        """The response as sent, without its length; empty when nothing was sent."""
        assert self.slot is not None, "no answer yet"
        data = b"".join(self.slot.buffers)
        if data:
            assert int.from_bytes(data[:4], "big") == len(data) - 4
        return data[4:]


class RequestWorld(ReplicaWorld):
    """Calls handlers as the dispatcher does."""

    def __init__(
        self, directory: Path, properties: dict[str, str] | None = None, *, remote_log: RemoteLog | None = None
    ) -> None:
        super().__init__(directory, properties, remote_log=remote_log)
        self.register_brokers(1, 2)

    def start(self, handler: Callable[..., Any], api_key: ApiKey, version: int, entity: Any, **options: Any) -> Answer:
        """A handler of raw frames; the answer may come later."""
        answer = Answer()
        data = encode_request(api_key, version, 7, options.get("client_id", "test"), entity)[4:]
        is_owned = options.get("is_owned", False)
        frame = Frame(memoryview(bytearray(data)), is_owned=is_owned)
        if has_request_header_tags(api_key, version):
            frame.skip_header_tags()
        slot = ResponseSlot(answer)
        services = (self.sessions, self.metadata, self.config) if api_key is ApiKey.FETCH else (self.metadata,)
        handler(frame, CONTEXT, slot, self.replicas, *services)
        if not is_owned:
            frame.buffer[:] = bytes(len(frame.buffer))  # the next bytes of the connection overwrite it
        if not slot.is_filled:
            answer.slot = None
            self.last_slot = slot
        return answer

    async def call_frames(
        self, handler: Callable[..., Any], api_key: ApiKey, version: int, entity: Any, **options: Any
    ) -> Any:
        """kio's response entity, None for no response; AssertionError when the connection was closed."""
        answer = self.start(handler, api_key, version, entity, **options)
        for _ in range(3):
            await settle()
        assert answer.closed is None, answer.closed
        return self.decode(api_key, version, answer)

    @staticmethod
    def decode(api_key: ApiKey, version: int, answer: Answer) -> Any:
        if not answer.frame:
            return None
        correlation_id, entity = decode_response(api_key, version, answer.frame)
        assert correlation_id == 7
        return entity

    async def call(self, handler: Callable[..., Any], api_key: ApiKey, version: int, entity: Any) -> Any:
        """A handler of decoded requests; the response goes through the wire, too."""
        request = decode_request(encode_request(api_key, version, 7, "test", entity)[4:])
        response = handler(request, CONTEXT, self.replicas)
        if hasattr(response, "__await__"):
            response = await response
        data = b"".join(encode_response(api_key, version, 7, response))
        return decode_response(api_key, version, data[4:])[1]


def schema(api_key: ApiKey, version: int) -> RequestSchema:
    return RequestSchema.of(api_key, version)
