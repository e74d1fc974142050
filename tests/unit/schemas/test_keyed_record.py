import pytest

from broker.schemas.group_metadata import GroupMetadataKey
from broker.schemas.keyed_record import decode_versioned, encode_versioned, read_version
from broker.schemas.message_codec import MalformedRecordError, UnknownVersionError


def test_the_version_stands_in_front() -> None:
    raw = encode_versioned(GroupMetadataKey(group="g1"), 2)
    assert raw.hex() == "000200026731"
    assert read_version(raw) == 2
    assert decode_versioned(GroupMetadataKey, raw) == GroupMetadataKey(group="g1")


@pytest.mark.parametrize("raw", [b"", b"\x00"])
def test_no_room_for_a_version(raw: bytes) -> None:
    with pytest.raises(MalformedRecordError):
        read_version(raw)


def test_other_versions_and_leftovers_are_refused() -> None:
    with pytest.raises(UnknownVersionError):
        decode_versioned(GroupMetadataKey, bytes.fromhex("000300026731"))
    with pytest.raises(MalformedRecordError):
        decode_versioned(GroupMetadataKey, bytes.fromhex("00020002673100"))
