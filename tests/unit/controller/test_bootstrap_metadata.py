from pathlib import Path

import pytest

from broker.common.file_system import OsFileSystem
from broker.controller.bootstrap_metadata import (
    BOOTSTRAP_FILE,
    BootstrapMetadataError,
    default_bootstrap_records,
    read_bootstrap_records,
    write_bootstrap_checkpoint,
)
from broker.controller.metadata_segment import MetadataLogCorruptError
from broker.schemas.cluster_metadata import FeatureLevelRecord


def test_without_a_file_the_cluster_begins_at_our_latest_level(tmp_path: Path) -> None:
    records = read_bootstrap_records(OsFileSystem(), tmp_path)
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=29)]


def test_what_formatting_wrote_is_read_again(tmp_path: Path) -> None:
    records = [*default_bootstrap_records(25), FeatureLevelRecord(name="group.version", feature_level=1)]
    write_bootstrap_checkpoint(OsFileSystem(), tmp_path, records, timestamp_ms=5)
    assert read_bootstrap_records(OsFileSystem(), tmp_path) == records


@pytest.mark.parametrize("level", [6, 30])
def test_levels_we_cannot_run_are_refused(tmp_path: Path, level: int) -> None:
    write_bootstrap_checkpoint(OsFileSystem(), tmp_path, default_bootstrap_records(level), timestamp_ms=5)
    with pytest.raises(BootstrapMetadataError, match=f"metadata.version {level} is not supported.*from 7 to 29"):
        read_bootstrap_records(OsFileSystem(), tmp_path)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    write_bootstrap_checkpoint(OsFileSystem(), tmp_path, default_bootstrap_records(), timestamp_ms=5)
    path = tmp_path / BOOTSTRAP_FILE
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(MetadataLogCorruptError):
        read_bootstrap_records(OsFileSystem(), tmp_path)


def test_the_place_of_newer_format_tools(tmp_path: Path) -> None:
    records = default_bootstrap_records(28)
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    write_bootstrap_checkpoint(OsFileSystem(), directory, records, timestamp_ms=5)
    (directory / BOOTSTRAP_FILE).rename(directory / "00000000000000000000-0000000000.checkpoint")
    assert read_bootstrap_records(OsFileSystem(), tmp_path) == records
