"""The port's test double keeps what the port promises."""

import asyncio

import pytest

from broker.common.errors import NotEnoughReplicasError, NotLeaderOrFollowerError
from broker.common.identifiers import TopicPartition
from broker.coordinator.partition_writer import PartitionWriter
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from tests.support.memory_partition_writer import MemoryPartitionWriter

TP = TopicPartition("__consumer_offsets", 0)


def test_appends_reads_and_deletes() -> None:
    writer = MemoryPartitionWriter()
    port: PartitionWriter = writer
    seen: list[int] = []
    port.register_listener(TP, seen.append, lambda: pytest.fail("nothing was lost"))
    assert port.append(TP, records_batch((1, b"a", None), (1, b"b", None))) == 2
    assert port.append(TP, records_batch((1, b"c", None))) == 3
    assert seen == [2, 3]
    assert (port.log_start_offset(TP), port.log_end_offset(TP), port.high_watermark(TP)) == (0, 3, 3)
    read = asyncio.run(port.read(TP, 1, 1))
    assert [batch.base_offset for batch in batches(read)] == [0]
    asyncio.run(port.delete_records_before(TP, 2))
    assert port.log_start_offset(TP) == 2
    assert [batch.base_offset for batch in batches(asyncio.run(port.read(TP, 2, 1000)))] == [2]
    port.unregister_listener(TP, seen.append)
    port.append(TP, records_batch((1, b"d", None)))
    assert seen == [2, 3]


def test_a_replica_that_goes_says_so_once() -> None:
    writer = MemoryPartitionWriter()
    seen: list[int] = []
    writer.register_listener(TP, seen.append, lambda: seen.append(-1))
    writer.log(0).lose()
    writer.log(0).lose()
    writer.append(TP, records_batch((1, b"a", None)))
    assert seen == [-1]


def test_refusals() -> None:
    writer = MemoryPartitionWriter()
    writer.log(0).append_error = NotEnoughReplicasError("too few")
    with pytest.raises(NotEnoughReplicasError):
        writer.append(TP, records_batch((1, b"a", None)))
    assert writer.log_end_offset(TP) == 0
    writer.is_leader = False
    with pytest.raises(NotLeaderOrFollowerError):
        writer.log_end_offset(TP)
