from pathlib import Path

import pytest

from broker.common.errors import NotLeaderOrFollowerError
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.log_append import UnexpectedAppendOffsetError
from broker.log.producer_snapshot import encode_snapshot
from broker.replication.remote_log import RemoteLogState
from broker.replication.topic_stats import ReplicationPath
from tests.unit.replication.bucket_world import BucketWorld, some, told
from tests.unit.replication.follower_world import records


def test_an_append_moves_log_offset_and_counts_and_is_told(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state, log = world.bucket_state(), world.partition().log
    found = some(1, "b", "c")
    assert state.append(found) == 3
    assert (log.log_end_offset, state.fetch_offset, state.last_fetched_epoch) == (3, 3, 0)
    assert world.moved == [state]
    state.append(some(3, "d"), sender_id=7)
    stats = world.partition().topic_stats
    assert stats.received_bytes == {
        (ReplicationPath.WAL, 2): found[0].size_bytes,
        (ReplicationPath.WAL, 7): some(3, "d")[0].size_bytes,
    }
    assert stats.replication_bytes_in == 0


def test_the_request_under_way_is_awaited_although_appends_have_overtaken_it(tmp_path: Path) -> None:
    state = BucketWorld(tmp_path).bucket_state()
    request = state.request(100)
    state.append(some(1, "b"))
    state.append(some(2, "c"))
    assert state.awaits(request)
    following = state.request(100)
    assert following.fetch_offset == 3
    assert (state.awaits(request), state.awaits(following)) == (False, True)


def test_after_a_truncation_a_reset_or_a_stop_nothing_asked_before_is_awaited(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    request = state.request(100)
    state.append(some(1, "b"))
    state.truncate_to(1)
    assert not state.awaits(request)
    request = state.request(100)
    state.append(some(1, "b"))
    state.truncate_fully_and_start_at(9)
    assert not state.awaits(request)
    request = state.request(100)
    state.append(some(9, "b"))
    state.stop()
    assert not state.awaits(request)
    assert told(state) == ["truncated", "truncated", "stop"]


def test_what_begins_behind_remote_storage_has_to_agree_anew(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    state.answered(state.request(100), 0)
    request = state.request(100)
    state.restore_from_remote(RemoteLogState(90, (EpochEntry(0, 20),), encode_snapshot(())), 20)
    assert not (state.awaits(request) or state.is_agreed)
    assert (state.fetch_offset, state.last_fetched_epoch, world.partition().log.log_start_offset) == (90, 0, 20)
    assert (told(state), world.moved) == ([(1, 0), "truncated"], [state])


def test_another_epoch_ends_it_all(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    request = state.request(100)
    state.append(some(1, "b"))
    world.place(leader=2, leader_epoch=1)
    assert not state.awaits(request)
    with pytest.raises(NotLeaderOrFollowerError):
        state.append(some(2, "c"))
    world.place(leader=1, leader_epoch=2)
    with pytest.raises(NotLeaderOrFollowerError):
        state.append(some(2, "c"))
    assert world.partition().log.log_end_offset == 2


def test_nothing_is_appended_while_the_log_is_reset(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    state.answered(state.request(100), 0)
    assert state.is_agreed
    state.begin_reset()
    assert not state.is_agreed
    with pytest.raises(NotLeaderOrFollowerError):
        state.append(some(1, "b"))
    state.end_reset()
    assert state.append(some(1, "b")) == 2
    assert told(state) == [(1, 0), "begin_reset", "end_reset"]


def test_nothing_is_appended_to_a_log_that_has_yet_to_be_cut(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    world.partition().log.leader_epochs.clear()
    state = world.bucket_state()
    with pytest.raises(NotLeaderOrFollowerError):
        state.append(some(1, "b"))
    state.truncate_to(state.fetch_offset)
    assert state.append(some(0, "a")) == 1


def test_a_gap_and_what_is_known_are_refused_and_move_nothing(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    request = state.request(100)
    for offset in (0, 2):
        with pytest.raises(UnexpectedAppendOffsetError):
            state.append(some(offset, "x"))
    assert (state.fetch_offset, world.moved, state.request(100) is request) == (1, [], True)


def test_a_later_epochs_batches_are_left_out(tmp_path: Path) -> None:
    state = BucketWorld(tmp_path).bucket_state()
    assert state.append([*some(1, "b"), *some(2, "c", epoch=1)]) == 2


def test_the_high_watermark_known_of_the_leader_counts_as_far_as_the_log_goes(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state, log = world.bucket_state(), world.partition().log
    state.append(some(1, "b"))
    assert (log.high_watermark, state.lag) == (0, None)
    state.leader_high_watermark, state.lag = 3, 1
    state.append(some(2, "c", "d"))
    assert (log.high_watermark, state.lag) == (3, 0)
    state.append(some(4, "e"))
    assert log.high_watermark == 3


def test_the_handshake_is_an_answer_for_the_log_end(tmp_path: Path) -> None:
    world = BucketWorld(tmp_path)
    state = world.bucket_state()
    earlier = state.request(100)
    world.replica().append(records(1, "b"))
    state.continue_at_end()
    state.answered(earlier, 0)
    assert not state.is_agreed
    state.answered(state.request(100), 0)
    assert state.is_agreed
    state.append(some(2, "c"))
    assert state.is_agreed
    state.truncate_to(2)
    assert not state.is_agreed
    assert told(state) == [(1, 0), (2, 0), "truncated"]
