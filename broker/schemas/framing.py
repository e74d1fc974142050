"""The frame of a record in a metadata log: frame version | api key | version as unsigned varints, then the body.

Kafka: AbstractApiMessageSerde.  The body must end where the value ends.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, Protocol, TypeVar

from broker.common.buffers import Buffer
from broker.common.errors import InvalidRecordError, UnsupportedVersionError
from broker.records.varint import decode_uvarint, encode_uvarint
from broker.schemas.message_codec import MalformedRecordError, StoredMessage, decode_whole_message, encode_message

FRAME_VERSION: Final = 1  # 0 was written by pre-release versions only


class FramedRecord(StoredMessage, Protocol):
    """A message that says which record it is."""

    API_KEY: ClassVar[int]


RecordT = TypeVar("RecordT", bound=FramedRecord)


class UnknownRecordError(UnsupportedVersionError):
    """A record of a type or version this broker does not know.  It must not be skipped: the state would be wrong."""

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(f"Unknown metadata record: api key {api_key}, version {version}")
        self.api_key = api_key
        self.version = version


def encode_record(record: FramedRecord, version: int) -> bytes:
    """The record as a value in the log.  ValueError when that version cannot hold it."""
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.API_KEY) + encode_uvarint(version)
    return frame + encode_message(record, version)


def decode_record(data: Buffer, types: Mapping[int, type[RecordT]]) -> RecordT:
    """The record in a value; `types` by api key.  UnknownRecordError, or MalformedRecordError."""
    try:
        frame_version, position = decode_uvarint(data, 0)
        api_key, position = decode_uvarint(data, position)
        version, position = decode_uvarint(data, position)
    except InvalidRecordError as error:
        raise MalformedRecordError(f"Malformed frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise MalformedRecordError(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
        )
    kind = types.get(api_key)
    if kind is None or version not in kind.VERSIONS:
        raise UnknownRecordError(api_key, version)
    return decode_whole_message(kind, version, data, position)
