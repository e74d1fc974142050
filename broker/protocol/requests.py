"""Whole messages by kio: decode a request, encode its response, and both the other way round for our own clients."""

import functools
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import DecodeError

from broker.common.buffers import Buffer
from broker.protocol import metadata_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError, UnsupportedApiError
from broker.protocol.frames import Frame
from broker.protocol.message_walk import readable_by_kio
from broker.protocol.response_schema import ResponseSchema, load_package
from broker.protocol.wire_format import legacy_string, skip_tagged_fields

_LENGTH: Final = Struct(">i")
_REQUEST_HEADER: Final = Struct(">hhi")
# What kio raises for bytes that are not the message they claim to be.
_DECODE_ERRORS: Final = (DecodeError, ValueError, OverflowError, TypeError)


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request.  `body` is kio's entity of exactly this version; `frame` is header and body as received."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    frame: bytes

    @property
    def schema(self) -> ResponseSchema:
        """The classes to build the response with."""
        return ResponseSchema.of(self.api_key, self.version)


@dataclass(frozen=True, slots=True)
class _Codec:
    """How one message of one version is read and written; `has_header_tags` tells the newer header version."""

    entity: Any
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[io.BytesIO, Any], None]
    has_header_tags: bool


@functools.cache
def _request_codec(api_key: int, version: int) -> _Codec:
    entity = _entity(load_request_schema, api_key, version)
    header_version = entity.__header_schema__.__version__
    return _Codec(entity, entity_reader(entity), entity_writer(entity), has_header_tags=header_version >= 2)


@functools.cache
def _response_codec(api_key: int, version: int) -> _Codec:
    entity = _entity(load_response_schema, api_key, version)
    header_version = entity.__header_schema__.__version__
    return _Codec(entity, entity_reader(entity), entity_writer(entity), has_header_tags=header_version >= 1)


def _entity(load: Callable[[int, int], Any], api_key: int, version: int) -> Any:
    schema_name = api_key_map.get(api_key)
    if schema_name is not None and version in schema_name_map[schema_name]:
        load_package(schema_name, version)
    try:
        return load(api_key, version)
    except (UnknownAPIKey, UnknownEntity) as error:
        raise UnsupportedApiError(api_key, version) from error


# Where flexible versions begin of what is read without kio: their 30 schemas need not be loaded at the start.
_FIRST_FLEXIBLE: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.API_VERSIONS: 3}


def has_request_header_tags(api_key: int, version: int) -> bool:
    """Whether the request header is of version 2.  UnsupportedApiError for what kio has no schema for."""
    first_flexible = _FIRST_FLEXIBLE.get(api_key)
    if first_flexible is not None:
        return version >= first_flexible
    return _request_codec(api_key, version).has_header_tags


def load_schemas(api_key: int, version: int) -> None:
    """Have what a request of this version and its response are read and written with.

    kio's classes are made when they are first asked for, which takes tens of milliseconds.  UnsupportedApiError.
    """
    _request_codec(api_key, version)
    _response_codec(api_key, version)
    ResponseSchema.of(ApiKey(api_key), version).read_newest()


def decode_request(frame: Buffer) -> Request:
    """Header and body, without the length in front.

    Unknown tagged fields are skipped and bytes behind the body ignored, as Kafka does.  Raises MalformedFrameError or
    UnsupportedApiError; either way nothing sensible can be answered.
    """
    owned = frame if isinstance(frame, bytes) else bytes(frame)
    head = Frame(memoryview(owned), is_owned=True)
    codec = _request_codec(head.api_key, head.version)
    if codec.has_header_tags:
        head.skip_header_tags()
    body = _decode(codec, owned, head.body_position)
    return Request(ApiKey(head.api_key), head.version, head.correlation_id, head.client_id, body, owned)


def encode_response(api_key: int, version: int, correlation_id: int, entity: Any) -> list[Buffer]:
    """A whole response, with its length, from kio's entity of this version.

    ApiVersions is answered with header version 0 in every version (KIP-511); kio's classes know.
    """
    codec = _response_codec(api_key, version)
    assert isinstance(entity, codec.entity), f"{codec.entity} is the answer, not {type(entity)}"
    if api_key == ApiKey.METADATA:
        return metadata_codec.encode_response(version, correlation_id, entity)
    return [_encode(codec, _LENGTH.pack(correlation_id), entity)]


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    """A whole request, with its length."""
    codec = _request_codec(api_key, version)
    assert isinstance(entity, codec.entity), f"{codec.entity} is the request, not {type(entity)}"
    return _encode(codec, _REQUEST_HEADER.pack(api_key, version, correlation_id) + legacy_string(client_id), entity)


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """The correlation id and kio's entity from a response without its length; MalformedFrameError."""
    owned = frame if isinstance(frame, bytes) else bytes(frame)
    if len(owned) < _LENGTH.size:
        raise MalformedFrameError(f"a response header needs {_LENGTH.size} bytes, got {len(owned)}")
    codec = _response_codec(api_key, version)
    position = skip_tagged_fields(owned, _LENGTH.size) if codec.has_header_tags else _LENGTH.size
    return _LENGTH.unpack_from(owned)[0], _decode(codec, owned, position)


def _decode(codec: _Codec, frame: bytes, position: int) -> Any:
    readable, start = readable_by_kio(codec.entity, frame, position)
    try:
        return codec.read(readable, start)[0]
    except _DECODE_ERRORS as error:
        raise MalformedFrameError(f"{codec.entity.__name__} {codec.entity.__version__}: {error!r}") from error


def _encode(codec: _Codec, header: bytes, entity: Any) -> bytes:
    out = io.BytesIO()
    out.write(b"\0\0\0\0" + header + (b"\0" if codec.has_header_tags else b""))
    codec.write(out, entity)
    with out.getbuffer() as view:
        _LENGTH.pack_into(view, 0, len(view) - _LENGTH.size)
    return out.getvalue()
