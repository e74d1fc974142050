import io
from uuid import UUID

import pytest
from kio.schema.k_raft_version_record.v0 import data as kio_k_raft_version
from kio.schema.leader_change_message.v0 import data as kio_leader_change
from kio.schema.snapshot_footer_record.v0 import data as kio_footer
from kio.schema.snapshot_header_record.v0 import data as kio_header
from kio.schema.voters_record.v0 import data as kio_voters
from kio.serial import entity_reader, entity_writer

from broker.records.control_record import ControlRecordType
from broker.schemas.control_messages import (
    ControlMessage,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    RegisteredVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VoterEndpoint,
    VotersRecord,
    decode_control_message,
    encode_control_message,
)
from broker.schemas.message_codec import MalformedRecordError

LEADER_CHANGE = LeaderChangeMessage(
    leader_id=3, voters=(Voter(voter_id=3), Voter(voter_id=4)), granting_voters=(Voter(voter_id=3),)
)
VOTERS = VotersRecord(
    voters=(
        RegisteredVoter(
            voter_id=3,
            voter_directory_id=UUID(int=9),
            endpoints=(VoterEndpoint(name="CONTROLLER", host="h", port=9093),),
            k_raft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        ),
    )
)
MESSAGES: list[tuple[ControlMessage, ControlRecordType, type]] = [
    (LEADER_CHANGE, ControlRecordType.LEADER_CHANGE, kio_leader_change.LeaderChangeMessage),
    (
        SnapshotHeaderRecord(last_contained_log_timestamp=77),
        ControlRecordType.SNAPSHOT_HEADER,
        kio_header.SnapshotHeaderRecord,
    ),
    (SnapshotFooterRecord(), ControlRecordType.SNAPSHOT_FOOTER, kio_footer.SnapshotFooterRecord),
    (KRaftVersionRecord(k_raft_version=1), ControlRecordType.KRAFT_VERSION, kio_k_raft_version.KRaftVersionRecord),
    (VOTERS, ControlRecordType.KRAFT_VOTERS, kio_voters.VotersRecord),
]


def test_a_leader_change_in_bytes() -> None:
    assert encode_control_message(LEADER_CHANGE).hex() == "000000000003030000000300000000040002000000030000"


@pytest.mark.parametrize(("control_message", "kind", "kio_type"), MESSAGES)
def test_they_are_those_of_the_generated_schemas(
    control_message: ControlMessage, kind: ControlRecordType, kio_type: type
) -> None:
    raw = encode_control_message(control_message)
    entity, size = entity_reader(kio_type)(raw, 0)
    assert size == len(raw)
    output = io.BytesIO()
    entity_writer(kio_type)(output, entity)
    assert output.getvalue() == raw
    assert control_message.TYPE is kind
    assert decode_control_message(kind, raw) == control_message


def test_a_newer_version_is_read_as_the_oldest() -> None:
    raw = b"\x00\x01" + encode_control_message(SnapshotFooterRecord())[2:] + b"more"
    assert decode_control_message(ControlRecordType.SNAPSHOT_FOOTER, raw) == SnapshotFooterRecord(version=1)


def test_bytes_after_a_message_of_this_version_are_refused() -> None:
    with pytest.raises(MalformedRecordError, match="1 bytes follow"):
        decode_control_message(ControlRecordType.SNAPSHOT_FOOTER, encode_control_message(SnapshotFooterRecord()) + b"!")


def test_markers_have_no_message() -> None:
    with pytest.raises(MalformedRecordError, match="COMMIT"):
        decode_control_message(ControlRecordType.COMMIT, b"\x00\x00")
