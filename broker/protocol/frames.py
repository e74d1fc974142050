"""A request as it came: the bytes, and the few header fields that decide what happens to it."""

from struct import Struct
from struct import error as StructError
from typing import Final

from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import skip_tagged_fields

_HEADER: Final = Struct(">hhih")  # api key, version, correlation id, length of the client id (-1 is null)
_CLIENT_ID_POSITION: Final = _HEADER.size


class Frame:
    """One request: header and body without the length in front (RequestHeader.json).

    `is_owned` is False while the bytes live in the shared receive buffer: whoever keeps any of them beyond the call
    copies them.  Owned bytes are never reused and may be changed in place.
    """

    __slots__ = ("_client_id_size", "api_key", "body_position", "buffer", "correlation_id", "is_owned", "version")

    def __init__(self, buffer: memoryview, is_owned: bool) -> None:
        """Read the header of version 1; `skip_header_tags` follows for flexible versions."""
        try:
            self.api_key, self.version, self.correlation_id, size = _HEADER.unpack_from(buffer)
        except StructError as error:
            raise MalformedFrameError(f"a request header needs {_HEADER.size} bytes, got {len(buffer)}") from error
        self.buffer = buffer
        self.is_owned = is_owned
        self._client_id_size = size
        self.body_position = _CLIENT_ID_POSITION + size if size > 0 else _CLIENT_ID_POSITION
        if self.body_position > len(buffer):
            raise MalformedFrameError(f"the client id of {size} bytes ends after its frame of {len(buffer)}")

    def skip_header_tags(self) -> None:
        """Header version 2 ends in tagged fields, none of which Kafka defines yet."""
        position = self.body_position
        if position < len(self.buffer) and self.buffer[position] == 0:
            self.body_position = position + 1
        else:
            self.body_position = skip_tagged_fields(self.buffer, position)

    @property
    def client_id_bytes(self) -> bytes | None:
        """The client's name for itself, or None."""
        size = self._client_id_size
        return None if size < 0 else bytes(self.buffer[_CLIENT_ID_POSITION : _CLIENT_ID_POSITION + size])

    @property
    def client_id(self) -> str | None:
        name = self.client_id_bytes
        return None if name is None else name.decode("utf-8", "replace")
