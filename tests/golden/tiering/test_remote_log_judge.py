"""Remote log metadata as Apache Kafka has it: bytes, lineage, and what its cache says after any history."""

from pathlib import Path
from uuid import UUID

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.remote_log_metadata_cache import RemoteLogMetadataCache
from broker.tiering.remote_log_metadata_events import decode_event, encode_event
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.segment_lineage import SegmentLineage
from tests.golden.vectors import lines_of

PARTITION = TopicIdPartition(UUID(int=(1 << 64) + 2), "topic", 3)
HERE = Path(__file__).parent


def epochs_of(text: str) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(*map(int, entry.split(":"))) for entry in text.split(","))


def segment(number: str, start: str, end: str, epochs: str) -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        PARTITION, UUID(int=int(number)), int(start), int(end), 1, 1, 1, epochs_of(epochs), 100
    )


def test_segments_have_the_bytes_of_apache_kafka() -> None:
    lines = lines_of(HERE / "events.txt")
    assert len(lines) == 30
    for _, number, start, end, max_timestamp, broker, timestamp, size, custom, state, epochs, is_empty, data in lines:
        event = RemoteLogSegmentMetadata(
            partition=PARTITION,
            segment_id=UUID(int=int(number)),
            start_offset=int(start),
            end_offset=int(end),
            broker_id=int(broker),
            max_timestamp_ms=int(max_timestamp),
            event_timestamp_ms=int(timestamp),
            segment_leader_epochs=epochs_of(epochs),
            segment_size_in_bytes=int(size),
            state=RemoteLogSegmentState(int(state)),
            custom_metadata=None if custom == "-" else bytes.fromhex(custom),
            is_txn_index_empty=is_empty == "1",
        )
        assert decode_event(bytes.fromhex(data)) == event
        assert encode_event(event).hex() == data


def test_the_lineage_of_apache_kafka() -> None:
    lines = lines_of(HERE / "lineage.txt")
    assert [line[-1] for line in lines].count("1") == 300 == len(lines) // 2
    for epochs, start, end, log_epochs, log_end, answer in lines:
        is_within = segment("1", start, end, epochs) in SegmentLineage(epochs_of(log_epochs), int(log_end))
        assert is_within is (answer == "1"), (epochs, start, end, log_epochs, log_end)


def histories() -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    for line in lines_of(HERE / "cache.txt"):
        if line == ["history"]:
            found.append([])
        else:
            found[-1].append(line)
    return found


def replayed(history: list[list[str]]) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache(PARTITION)
    for line in history:
        if line[0] == "add":
            cache.add(segment(*line[1:]))
        elif line[0] == "update":
            state = RemoteLogSegmentState(int(line[2]))
            cache.update(RemoteLogSegmentMetadataUpdate(PARTITION, UUID(int=int(line[1])), 1, 1, state))
    return cache


OFFSETS = range(61)


def found_in(cache: RemoteLogMetadataCache, epoch: int) -> list[int | None]:
    """The segment in which each offset is found."""
    found = (cache.remote_log_segment_metadata(epoch, offset) for offset in OFFSETS)
    return [None if segment is None else segment.segment_id.int for segment in found]


def found_by_kafka(runs: str) -> list[int | None]:
    """Of `offset:segment`, where another segment, or none (-), is found than one offset before."""
    starts = dict(run.split(":") for run in runs.split(","))
    found: list[int | None] = []
    for offset in OFFSETS:
        name = starts.get(str(offset))
        found.append(found[-1] if name is None else None if name == "-" else int(name))
    return found


def offsets_of(one: RemoteLogSegmentMetadata, epoch: int) -> range:
    """Those it has of the epoch."""
    start = next((entry.start_offset for entry in one.segment_leader_epochs if entry.epoch == epoch), None)
    return range(0) if start is None else range(start, one.end_offset_for_epoch(epoch) + 1)


def copies_of(history: list[list[str]], epoch: int) -> dict[int, range]:
    """All that were ever begun, and the offsets that each has of the epoch."""
    begun = (segment(*line[1:]) for line in history if line[0] == "add")
    return {one.segment_id.int: offsets_of(one, epoch) for one in begun}


def test_there_are_histories() -> None:
    assert len(histories()) == 60


def has_rival(copies: dict[int, range], number: int) -> bool:
    """Whether another copy has part of what this one has, or all of it: in Kafka the later one, or the one that begins
    last, is asked, whatever it has; and what it hides stays hidden when it is deleted."""
    ours = copies[number]
    others = [each for other, each in copies.items() if other != number and each]
    return any(set(each) <= set(ours) or set(ours) <= set(each) for each in others)


@pytest.mark.parametrize("number", range(60))
def test_the_cache_of_apache_kafka(number: int) -> None:
    history = histories()[number]
    cache = replayed(history)
    answers = [line for line in history if line[0] == "epoch"]
    assert len(answers) == 8
    for _, epoch, highest, ids, runs in answers:
        assert str(cache.highest_offset_for_epoch(int(epoch))) == ("None" if highest == "-" else highest)
        listed = cache.list_remote_log_segments(int(epoch))
        starts = [each.start_offset for each in listed]
        assert starts == sorted(starts)
        kept = set() if ids == "-" else {int(one) for one in ids.split(",")}
        assert kept <= {each.segment_id.int for each in listed}
        # Kafka forgets a segment when one that reaches less far takes its place: ours is listed still, read, deletable.
        forgotten = {each.segment_id.int: each.state for each in listed if each.segment_id.int not in kept}
        assert all(state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for state in forgotten.values())
        copies = copies_of(history, int(epoch))
        readable = {each.segment_id.int for each in listed if each.is_readable}
        for offset, ours, theirs in zip(OFFSETS, found_in(cache, int(epoch)), found_by_kafka(runs), strict=True):
            holding = {number for number in readable if offset in copies[number]}
            assert ours in holding if holding else ours is None, offset
            assert ours == theirs or ours in forgotten or (ours is not None and has_rival(copies, ours)), (offset, ours)


def test_other_answers_than_those_of_apache_kafka_are_rare() -> None:
    more, others, same = 0, 0, 0
    for history in histories():
        cache = replayed(history)
        for _, epoch, _, ids, runs in (line for line in history if line[0] == "epoch"):
            more += len(cache.list_remote_log_segments(int(epoch))) - (0 if ids == "-" else len(ids.split(",")))
            found = list(zip(found_in(cache, int(epoch)), found_by_kafka(runs), strict=True))
            others += sum(ours != theirs for ours, theirs in found)
            same += sum(ours == theirs is not None for ours, theirs in found)
    assert 0 < more < 20, more
    assert 0 < others < same / 20, (others, same)
