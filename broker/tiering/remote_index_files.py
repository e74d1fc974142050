"""The files of the index cache: three to a remote segment, in functions that run in a thread and share no state."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.file_system import FileSystem, write_file_atomically
from broker.common.identifiers import uuid_from_text, uuid_to_text
from broker.log.abstract_index import CorruptIndexError
from broker.log.log_file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from broker.log.offset_index import OffsetIndex
from broker.log.time_index import TimeIndex
from broker.log.transaction_index import TransactionIndex
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata

SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
TRANSACTION_ENTRY_BYTES: Final = 34

_NAME: Final = re.compile(r"(?P<stem>\d+_(?P<segment_id>[A-Za-z0-9_-]{22}))(?P<suffix>\.[a-z]+)(?P<aside>\.[a-z]+)?")


class RemoteIndexes(NamedTuple):
    """The indexes of a remote segment, loaded: nothing is read any more when they are asked."""

    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex


class IndexFiles(NamedTuple):
    """`{start offset}_{segment id}` and the three suffixes; `size_bytes` of all three together."""

    stem: str
    size_bytes: int

    def paths(self, directory: Path) -> tuple[Path, Path, Path]:
        offset, time, transaction = (directory / f"{self.stem}{suffix}" for suffix in SUFFIXES)
        return offset, time, transaction


def index_files(segment: RemoteLogSegmentMetadata, contents: tuple[bytes, bytes, bytes]) -> IndexFiles:
    """What the files of these contents will be."""
    return IndexFiles(f"{segment.start_offset}_{uuid_to_text(segment.segment_id)}", sum(map(len, contents)))


def write_files(
    file_system: FileSystem, directory: Path, files: IndexFiles, contents: tuple[bytes, bytes, bytes]
) -> None:
    """Durable before they have their names: an index that a power cut emptied would be a wrong one.  StorageFailure."""
    for path, content in zip(files.paths(directory), contents, strict=True):
        write_file_atomically(file_system, path, content)


def load_files(
    file_system: FileSystem, directory: Path, files: IndexFiles, segment: RemoteLogSegmentMetadata
) -> RemoteIndexes:
    """CorruptIndexError when they are not all there, or cannot be this segment's."""
    paths = files.paths(directory)
    try:
        sizes = [file_system.size(path) for path in paths]
    except FileNotFoundError as error:
        raise CorruptIndexError(f"{directory / files.stem}: one of three files is gone") from error
    if sum(sizes) != files.size_bytes or sizes[2] % TRANSACTION_ENTRY_BYTES:
        raise CorruptIndexError(f"{directory / files.stem}: {sizes} bytes are not what they were")
    base, last = segment.start_offset, segment.end_offset
    indexes = RemoteIndexes(
        OffsetIndex(file_system, paths[0], base, sizes[0], exists=True),
        TimeIndex(file_system, paths[1], base, sizes[1], exists=True),
        TransactionIndex(file_system, paths[2], base, exists=True),
    )
    for index in indexes:
        index.sanity_check()
    aborted = indexes.transaction_index.entries()
    end = indexes.offset_index.lookup(last)
    if (
        max(indexes.offset_index.last_offset, indexes.time_index.last_entry.offset) > last
        or not 0 <= end.position < max(segment.segment_size_in_bytes, 1)
        or (aborted and aborted[-1].last_offset > last)
    ):
        raise CorruptIndexError(f"{directory / files.stem}: entries are beyond the segment's end")
    return indexes


def find_files(file_system: FileSystem, directory: Path) -> Iterator[tuple[UUID, IndexFiles]]:
    """What an earlier run left, the oldest first; parts of it are removed.  Makes the directory.  StorageFailure."""
    file_system.make_directories(directory)
    stems: dict[str, dict[str, Path]] = {}
    ids: dict[str, UUID] = {}
    for name in file_system.list_directory(directory):
        match = _NAME.fullmatch(name)
        if match is None or match["suffix"] not in SUFFIXES:
            continue  # nobody's we know
        if match["aside"] in (TEMPORARY_SUFFIX, DELETED_SUFFIX):
            file_system.remove(directory / name)
        elif match["aside"] is None:
            stems.setdefault(match["stem"], {})[match["suffix"]] = directory / name
            ids[match["stem"]] = uuid_from_text(match["segment_id"])
    found = []
    for stem, paths in stems.items():
        if len(paths) == len(SUFFIXES):
            changed_ms = max(map(file_system.modified_ms, paths.values()))
            found.append((changed_ms, stem, sum(map(file_system.size, paths.values()))))
        else:
            remove_files(file_system, tuple(paths.values()))
    for _, stem, size_bytes in sorted(found):
        yield ids[stem], IndexFiles(stem, size_bytes)


def remove_files(file_system: FileSystem, paths: tuple[Path, ...]) -> None:
    """What was begun under the names goes as well.  StorageFailure."""
    for path in paths:
        file_system.remove(path)
        file_system.remove(path.with_name(path.name + TEMPORARY_SUFFIX))
