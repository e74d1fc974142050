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


def found_in(cache: RemoteLogMetadataCache, epoch: int) -> list[str]:
    """Where another segment, or none, is found than one offset before."""
    runs, last = [], ""
    for offset in range(61):
        one = cache.remote_log_segment_metadata(epoch, offset)
        found = "-" if one is None else str(one.segment_id.int)
        if found != last:
            runs.append(f"{offset}:{found}")
        last = found
    return runs


def test_there_are_histories() -> None:
    assert len(histories()) == 60


@pytest.mark.parametrize("number", range(60))
def test_the_cache_of_apache_kafka(number: int) -> None:
    history = histories()[number]
    cache = replayed(history)
    answers = [line for line in history if line[0] == "epoch"]
    assert len(answers) == 8
    for _, epoch, highest, ids, runs in answers:
        assert str(cache.highest_offset_for_epoch(int(epoch))) == ("None" if highest == "-" else highest)
        assert found_in(cache, int(epoch)) == runs.split(",")
        listed = cache.list_remote_log_segments(int(epoch))
        starts = [each.start_offset for each in listed]
        assert starts == sorted(starts)
        theirs = set() if ids == "-" else {int(one) for one in ids.split(",")}
        assert theirs <= {each.segment_id.int for each in listed}
        # Kafka forgets a segment when one that reaches less far takes its place: ours is listed still, and deletable.
        forgotten = {each.segment_id.int: each.state for each in listed if each.segment_id.int not in theirs}
        assert all(state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for state in forgotten.values())
        assert not forgotten.keys() & {int(run.split(":")[1]) for run in runs.split(",") if not run.endswith("-")}


def test_what_apache_kafka_forgets_is_rare() -> None:
    more = 0
    for history in histories():
        cache = replayed(history)
        for _, epoch, _, ids, _ in (line for line in history if line[0] == "epoch"):
            more += len(cache.list_remote_log_segments(int(epoch))) - (0 if ids == "-" else len(ids.split(",")))
    assert 0 < more < 20, more
