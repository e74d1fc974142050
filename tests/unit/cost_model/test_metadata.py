from dataclasses import replace

import pytest

from broker.cost_model.metadata import (
    LINGER_SECONDS,
    combined_batch_bytes,
    combined_partitions,
    metadata_of,
    partitions_read,
    slice_batch_bytes,
    table_bytes,
)
from broker.cost_model.objects import objects_of
from broker.cost_model.plan import Plan
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.server.metadata_topic import topic_queue


def test_one_event_for_each_object_and_one_for_each_slice() -> None:
    plan = Plan(mbps=10, partitions=30)
    objects = objects_of(plan)
    told = metadata_of(plan, objects)
    assert told.combined_records == pytest.approx(3 * objects.per_second)
    assert told.records == pytest.approx(3 * objects.per_second * (1 + objects.slices))
    quiet = metadata_of(replace(plan, slice_events=False), objects)
    assert (quiet.records, quiet.bytes) == (told.combined_records, told.combined_bytes)


def test_what_a_broker_reads() -> None:
    """The objects of all brokers; of the others' slices those that are told of in the partitions it reads."""
    assert combined_partitions(3, 50) == len({combined_event_partition_of(each, 50) for each in (1, 2, 3)}) == 3
    assert combined_partitions(10_000, 50) == 50
    few = Plan(mbps=1, partitions=1)
    assert partitions_read(few) == pytest.approx(3 + 47 / 50)
    assert partitions_read(replace(few, partitions=10_000)) == pytest.approx(50)
    told = metadata_of(few, objects_of(few))
    assert told.records_read == pytest.approx(told.combined_records + told.share_read * told.slice_records)
    assert told.bytes_read < told.bytes
    all_read = metadata_of(replace(few, metadata_partitions=1), objects_of(few))
    assert all_read.bytes_read == pytest.approx(all_read.bytes)


def test_events_grow_by_a_row_for_each_slice() -> None:
    one, two, three = (table_bytes("orders", "s3://b", each) for each in (1, 2, 3))
    assert three - two == two - one > 80
    assert table_bytes("orders", "s3://b", 1.5) == pytest.approx((one + two) / 2)
    assert table_bytes("longer-name", "s3://b", 1) == one + 5
    assert combined_batch_bytes("orders", "s3://b", 3) > combined_batch_bytes("orders", "s3://b", 1)


def test_events_of_slices_that_travel_together_take_less() -> None:
    one, ten = (slice_batch_bytes("orders", "s3://b", each) for each in (1, 10))
    assert one < ten < 10 * one * 0.8
    assert slice_batch_bytes("orders", "s3://b", 512) == pytest.approx(2 * slice_batch_bytes("orders", "s3://b", 256))


def test_the_linger_is_that_of_the_queue() -> None:
    assert LINGER_SECONDS == topic_queue.LINGER_SECONDS
