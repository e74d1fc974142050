"""The tables of docs/storage-format.md are the schemas of the code, and every file a log writes is on the page."""

import dataclasses
import re
import types
import typing
from typing import Final

import pytest

from broker.controller.bootstrap_metadata import BOOTSTRAP_FILE
from broker.controller.metadata_log import RESERVE_FILE as METADATA_RESERVE_FILE
from broker.controller.metadata_snapshot import CHECKPOINT_SUFFIX
from broker.controller.quorum_state import QUORUM_STATE_FILE
from broker.log import log_file_names, offset_checkpoint_file
from broker.log.leader_epoch_file_cache import LEADER_EPOCH_CHECKPOINT
from broker.log.log_directory import CLEAN_SHUTDOWN_FILE
from broker.log.partition_metadata_file import PARTITION_METADATA
from broker.records.record_batch import BATCH_HEADER_SIZE, HEADER
from broker.schemas import remote_wal_metadata
from broker.server.disk_reserve import RESERVE_FILE
from broker.server.meta_properties import META_PROPERTIES_FILE
from broker.server.wal.wal_metadata_topic import POSITIONS_FILE

from .source_tree import ROOT

PAGE: Final = (ROOT / "docs" / "storage-format.md").read_text()
SIZES: Final = {"int8": "1", "int16": "2", "int32": "4", "uint32": "4", "int64": "8", "uuid": "16"}
CODES: Final = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}
PARTS: Final = (
    remote_wal_metadata.RemoteWalSliceEntry,
    remote_wal_metadata.RemoteLogSegmentIdEntry,
    remote_wal_metadata.TopicIdPartitionEntry,
    remote_wal_metadata.SegmentLeaderEpochEntry,
)
FILES: Final = (
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    METADATA_RESERVE_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA,
    POSITIONS_FILE,
    QUORUM_STATE_FILE,
    RESERVE_FILE,
)


def rows_below(title: str) -> list[list[str]]:
    """The cells of the table that follows this line, without its head."""
    (table,) = re.findall(rf"^{re.escape(title)}\n\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()[2:]]


def described(field: dataclasses.Field[typing.Any]) -> list[str]:
    """Name, type and bytes of a field, as its row has them."""
    kind: typing.Any = field.type
    suffix = ""
    if isinstance(kind, types.UnionType):
        kind, suffix = typing.get_args(kind)[0], ", nullable"
    is_array = typing.get_origin(kind) is tuple
    if is_array:
        kind = typing.get_args(kind)[0]
    name = kind.__name__ if dataclasses.is_dataclass(kind) else field.metadata["kafka_type"]
    size = "varies" if is_array else SIZES.get(name, "varies")
    return [f"`{field.name}`", f"{'array of ' if is_array else ''}{name}{suffix}", size]


@pytest.mark.parametrize("kind", [*remote_wal_metadata.RECORD_TYPES.values(), *PARTS], ids=lambda kind: kind.__name__)
def test_the_fields_of_events_are_those_of_their_classes(kind: typing.Any) -> None:
    assert [row[:3] for row in rows_below(f"**{kind.__name__}**")] == [
        described(field) for field in dataclasses.fields(kind)
    ]


def test_every_kind_of_event_has_its_key() -> None:
    (section,) = re.findall(r"^### `__remote_wal_log_metadata`$(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    listed = {int(key): name for key, name in re.findall(r"^\| (\d+) \| (\w+) \|", section, re.MULTILINE)}
    assert listed == {key: kind.__name__ for key, kind in remote_wal_metadata.RECORD_TYPES.items()}


def test_the_header_of_a_batch_is_where_the_page_says() -> None:
    (table,) = re.findall(r"^\| 0 \| base offset \|.*?\| 61 \| records \|", PAGE, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| (\w+) \|", table, re.MULTILINE)
    assert ">" + "".join(CODES[kind] for _, kind in rows) == HEADER.format
    position = 0
    for at, kind in rows:
        assert int(at) == position
        position += int(SIZES[kind])
    assert position == BATCH_HEADER_SIZE


def test_every_file_of_a_log_is_on_the_page() -> None:
    suffixes = {value for name, value in vars(log_file_names).items() if name.endswith("_SUFFIX")}
    checkpoints = {value for name, value in vars(offset_checkpoint_file).items() if name.endswith("_CHECKPOINT")}
    assert len(suffixes) > 10
    assert len(checkpoints) == 4
    names = {*suffixes, *checkpoints, *FILES, CHECKPOINT_SUFFIX, log_file_names.REMOTE_INDEX_CACHE_DIRECTORY}
    missing = [name for name in sorted(names) if not re.search(rf"{re.escape(name)}(?![\w-])", PAGE)]
    assert not missing
