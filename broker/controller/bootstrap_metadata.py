"""What a cluster begins with: what formatting the directory left, or our own (Kafka's BootstrapMetadata)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.common.file_system import FileSystem
from broker.common.identifiers import CLUSTER_METADATA_TOPIC
from broker.controller.metadata_snapshot import SnapshotId, read_checkpoint, write_checkpoint
from broker.metadata.metadata_version import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    MINIMUM_METADATA_VERSION,
)
from broker.schemas.cluster_metadata import FeatureLevelRecord, MetadataRecord

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
METADATA_DIRECTORY: Final = f"{CLUSTER_METADATA_TOPIC}-0"


class BootstrapMetadataError(Exception):
    """The directory was formatted for a release this controller cannot run; the message says which."""


def default_bootstrap_records(metadata_version: int = LATEST_METADATA_VERSION) -> list[MetadataRecord]:
    return [FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=int(metadata_version))]


def write_bootstrap_checkpoint(
    file_system: FileSystem, directory: Path, records: Sequence[MetadataRecord], timestamp_ms: int
) -> None:
    """What formatting a directory leaves for the first start."""
    write_checkpoint(
        file_system,
        directory / BOOTSTRAP_FILE,
        records,
        metadata_version=_metadata_version(records),
        epoch=0,
        timestamp_ms=timestamp_ms,
    )


def read_bootstrap_records(file_system: FileSystem, directory: Path) -> list[MetadataRecord]:
    """The records of the file, or the defaults without one.

    Kafka's format tool writes it beside the metadata log, since 4.1 as that log's snapshot of nothing.
    """
    candidates = (directory / BOOTSTRAP_FILE, directory / METADATA_DIRECTORY / SnapshotId(0, 0).file_name)
    path = next(filter(file_system.exists, candidates), None)
    if path is None:
        return default_bootstrap_records()
    records = read_checkpoint(file_system, path)
    level = _metadata_version(records)
    if not MINIMUM_METADATA_VERSION <= level <= LATEST_METADATA_VERSION:
        raise BootstrapMetadataError(
            f"{path}: metadata.version {level} is not supported; format the directory with a level from "
            f"{MINIMUM_METADATA_VERSION:d} to {LATEST_METADATA_VERSION:d}"
        )
    return records


def _metadata_version(records: Sequence[MetadataRecord]) -> int:
    levels = [
        record.feature_level
        for record in records
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE
    ]
    return levels[-1] if levels else 0
