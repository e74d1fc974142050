from typing import get_args
from uuid import UUID

import pytest

from broker.common.identifiers import ZERO_UUID
from broker.schemas import cluster_metadata as records
from broker.schemas.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode,
    encode,
    record_version,
)

ID = UUID(int=7)


def test_every_record_has_a_key_of_its_own() -> None:
    assert sorted(records.RECORD_TYPES) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]
    assert len(records.RECORD_TYPES) == len(get_args(records.MetadataRecord)) == 26


def test_the_latest_version_is_the_default() -> None:
    record = RegisterBrokerRecord(broker_id=1, incarnation_id=ID, broker_epoch=9, log_dirs=(ID,))
    assert encode(record)[2] == 3
    assert encode(record) == encode(record, 3)
    assert decode(encode(record)) == record


def test_defaults_are_those_of_the_schema() -> None:
    broker = RegisterBrokerRecord(broker_id=1, incarnation_id=ID, broker_epoch=9)
    assert (broker.fenced, broker.rack, broker.in_controlled_shutdown, broker.log_dirs) == (True, None, False, ())
    change = PartitionChangeRecord(partition_id=1, topic_id=ID)
    assert (change.leader, change.leader_recovery_state, change.isr, change.directories) == (-2, -1, None, None)
    partition = PartitionRecord(topic_id=ID, replicas=(), isr=(), leader_epoch=0, partition_epoch=0)
    assert (partition.partition_id, partition.leader, partition.leader_recovery_state) == (-1, -1, 0)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == (None, None)
    assert records.ProducerIdsRecord(broker_id=1, next_producer_id=2).broker_epoch == -1
    assert ConfigRecord(resource_type=2, resource_name="t", name="n").value is None


def test_a_partition_change_that_changes_nothing_is_short() -> None:
    record = PartitionChangeRecord(partition_id=1, topic_id=ZERO_UUID)
    assert encode(record).hex() == "010502" + "00000001" + "00" * 16 + "00"
    assert decode(encode(record)) == record


def test_the_empty_isr_and_no_isr_are_different() -> None:
    for isr in (None, ()):
        record = PartitionChangeRecord(partition_id=1, topic_id=ID, isr=isr)
        decoded = decode(encode(record))
        assert isinstance(decoded, PartitionChangeRecord)
        assert decoded.isr == isr


def test_the_zero_id_is_an_id() -> None:
    decoded = decode(encode(TopicRecord(name="t", topic_id=ZERO_UUID)))
    assert decoded == TopicRecord(name="t", topic_id=ZERO_UUID)


@pytest.mark.parametrize(
    ("kind", "versions"),
    [
        (RegisterBrokerRecord, {6: 0, 7: 1, 8: 2, 16: 2, 17: 3, 29: 3}),
        (PartitionRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 29: 2}),
        (PartitionChangeRecord, {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 29: 2}),
        (BrokerRegistrationChangeRecord, {6: 0, 7: 1, 16: 1, 17: 2, 29: 2}),
        (TopicRecord, {7: 0, 29: 0}),
    ],
)
def test_metadata_version_says_which_version_is_written(
    kind: type[records.MetadataRecord], versions: dict[int, int]
) -> None:
    assert {level: record_version(kind, level) for level in versions} == versions


def test_every_record_can_be_written_at_the_highest_level() -> None:
    for kind in records.RECORD_TYPES.values():
        assert record_version(kind, 29) == kind.VERSIONS[-1], kind
