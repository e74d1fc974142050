"""The moment in which a compacted segment takes the place of others (Kafka: LocalLog.replaceSegments).

Whatever the moment of a crash, the next start finds the old segments or the new one: complete `.swap` files win over
the plain ones of the offsets they cover, anything less is removed (`log_loader.settle_interrupted_work`).
"""

from collections.abc import Sequence
from pathlib import Path

import structlog

from broker.common.errors import StorageFailure
from broker.log.log_environment import LogEnvironment
from broker.log.log_file_names import SWAP_SUFFIX
from broker.log.log_segment import LogSegment
from broker.log.unified_log import UnifiedLog

log = structlog.get_logger(__name__)


def are_in_place(unified_log: UnifiedLog, sources: Sequence[LogSegment], truncation_count: int) -> bool:
    """Whether the log still has exactly these segments, as they were when it had been cut `truncation_count` times."""
    segments = unified_log.segments
    return (
        not unified_log.is_closed
        and unified_log.truncation_count == truncation_count
        and unified_log.config.is_compact
        and all(segments.get(source.base_offset) is source and source.is_sealed for source in sources)
    )


def swap(
    unified_log: UnifiedLog, cleaned: LogSegment, sources: Sequence[LogSegment], environment: LogEnvironment
) -> bool:
    """Replace `sources`, neighbours that are in place, by `cleaned`, which is on the device.

    In one turn of the loop, so nobody reads in between; reads under way have their files open.  StorageFailure, and
    the log is as it was.  False when the disk refused in the midst of it: the log has the new segment, and the next
    start brings the names in order; until then this log is neither compacted nor cut.
    """
    cleaned.rename(SWAP_SUFFIX)  # a start drops these as long as one is still called .cleaned
    paths: list[Path] = []
    is_complete = False
    try:
        for source in reversed(sources):
            paths += source.rename_deleted()
        cleaned.rename("")
        is_complete = True
    except StorageFailure as failure:
        log.error("swap_not_finished", log=str(unified_log.topic_partition), error=str(failure))
        environment.metrics.storage_failures.increment()
    segments, producers = unified_log.segments, unified_log.producer_state_manager
    for source in sources:
        segments.remove(source.base_offset)
        snapshot = None if source.base_offset == cleaned.base_offset else producers.forget_snapshot(source.base_offset)
        if snapshot is not None:
            paths.append(snapshot)
    segments.add(cleaned)
    cleaned.unload()  # until somebody reads it
    unified_log.local_log.unsynced_directory = True
    unified_log.is_dirty = True
    unified_log.local_log.has_unfinished_swap = not is_complete
    environment.housekeeping.delete_later(paths, unified_log.config.file_delete_delay_ms)
    return is_complete
