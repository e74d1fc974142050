"""What is said of objects: listings, heads, uploads in parts, and the limits S3 sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DELETE_MANY_MAX: Final = 1000  # keys in one DeleteObjects request of S3
LIST_PAGE_MAX: Final = 1000  # objects in one page of ListObjectsV2
PARTS_MAX: Final = 10_000  # parts of one upload of S3
PART_SIZE_MIN_BYTES: Final = 5 << 20  # of S3, for every part but the last


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing.  S3 tells the time of its last change in whole seconds."""

    key: str
    size_bytes: int
    last_modified_ms: int


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What is known of an object without reading it; `crc32c` is that of all its bytes, None when not asked for or
    not kept (objects that were put in parts, stores without checksums)."""

    size_bytes: int
    last_modified_ms: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class ListPage:
    """Some objects, in no order, and where to go on; None at the end."""

    objects: Sequence[ObjectInfo]
    continuation: str | None


@dataclass(frozen=True, slots=True)
class FolderPage:
    """Some folders, each as the beginning of its objects' keys, in no order, and where to go on; None at the end."""

    folders: Sequence[str]
    continuation: str | None


@dataclass(frozen=True, slots=True)
class PartSizes:
    """How a file is cut: at most `parallel` parts of `part_size_bytes` of one file are in memory at once."""

    part_size_bytes: int = 8 << 20
    parallel: int = 2

    def part_size_for(self, size_bytes: int) -> int:
        """Larger parts for a file that would need more of them than S3 takes."""
        return max(self.part_size_bytes, -(-size_bytes // PARTS_MAX))


@dataclass(frozen=True, slots=True)
class Upload:
    """An object that is put in parts, and not there before it is complete."""

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """One part, numbered from 1; `tag` is the store's name for its content."""

    number: int
    size_bytes: int
    crc32c: int
    tag: str
