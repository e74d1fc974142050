"""Names of files and directories."""

from pathlib import Path
from uuid import UUID

import pytest

from broker.common.identifiers import TopicPartition
from broker.log.log_file_names import (
    directory_set_aside,
    is_cluster_metadata,
    offset_file_name,
    offset_of_file,
    parse_log_directory,
    segment_paths,
)


def test_offsets_have_twenty_digits() -> None:
    assert offset_file_name(42, ".log") == "00000000000000000042.log"
    assert offset_of_file("00000000000000000042.log.deleted") == 42
    with pytest.raises(ValueError, match="invalid literal"):
        offset_of_file("x.log")


def test_segment_paths() -> None:
    assert [path.name for path in segment_paths(Path("/d"), 7)] == [
        "00000000000000000007.log",
        "00000000000000000007.index",
        "00000000000000000007.timeindex",
        "00000000000000000007.txnindex",
    ]
    assert segment_paths(Path("/d"), 7, ".swap")[0] == Path("/d/00000000000000000007.log.swap")


HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", (TopicPartition("t", 0), "")),
        ("a-b.c-12", (TopicPartition("a-b.c", 12), "")),
        (f"t-3.{HEX}-delete", (TopicPartition("t", 3), "-delete")),
        (f"t-3.{HEX}-future", (TopicPartition("t", 3), "-future")),
        (f"t-3.{HEX}-stray", (TopicPartition("t", 3), "-stray")),
        ("lost+found", None),
        ("t-", None),
        ("-1x", None),
        ("t-x", None),
    ],
)
def test_21_directories(name: str, expected: object) -> None:
    assert parse_log_directory(name) == expected


def test_a_name_set_aside_fits_a_file_system() -> None:
    short = directory_set_aside(TopicPartition("t", 3), UUID(HEX), "-delete")
    assert short == f"t-3.{HEX}-delete"
    long = directory_set_aside(TopicPartition("x" * 249, 3), UUID(HEX), "-delete")
    assert len(long) == 255
    assert parse_log_directory(long) is not None


def test_the_metadata_log_is_not_ours() -> None:
    assert is_cluster_metadata("__cluster_metadata-0")
    assert not is_cluster_metadata("__consumer_offsets-0")
