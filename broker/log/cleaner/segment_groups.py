"""Which neighbouring segments become one (Kafka: Cleaner.groupSegmentsBySize)."""

from collections.abc import Sequence
from typing import Final

from broker.log.abstract_index import RELATIVE_OFFSET_MAX
from broker.log.log_segment import LogSegment

SEGMENTS_MAX: Final = 100  # in a group: their files are renamed in one turn of the loop, some ten milliseconds then


def group_segments(
    segments: Sequence[LogSegment], end_offset: int, *, size_max: int, index_size_max: int
) -> list[list[LogSegment]]:
    """`segments`, at least one, in order: those together that fit into one as they are now, by its size, by each of
    its indexes, and by its offsets, which an index keeps relative to the base.  The last one ends at `end_offset`.

    An empty segment is taken along wherever it is: it would stay for ever if the distance to its neighbour was too
    large.
    """
    groups: list[list[LogSegment]] = []
    size = offset_index_size = time_index_size = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size_bytes
        offset_index_size += segment.offset_index.size_bytes
        time_index_size += segment.time_index.size_bytes
        if (
            groups
            and len(groups[-1]) < SEGMENTS_MAX
            and size <= size_max
            and offset_index_size <= index_size_max
            and time_index_size <= index_size_max
            and (segment.size_bytes == 0 or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size, offset_index_size = segment.size_bytes, segment.offset_index.size_bytes
        time_index_size = segment.time_index.size_bytes
    return groups
