from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.schemas.cluster_metadata import RECORD_TYPES, FeatureLevelRecord, NoOpRecord, PartitionRecord
from broker.schemas.framing import UnknownRecordError, decode_record, encode_record
from broker.schemas.message_codec import MalformedRecordError

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=20)
TOPIC_ID = UUID(int=77)
FRAME = bytes.fromhex("010c00116d657461646174612e76657273696f6e001400")


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_frame_version_key_and_version_stand_in_front(view: type) -> None:
    assert encode_record(LEVEL, 0) == FRAME
    assert decode_record(view(FRAME), RECORD_TYPES) == LEVEL


@pytest.mark.parametrize(
    ("text", "key", "version"), [("010600", 6, 0), ("01ac0202", 300, 2), ("01140100", 20, 1), ("01030300", 3, 3)]
)
def test_unknown_records_are_named(text: str, key: int, version: int) -> None:
    with pytest.raises(UnknownRecordError, match=f"api key {key}, version {version}") as caught:
        decode_record(bytes.fromhex(text), RECORD_TYPES)
    assert (caught.value.api_key, caught.value.version) == (key, version)
    assert caught.value.code is ErrorCode.unsupported_version


def test_only_the_types_given_are_known() -> None:
    with pytest.raises(UnknownRecordError):
        decode_record(FRAME, {NoOpRecord.API_KEY: NoOpRecord})


@pytest.mark.parametrize("frame_version", ["00", "02"])
def test_other_frame_versions_are_refused(frame_version: str) -> None:
    with pytest.raises(MalformedRecordError, match="frame version"):
        decode_record(bytes.fromhex(frame_version) + FRAME[1:], RECORD_TYPES)


@pytest.mark.parametrize("text", ["", "01", "0114", "0180", "018080808080011400", "011400"])
def test_a_frame_cut_short_is_refused(text: str) -> None:
    with pytest.raises(MalformedRecordError):
        decode_record(bytes.fromhex(text), RECORD_TYPES)


def test_bytes_after_the_record_are_refused() -> None:
    with pytest.raises(MalformedRecordError, match="1 bytes follow a NoOpRecord"):
        decode_record(bytes.fromhex("0114000000"), RECORD_TYPES)


def test_a_version_that_cannot_hold_the_record_is_refused() -> None:
    record = PartitionRecord(
        topic_id=TOPIC_ID, replicas=(1,), isr=(1,), leader_epoch=0, partition_epoch=0, directories=(TOPIC_ID,)
    )
    with pytest.raises(ValueError, match="PartitionRecord of version 0 cannot hold directories"):
        encode_record(record, 0)
