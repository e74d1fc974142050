"""A metadata log that is cut at any byte recovers a whole prefix (behaviour 3)."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.controller.metadata_log import DIRECTORY_NAME, MetadataLog
from broker.controller.metadata_segment import MetadataSegment
from broker.records.memory_records_builder import records_batch
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/data")
LOG = DIRECTORY / DIRECTORY_NAME / "00000000000000000000.log"

batches = st.lists(st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=4), min_size=1, max_size=8)


def written(content: list[list[bytes]]) -> tuple[SimFileSystem, list[int]]:
    """The disk, and where each batch ends in the file."""
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY / DIRECTORY_NAME)
    segment = MetadataSegment(disk, DIRECTORY / DIRECTORY_NAME, 0)
    ends = [0]
    for values in content:
        entries = [(0, None, value) for value in values]
        segment.append(records_batch(*entries, base_offset=segment.next_offset, partition_leader_epoch=1))
        ends.append(segment.size_bytes)
    return disk, ends


def recovered(disk: SimFileSystem) -> MetadataLog:
    log = MetadataLog(disk, DIRECTORY)
    log.open(lambda records, snapshot: None)
    return log


@settings(max_examples=100)
@given(content=batches, cut=st.floats(0, 1), garbage=st.binary(max_size=40))
def test_3_a_cut_and_garbage_behind_it(content: list[list[bytes]], cut: float, garbage: bytes) -> None:
    disk, ends = written(content)
    whole = disk.read(LOG)
    size = int(cut * len(whole))
    disk.overwrite(LOG, whole[:size] + garbage)
    kept = sum(end <= size for end in ends) - 1
    log = recovered(disk)
    expected = sum(len(values) for values in content[:kept])
    if log.end_offset != expected:  # the garbage happened to complete the batch
        assert whole.startswith(disk.read(LOG))
        return
    assert disk.read(LOG) == whole[: ends[kept]]
    log.advance_high_watermark(log.end_offset)
    assert log.read(0, 1 << 20) == whole[: ends[kept]]


@settings(max_examples=100)
@given(content=batches, offset=st.floats(0, 1), size_max=st.integers(0, 400))
def test_reads_are_whole_batches_from_the_one_asked_for(
    content: list[list[bytes]], offset: float, size_max: int
) -> None:
    disk, ends = written(content)
    log = recovered(disk)
    log.advance_high_watermark(log.end_offset)
    bases = [0]
    for values in content:
        bases.append(bases[-1] + len(values))
    wanted = int(offset * (log.end_offset - 1))
    index = max(number for number, base in enumerate(bases) if base <= wanted)
    data = log.read(wanted, size_max)
    whole = disk.read(LOG)
    assert len(data) in [end - ends[index] for end in ends[index + 1 :]]
    assert data == whole[ends[index] : ends[index] + len(data)]
    assert len(data) <= max(size_max, ends[index + 1] - ends[index])
