"""Records of compacted internal topics: key and value each start with a version number of their own.

The key's version also says what kind of record it is; kinds unknown to a reader are skipped, which is how newer
coordinators add theirs.
"""

import struct
from typing import Final, TypeVar

from broker.common.buffers import Buffer
from broker.schemas.message_codec import (
    MalformedRecordError,
    StoredMessage,
    decode_whole_message,
    encode_message,
)

_VERSION: Final = struct.Struct(">h")

MessageT = TypeVar("MessageT", bound=StoredMessage)


def encode_versioned(message: StoredMessage, version: int) -> bytes:
    """The version number and the body."""
    return _VERSION.pack(version) + encode_message(message, version)


def read_version(data: Buffer) -> int:
    """MalformedRecordError when there is not even room for a version."""
    if len(data) < _VERSION.size:
        raise MalformedRecordError(f"{len(data)} bytes are too few for a version number")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_versioned(kind: type[MessageT], data: Buffer) -> MessageT:
    """The message after the version number.  UnknownVersionError, MalformedRecordError."""
    return decode_whole_message(kind, read_version(data), data, _VERSION.size)
