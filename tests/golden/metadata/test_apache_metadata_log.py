"""A metadata log that Apache Kafka 4.4.0 wrote (metadata.version 29, one combined node) is read, kept and continued.

Made with: `StorageTool format --release-version 4.2`, a broker, then over the wire: two topics created, one grown, one
deleted, configs of a topic and a broker set, an idempotent producer, and a controlled stop.
"""

import shutil
from pathlib import Path

from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicPartition
from broker.controller.bootstrap_metadata import read_bootstrap_records
from broker.controller.metadata_log import MetadataLog
from broker.controller.metadata_snapshot import decode_batch, read_checkpoint
from broker.controller.quorum_state import QuorumState, read_quorum_state
from broker.metadata.configs_image import ConfigResourceType
from broker.records.record_batch import RecordBatch
from broker.schemas import cluster_metadata
from tests.unit.controller.controller_support import running_controller

GOLDEN = Path(__file__).parent / "apache-4.4.0"
BOOTSTRAP = "00000000000000000000-0000000000.checkpoint"


def copy_to(directory: Path) -> Path:
    shutil.copytree(GOLDEN, directory / "__cluster_metadata-0")
    return directory


def golden_batches(directory: Path) -> list[RecordBatch]:
    return MetadataLog(OsFileSystem(), copy_to(directory)).open(lambda records, snapshot: None)


def test_every_record_is_read_and_written_back_equal(tmp_path: Path) -> None:
    names = set()
    for batch in golden_batches(tmp_path):
        if batch.is_control:
            continue
        for record, decoded in zip(batch.records(), decode_batch(batch), strict=True):
            assert record.value is not None
            version = record.value[2]
            assert cluster_metadata.encode(decoded, version) == record.value
            assert version <= cluster_metadata.record_version(type(decoded), 29)
            names.add(type(decoded).__name__)
    assert names >= {
        "BeginTransactionRecord",
        "EndTransactionRecord",
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "RegisterControllerRecord",
        "BrokerRegistrationChangeRecord",
        "TopicRecord",
        "PartitionRecord",
        "PartitionChangeRecord",
        "RemoveTopicRecord",
        "ConfigRecord",
        "ProducerIdsRecord",
    }


def test_our_files_beside_it_are_the_same() -> None:
    assert read_quorum_state(OsFileSystem(), GOLDEN) == QuorumState(1, 1)
    levels = {record.name: record.feature_level for record in read_checkpoint(OsFileSystem(), GOLDEN / BOOTSTRAP)}  # type: ignore[union-attr]
    assert levels["metadata.version"] == 29


def test_the_format_tools_bootstrap_records_are_found(tmp_path: Path) -> None:
    assert read_bootstrap_records(OsFileSystem(), copy_to(tmp_path)) == read_checkpoint(
        OsFileSystem(), GOLDEN / BOOTSTRAP
    )


async def test_our_controller_goes_on_where_apache_kafkas_stopped(tmp_path: Path) -> None:
    copy_to(tmp_path)
    async with running_controller(OsFileSystem(), directory=tmp_path) as controller:
        image = controller.image
        assert controller.leader_epoch == 2
        assert image.features.metadata_version == 29
        assert sorted(image.topics.by_name) == ["orders"]
        assert len(image.topics.by_name["orders"].partitions) == 4
        assert image.configs.properties(ConfigResourceType.TOPIC, "orders") == {
            "retention.ms": "86400000",
            "cleanup.policy": "compact",
        }
        assert image.configs.properties(ConfigResourceType.BROKER, "1") == {"log.cleaner.threads": "2"}
        assert image.brokers[1].fenced
        partition = image.topics.partition(TopicPartition("orders", 0))
        assert partition is not None
        assert (partition.replicas, partition.leader) == ((1,), -1)
