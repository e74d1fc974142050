"""Records of `__consumer_offsets` and `__transaction_state` against known bytes."""

from pathlib import Path

from broker.schemas import group_metadata, transaction_log
from broker.schemas.group_metadata import (
    GroupMemberMetadata,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata,
    encode_offset_commit,
)
from broker.schemas.keyed_record import encode_versioned
from broker.schemas.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    encode_transaction,
)
from tests.golden.vectors import lines_of

VECTORS = {name: bytes.fromhex(text) for name, text in lines_of(Path(__file__).with_name("vectors.txt"))}
NOW = 1700000000000

COMMIT_KEY = OffsetCommitKey(group="g1", topic="t1", partition=0)
COMMIT = OffsetCommitValue(offset=42, leader_epoch=7, metadata="m", commit_timestamp=NOW)
GROUP_KEY = GroupMetadataKey(group="g1")
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=1,
    protocol="range",
    leader="c-1",
    current_state_timestamp=NOW,
    members=(
        GroupMemberMetadata(
            member_id="c-1",
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout=300_000,
            session_timeout=45_000,
            subscription=bytes.fromhex("0000000000010002743100000000"),
            assignment=bytes.fromhex("00000000000100027431000000010000000000000000"),
        ),
    ),
)
EMPTY_GROUP = GroupMetadataValue(protocol_type="consumer", generation=2, current_state_timestamp=NOW)
SIMPLE_GROUP = GroupMetadataValue(protocol_type="", generation=0, current_state_timestamp=NOW)
TRANSACTION_KEY = TransactionLogKey(transactional_id="tx1")
TRANSACTION = TransactionLogValue(
    producer_id=4000,
    producer_epoch=1,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(TransactionPartitions(topic="t1", partition_ids=(0,)),),
    transaction_last_update_timestamp_ms=NOW + 5,
    transaction_start_timestamp_ms=NOW,
)
EMPTY_TRANSACTION = TransactionLogValue(
    producer_id=4000,
    producer_epoch=0,
    transaction_timeout_ms=60_000,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=NOW,
)


def test_offset_commits() -> None:
    assert encode_offset_commit(COMMIT_KEY, COMMIT) == (VECTORS["OK1"], VECTORS["OV3"])
    assert encode_offset_commit(COMMIT_KEY, None) == (VECTORS["OK1"], None)
    assert group_metadata.decode(VECTORS["OK1"], VECTORS["OV3"]) == (COMMIT_KEY, COMMIT)
    assert group_metadata.decode(VECTORS["OK1"], VECTORS["OV4"]) == (COMMIT_KEY, COMMIT)
    assert group_metadata.decode(VECTORS["OK1"], None) == (COMMIT_KEY, None)
    assert encode_versioned(COMMIT, 4) == VECTORS["OV4"]


def test_an_offset_commit_with_its_own_expiry_has_no_leader_epoch() -> None:
    value = OffsetCommitValue(
        offset=42, leader_epoch=7, metadata="m", commit_timestamp=NOW, expire_timestamp=1700086400000
    )
    assert encode_offset_commit(COMMIT_KEY, value) == (VECTORS["OK1"], VECTORS["OV1"])
    decoded = group_metadata.decode(VECTORS["OK1"], VECTORS["OV1"])
    assert decoded == (
        COMMIT_KEY,
        OffsetCommitValue(offset=42, metadata="m", commit_timestamp=NOW, expire_timestamp=1700086400000),
    )


def test_groups() -> None:
    for value, name in ((GROUP, "GV3"), (EMPTY_GROUP, "GV3e"), (SIMPLE_GROUP, "GV3s")):
        assert encode_group_metadata(GROUP_KEY, value) == (VECTORS["GK2"], VECTORS[name]), name
        assert group_metadata.decode(VECTORS["GK2"], VECTORS[name]) == (GROUP_KEY, value), name
    assert group_metadata.decode(VECTORS["GK2"], None) == (GROUP_KEY, None)


def test_transactions() -> None:
    for value, name in ((TRANSACTION, "TV0"), (EMPTY_TRANSACTION, "TV0e")):
        assert encode_transaction(TRANSACTION_KEY, value) == (VECTORS["TK0"], VECTORS[name]), name
        assert transaction_log.decode(VECTORS["TK0"], VECTORS[name]) == (TRANSACTION_KEY, value), name


def test_a_transaction_in_the_flexible_version() -> None:
    key, value = transaction_log.decode(VECTORS["TK0"], VECTORS["TV1"]) or (None, None)
    assert key == TRANSACTION_KEY
    assert value is not None
    assert (value.client_transaction_version, value.previous_producer_id, value.next_producer_id) == (2, -1, -1)
    assert encode_transaction(TRANSACTION_KEY, value, version=1) == (VECTORS["TK0"], VECTORS["TV1"])
    # Version 0 has no room for it, and writes the rest.
    assert encode_transaction(TRANSACTION_KEY, value, version=0) == (VECTORS["TK0"], VECTORS["TV0"])
