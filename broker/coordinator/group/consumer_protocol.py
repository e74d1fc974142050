"""The one thing a coordinator must understand of what consumers tell each other: which topics they read."""

import struct
from typing import Final

CONSUMER_PROTOCOL_TYPE: Final = "consumer"  # ConsumerProtocol.PROTOCOL_TYPE

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ConsumerProtocolError(ValueError):
    """The bytes are not a subscription of the consumer protocol."""


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics of a ConsumerProtocolSubscription.

    Version 0 is a prefix of every version, so newer ones are read as 0 (ConsumerProtocol.deserializeConsumerProtocol).
    """
    try:
        (version,) = _INT16.unpack_from(metadata, 0)
        (count,) = _INT32.unpack_from(metadata, 2)
        position = 6
        topics: list[str] = []
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                raise ConsumerProtocolError(f"a topic of {length} bytes at {position} of {len(metadata)}")
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError) as error:
        raise ConsumerProtocolError(str(error)) from error
    if version < 0 or count < 0:
        raise ConsumerProtocolError(f"version {version} with {count} topics")
    return topics
