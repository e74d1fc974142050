import pytest
from structlog.testing import capture_logs

from broker.common.errors import ErrorCode, ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_log_metadata import RemotePartitionDeleteState
from broker.tiering.remote_log_metadata_cache import EventOutcome
from broker.tiering.remote_log_segment_metadata import RemotePartitionDeleteMetadata
from broker.tiering.remote_partition_metadata_store import RemotePartitionMetadataStore

from .segment_world import DELETED, DELETING, FINISHED, PARTITION, STARTED, segment, update

OTHER = PARTITION._replace(partition=1)
APPLIED, ILLEGAL, UNKNOWN = EventOutcome.APPLIED, EventOutcome.ILLEGAL_TRANSITION, EventOutcome.UNKNOWN_SEGMENT


def store_of_two() -> RemotePartitionMetadataStore:
    """PARTITION is known whole, with a segment; OTHER is still being read."""
    store = RemotePartitionMetadataStore()
    store.assign([PARTITION, OTHER])
    assert store.apply(segment(1, 0, 9)) is APPLIED
    assert store.apply(update(1, FINISHED)) is APPLIED
    store.mark_initialized(PARTITION)
    return store


def deletion(state: int) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(PARTITION, 1, 7000, RemotePartitionDeleteState(state))


def test_what_is_known_of_a_partition() -> None:
    store = store_of_two()
    found = store.remote_log_segment_metadata(PARTITION, 0, 5)
    assert found is not None and found.segment_id.int == 1
    assert store.remote_log_segment_metadata(PARTITION, 0, 10) is None
    assert store.highest_offset_for_epoch(PARTITION, 0) == 9
    assert list(store.list_remote_log_segments(PARTITION)) == [found]
    assert list(store.list_remote_log_segments(PARTITION, 0)) == [found]
    assert list(store.list_remote_log_segments(PARTITION, 1)) == []
    assert store.remote_log_size(PARTITION, 0) == 100


def test_whoever_goes_by_an_answer_hears_when_it_is_true_no_more() -> None:
    store = store_of_two()
    lost: list[tuple[TopicIdPartition, int | None]] = []
    store.watch_losses(lambda partition, found: lost.append((partition, found and found.segment_id.int)))
    store.apply(segment(2, 10, 19))
    store.apply(update(2, DELETING))  # nobody could read it
    store.apply(update(2, DELETED))
    store.apply(update(1, FINISHED))
    assert lost == []
    for state in (DELETING, DELETING, DELETED):
        store.apply(update(1, state))
    assert lost == [(PARTITION, 1)]
    for number in range(3):
        store.apply(deletion(number))
    assert lost == [(PARTITION, 1), (PARTITION, None)]
    store.unassign([OTHER])
    store.unassign([OTHER])
    assert lost[2:] == [(OTHER, None)]


def test_9_nothing_is_answered_before_everything_is_known() -> None:
    store = store_of_two()
    assert store.apply(segment(2, 0, 9, partition=OTHER)) is APPLIED
    questions = [
        lambda: store.remote_log_segment_metadata(OTHER, 0, 5),
        lambda: store.highest_offset_for_epoch(OTHER, 0),
        lambda: store.list_remote_log_segments(OTHER),
        lambda: store.list_remote_log_segments(OTHER, 0),
        lambda: store.remote_log_size(OTHER, 0),
    ]
    for ask in questions:
        with pytest.raises(ReplicaNotAvailableError, match="topic-1 is not known yet"):
            ask()
    assert ReplicaNotAvailableError.code is ErrorCode.replica_not_available
    assert (store.is_initialized(PARTITION), store.is_initialized(OTHER)) == (True, False)
    store.mark_initialized(OTHER)
    assert [each.segment_id.int for each in store.list_remote_log_segments(OTHER)] == [2]


def test_partitions_do_not_mix() -> None:
    store = store_of_two()
    store.mark_initialized(OTHER)
    assert store.apply(update(1, FINISHED, partition=OTHER)) is UNKNOWN
    assert list(store.list_remote_log_segments(OTHER)) == []


def test_what_is_unassigned_is_forgotten() -> None:
    store = store_of_two()
    store.unassign([PARTITION])
    assert store.partitions == {OTHER}
    assert store.apply(segment(2, 10, 19)) is UNKNOWN
    with pytest.raises(ReplicaNotAvailableError):
        store.list_remote_log_segments(PARTITION)
    store.assign([PARTITION])
    with pytest.raises(ReplicaNotAvailableError):
        store.list_remote_log_segments(PARTITION)
    store.mark_initialized(PARTITION)
    assert list(store.list_remote_log_segments(PARTITION)) == []


def test_assigning_again_changes_nothing() -> None:
    store = store_of_two()
    store.assign([PARTITION, OTHER])
    assert store.is_initialized(PARTITION)
    assert len(store.list_remote_log_segments(PARTITION)) == 1


def test_an_update_without_its_segment_is_worth_a_warning_only_later() -> None:
    store = store_of_two()
    with capture_logs() as logs:
        assert store.apply(update(7, FINISHED, partition=OTHER)) is UNKNOWN
    assert logs == []
    with capture_logs() as logs:
        assert store.apply(update(7, FINISHED)) is UNKNOWN
    assert [(each["event"], each["partition"]) for each in logs] == [
        ("remote_segment_update_of_unknown_segment", "topic-0")
    ]


def test_6_events_in_a_state_they_cannot_have_are_dropped() -> None:
    store = store_of_two()
    with capture_logs() as logs:
        assert store.apply(segment(2, 10, 19, state=FINISHED)) is ILLEGAL
        assert store.apply(update(1, STARTED)) is ILLEGAL
    assert [each["event"] for each in logs] == ["remote_segment_event_dropped"] * 2
    assert [(each.segment_id.int, each.state) for each in store.list_remote_log_segments(PARTITION)] == [(1, FINISHED)]


def test_5_an_illegal_transition_is_dropped_and_what_follows_is_applied() -> None:
    store = store_of_two()
    with capture_logs() as logs:
        assert store.apply(segment(1, 0, 9)) is ILLEGAL
    assert [(each["state"], each["target"]) for each in logs] == [("COPY_SEGMENT_FINISHED", "COPY_SEGMENT_STARTED")]
    assert store.apply(segment(2, 10, 19)) is APPLIED


def test_a_partition_that_is_deleted_has_no_segments() -> None:
    store = store_of_two()
    assert store.apply(deletion(1)) is ILLEGAL
    assert [store.apply(deletion(state)) for state in (0, 0, 1)] == [APPLIED] * 3
    assert len(store.list_remote_log_segments(PARTITION)) == 1
    assert store.apply(deletion(2)) is APPLIED
    assert list(store.list_remote_log_segments(PARTITION)) == []
    assert store.apply(deletion(0)) is ILLEGAL
