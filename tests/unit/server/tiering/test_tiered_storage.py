import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.broker_server import BrokerServer
from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from broker.config.setting import ConfigError
from broker.metrics.exposition import text_parts
from broker.node import Node
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from broker.replication.remote_log import RemoteFetch
from broker.server.auto_topic_creation_manager import CREATE_TOPICS_VERSION, creatable_topic
from broker.server.topic_spec import TopicSpec
from tests.support.builders import batch
from tests.support.patience import PATIENCE, eventually
from tests.unit.node_support import node_config, running_node

ORDERS = TopicPartition("orders", 0)
METADATA_PARTITIONS = 3
BATCHES = 4  # each a segment, of which the last is the active one


def settings_of(directory: Path, **changes: str) -> dict[str, str]:
    bucket = directory / "bucket"
    bucket.mkdir(exist_ok=True)
    return {
        "remote_log_storage_system_enable": "true",
        "remote_log_storage_manager_class_name": "LocalTieredStorage",
        "remote_log_manager_task_interval_ms": "20",
        "rsm_config_bucket": f"file://{bucket}",
        "rlmm_config_remote_log_metadata_topic_num_partitions": str(METADATA_PARTITIONS),
        "rlmm_config_remote_log_metadata_topic_replication_factor": "1",
        **changes,
    }


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(node_config(tmp_path / "data", **settings_of(tmp_path))) as started:
        yield started


def broker_of(node: Node) -> BrokerServer:
    assert node.broker is not None
    return node.broker


async def create(broker: BrokerServer) -> None:
    configs = {"remote.storage.enable": "true", "internal.segment.bytes": "200", "retention.ms": "-1"}
    request = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION).CreateTopicsRequest(
        topics=(creatable_topic(TopicSpec(ORDERS.topic, 1, 1, configs)),),
        timeout=PATIENCE,
        validate_only=False,
    )
    await broker.forwarding.send(request)
    await eventually(lambda: broker.replicas.hosted_partition(ORDERS), "it is led")


async def fill(broker: BrokerServer) -> None:
    await create(broker)
    for number in range(BATCHES):
        broker.replicas.append_now(ORDERS, batch(b"%d" % number * 80))
    local = broker.replicas.partition(ORDERS).log
    await eventually(lambda: local.highest_remote_offset == BATCHES - 2, "segments are copied")


async def test_closed_segments_are_copied_and_read_back(node: Node, tmp_path: Path) -> None:
    broker = broker_of(node)
    await fill(broker)
    assert len(list((tmp_path / "bucket").rglob("*.log"))) == BATCHES - 1
    assert broker.tiered_reading is not None
    partition = broker.replicas.partition(ORDERS)
    found = await broker.tiered_reading.access.fetch(RemoteFetch(partition, 1, 1 << 20, True, BATCHES, False))
    assert [each.base_offset for each in batches(found.records)] == [1]


async def test_the_metadata_topic_is_made_as_the_settings_say(node: Node) -> None:
    broker = broker_of(node)
    await eventually(lambda: broker.cache.topic(REMOTE_LOG_METADATA_TOPIC), "the topic is there")
    topic = broker.cache.topic(REMOTE_LOG_METADATA_TOPIC)
    assert topic is not None
    assert len(topic.partitions) == METADATA_PARTITIONS
    assert broker.repository.topic_config(REMOTE_LOG_METADATA_TOPIC).retention_ms == -1


async def test_it_is_measured(node: Node) -> None:
    await fill(broker_of(node))
    text = b"".join(text_parts(node.registry)).decode()
    assert f'remotecopyrequests_total{{topic="orders"}} {BATCHES - 1}' in text
    assert "broker_remote_index_cache_bytes 0" in text


@pytest.mark.parametrize("chunks", [0, 3])
async def test_how_far_reads_look_ahead_is_a_setting(tmp_path: Path, chunks: int) -> None:
    settings = settings_of(tmp_path, wherry_remote_log_read_ahead_chunks=str(chunks))
    async with running_node(node_config(tmp_path / "data", **settings)) as started:
        reading = broker_of(started).tiered_reading
        assert reading is not None
        assert reading.chunks.read_ahead_chunks == chunks


async def test_a_metadata_topic_of_another_size_ends_the_broker(tmp_path: Path) -> None:
    """What is told of a partition would be looked for in another place."""
    async with running_node(node_config(tmp_path / "data", **settings_of(tmp_path))) as first:
        await eventually(lambda: broker_of(first).cache.topic(REMOTE_LOG_METADATA_TOPIC), "the topic is there")
    told: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    changed = {"rlmm_config_remote_log_metadata_topic_num_partitions": str(METADATA_PARTITIONS + 1)}
    async with running_node(node_config(tmp_path / "data", **settings_of(tmp_path, **changed))):
        await eventually(lambda: told, "it is told")
    assert str(METADATA_PARTITIONS + 1) in str(told[0])


@pytest.mark.parametrize("name", ["Nothing", "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"])
async def test_a_broker_does_not_start_with_a_storage_manager_that_there_is_not(tmp_path: Path, name: str) -> None:
    settings = settings_of(tmp_path, remote_log_storage_manager_class_name=name)
    with pytest.raises(ConfigError, match=rf"^remote\.log\.storage\.manager\.class\.name={name} .*"):
        async with running_node(node_config(tmp_path / "data", **settings)):
            pass


async def test_without_the_setting_there_is_none_of_it(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as plain:
        broker = broker_of(plain)
        assert broker.tiered is None and broker.tiered_reading is None
        assert broker.cache.topic(REMOTE_LOG_METADATA_TOPIC) is None
