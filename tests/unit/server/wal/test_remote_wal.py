import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, uuid_to_text
from broker.metrics.exposition import text_parts
from broker.node import Node
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of
from broker.server.wal.remote_wal import RemoteWal, tiered_bucket
from tests.support.builders import broker_config
from tests.support.patience import eventually
from tests.unit.node_support import node_config, running_node
from tests.unit.wal.wal_world import batch, make_object, make_slice

PARTITIONS = 5


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    config = node_config(
        tmp_path / "data",
        remote_wal_storage_system_enable="true",
        remote_wal_storage_manager_class_name="LocalWalStorageManager",
        rwsm_config_bucket=f"file://{bucket}",
        rwlmm_config_remote_wal_log_metadata_topic_num_partitions=str(PARTITIONS),
        rwlmm_config_remote_wal_log_metadata_topic_replication_factor="1",
        broker_rack="a",
    )
    async with running_node(config) as started:
        yield started


def wal_of(node: Node) -> RemoteWal:
    assert node.broker is not None and node.broker.wal is not None
    return node.broker.wal


async def test_a_broker_with_a_bucket_has_the_metadata_topic_and_reads_its_own_events(node: Node) -> None:
    wal = wal_of(node)
    own = combined_event_partition_of(1, PARTITIONS)
    await eventually(lambda: wal.topic.position(own) is not None, "its own events are read")
    assert wal.topic.partition_count == PARTITIONS
    assert node.broker is not None
    assert node.broker.cache.topic(REMOTE_WAL_LOG_METADATA_TOPIC) is not None


async def test_what_it_announces_comes_back_as_its_own_objects(node: Node) -> None:
    """Those of other brokers are theirs to delete."""
    wal = wal_of(node)
    await eventually(lambda: wal.topic.partition_count is not None, "the topic is there")
    assert node.broker is not None
    key = f"wal/{node.broker.identity.cluster_id}/1/7/2026010100/{1:016x}-{uuid_to_text(UUID(int=1))}.wal"
    made = make_object([make_slice(batch(0))], key=key).metadata
    theirs = dataclasses.replace(made, broker_id=2, object_key=key.replace("/1/7/", "/2/7/"))
    await wal.publisher.publish(theirs)
    await wal.publisher.publish(made)
    await eventually(lambda: wal.objects.holds(key), "the object is known")
    assert len(wal.objects) == 1


async def test_who_looks_for_orphans_hears_of_another_topic(node: Node) -> None:
    wal = wal_of(node)
    orphans = wal.sweeper._orphans
    orphans._candidates = ["listed"]
    wal.topic.consumer._begin_all_again()
    assert orphans._candidates == []


async def test_it_is_measured(node: Node) -> None:
    wal_of(node).stats.of("t").copy_bytes += 7
    text = b"".join(text_parts(node.registry)).decode()
    assert 'remotewalcopybytes_total{topic="t"} 7' in text
    assert 'broker_cost_dollars_total{item="put"} 0' in text


@pytest.mark.parametrize(
    ("enabled", "bucket", "expected"),
    [
        ("true", "s3://tiered/", "s3://tiered"),
        ("true", "file:///mnt//bucket/", "file:///mnt/bucket"),
        ("true", None, None),  # a manager of one's own may need none
        ("false", "s3://tiered", None),
    ],
)
def test_the_bucket_of_tiered_storage_is_told_apart(enabled: str, bucket: str | None, expected: str | None) -> None:
    properties = {
        "remote.log.storage.system.enable": enabled,
        "remote.log.storage.manager.class.name": "a.manager.of.ones.Own",
        **({} if bucket is None else {"rsm.config.bucket": bucket}),
    }
    assert tiered_bucket(broker_config(properties)) == expected


async def test_without_the_setting_there_is_none_of_it(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as plain:
        assert plain.broker is not None
        assert plain.broker.wal is None and plain.broker.wal_reading is None
        assert plain.broker.cache.topic(REMOTE_WAL_LOG_METADATA_TOPIC) is None
