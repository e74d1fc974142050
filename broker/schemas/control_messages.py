"""The messages in the control records of a metadata log (KRaft): who leads, and what frames a snapshot.

Each starts with its own version number, which is 0; a reader takes newer ones as 0 and ignores what follows
(Kafka: ControlRecordUtils).
"""

from typing import ClassVar, Final, TypeAlias
from uuid import UUID

from broker.common.buffers import Buffer
from broker.records.control_record import ControlRecordType
from broker.schemas.message_codec import MalformedRecordError, decode_message, encode_message, message, stored

_SCHEMA_VERSION: Final = 0


class ControlMessageBase:
    """What the messages share."""

    __slots__ = ()

    TYPE: ClassVar[ControlRecordType]
    VERSIONS: ClassVar[range] = range(1)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0


@message
class Voter:
    """One voter of the quorum at an election."""

    voter_id: int = stored("int32")


@message
class LeaderChangeMessage(ControlMessageBase):
    """The first record of an epoch."""

    TYPE: ClassVar[ControlRecordType] = ControlRecordType.LEADER_CHANGE

    version: int = stored("int16", default=0)
    leader_id: int = stored("int32")
    voters: tuple[Voter, ...] = stored(default=())
    granting_voters: tuple[Voter, ...] = stored(default=())


@message
class SnapshotHeaderRecord(ControlMessageBase):
    """The first record of a snapshot."""

    TYPE: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_HEADER

    version: int = stored("int16", default=0)
    last_contained_log_timestamp: int = stored("int64")


@message
class SnapshotFooterRecord(ControlMessageBase):
    """The last record of a snapshot: without it, the file is not whole."""

    TYPE: ClassVar[ControlRecordType] = ControlRecordType.SNAPSHOT_FOOTER

    version: int = stored("int16", default=0)


@message
class KRaftVersionRecord(ControlMessageBase):
    """The version of the quorum's own protocol (KIP-853)."""

    TYPE: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VERSION

    version: int = stored("int16", default=0)
    k_raft_version: int = stored("int16")


@message
class VoterEndpoint:
    """Where a voter listens."""

    name: str = stored("string")
    host: str = stored("string")
    port: int = stored("uint16")


@message
class KRaftVersionFeature:
    """The versions of the quorum's protocol a voter can work with."""

    min_supported_version: int = stored("int16")
    max_supported_version: int = stored("int16")


@message
class RegisteredVoter:
    """One voter of a quorum whose members can change."""

    voter_id: int = stored("int32")
    voter_directory_id: UUID = stored("uuid")
    endpoints: tuple[VoterEndpoint, ...] = stored(default=())
    k_raft_version_feature: KRaftVersionFeature = stored()


@message
class VotersRecord(ControlMessageBase):
    """The voters from here on (KIP-853)."""

    TYPE: ClassVar[ControlRecordType] = ControlRecordType.KRAFT_VOTERS

    version: int = stored("int16", default=0)
    voters: tuple[RegisteredVoter, ...] = stored(default=())


ControlMessage: TypeAlias = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)

_MESSAGE_TYPES: Final[dict[ControlRecordType, type[ControlMessage]]] = {
    kind.TYPE: kind
    for kind in (LeaderChangeMessage, SnapshotHeaderRecord, SnapshotFooterRecord, KRaftVersionRecord, VotersRecord)
}


def encode_control_message(control_message: ControlMessage) -> bytes:
    """The value of a control record; its key is `encode_control_key(control_message.TYPE)`."""
    return encode_message(control_message, _SCHEMA_VERSION)


def decode_control_message(kind: ControlRecordType, data: Buffer) -> ControlMessage:
    """The message in the value of a control record.  MalformedRecordError, also for markers, which are no messages."""
    message_type = _MESSAGE_TYPES.get(kind)
    if message_type is None:
        raise MalformedRecordError(f"A control record of type {kind.name} has no message")
    decoded, end = decode_message(message_type, _SCHEMA_VERSION, data)
    if end != len(data) and decoded.version == _SCHEMA_VERSION:
        raise MalformedRecordError(f"{len(data) - end} bytes follow a {message_type.__name__}")
    return decoded
