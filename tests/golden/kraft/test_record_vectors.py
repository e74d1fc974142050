"""Records of cluster metadata against bytes from Apache Kafka's serializers: read, and written back equal."""

from pathlib import Path
from uuid import UUID

import pytest

from broker.common.identifiers import ZERO_UUID
from broker.schemas import cluster_metadata as records
from broker.schemas.message_codec import MalformedRecordError
from tests.golden.vectors import lines_of

VECTORS = lines_of(Path(__file__).with_name("record_vectors.txt"))
ID = UUID("00000000-0000-1234-0000-000000000005")


def vector(name: str, version: int) -> bytes:
    (found,) = (text for vector_name, number, text in VECTORS if (vector_name, int(number)) == (name, version))
    return bytes.fromhex(found)


def test_there_are_34_of_them() -> None:
    assert len(VECTORS) == 34


@pytest.mark.parametrize(("name", "version", "text"), VECTORS)
def test_read_and_written_back_equal(name: str, version: str, text: str) -> None:
    record = records.decode(bytes.fromhex(text))
    assert type(record).__name__ == name
    assert records.encode(record, int(version)).hex() == text


@pytest.mark.parametrize("text", sorted({text for _, _, text in VECTORS}))
def test_a_byte_too_many_or_too_few_is_refused(text: str) -> None:
    raw = bytes.fromhex(text)
    with pytest.raises(MalformedRecordError):
        records.decode(raw + b"\x00")
    with pytest.raises(MalformedRecordError):
        records.decode(raw[:-1])


def test_a_partition() -> None:
    assert records.decode(vector("PartitionRecord", 2)) == records.PartitionRecord(
        partition_id=3,
        topic_id=ID,
        replicas=(1, 2),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID("00000000-0000-0007-0000-000000000000"), ZERO_UUID),
        last_known_elr=(9,),
    )


def test_a_partition_change() -> None:
    assert records.decode(vector("PartitionChangeRecord", 2)) == records.PartitionChangeRecord(
        partition_id=3,
        topic_id=ID,
        isr=(),
        leader=-1,
        eligible_leader_replicas=(1,),
        last_known_elr=(),
        directories=(UUID("00000000-0000-0007-0000-000000000000"), UUID(int=1)),
    )


def test_a_broker_registration() -> None:
    assert records.decode(vector("RegisterBrokerRecord", 3)) == records.RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=ID,
        broker_epoch=77,
        end_points=(records.BrokerEndpoint(name="PLAINTEXT", host="h", port=65535, security_protocol=0),),
        features=(records.BrokerFeature(name="metadata.version", min_supported_version=1, max_supported_version=22),),
        rack=None,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=(UUID("00000000-0000-0007-0000-000000000000"),),
    )


def test_a_broker_registration_change() -> None:
    assert records.decode(vector("BrokerRegistrationChangeRecord", 2)) == records.BrokerRegistrationChangeRecord(
        broker_id=1,
        broker_epoch=5,
        fenced=-1,
        in_controlled_shutdown=1,
        log_dirs=(UUID("00000000-0000-0007-0000-000000000000"),),
    )


@pytest.mark.parametrize(("topic", "text"), [("t", "011c00027400"), ("", "011c000100")])
def test_clearing_eligible_leader_replicas(topic: str, text: str) -> None:
    record = records.ClearElrRecord(topic_name=topic)
    assert records.encode(record).hex() == text  # as Apache Kafka 4.4.0 writes it
    assert records.decode(bytes.fromhex(text)) == record
