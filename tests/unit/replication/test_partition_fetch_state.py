from pathlib import Path

import pytest

from broker.common.errors import NotLeaderOrFollowerError
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.producer_snapshot import encode_snapshot
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLogState
from tests.unit.replication.follower_world import FollowerWorld, records


def test_a_log_without_epochs_begins_at_its_high_watermark(tmp_path: Path) -> None:
    state = FollowerWorld(tmp_path).state()
    assert (state.is_truncating, state.fetch_offset, state.last_fetched_epoch, state.lag) == (True, 0, -1, None)
    assert not state.is_ready(10.0)


def test_a_log_with_epochs_begins_at_its_end(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.replica().append(records(0, "a", "b", epoch=0))
    state = world.state()
    assert (state.is_truncating, state.fetch_offset, state.last_fetched_epoch) == (False, 2, 0)
    assert state.request(100) == FollowerFetch(world.partition().topic_id, 2, 0, 0, 0, 100)


def test_an_epoch_that_was_begun_without_a_record_is_not_reported(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.replica().append(records(0, "a", epoch=0))
    world.place(leader=1, leader_epoch=1)
    assert world.partition().log.latest_epoch == 1
    world.place(leader=2, leader_epoch=2)
    assert world.state().last_fetched_epoch == 0


def test_the_same_request_is_asked_until_something_moves(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    replica = world.replica()
    replica.append(records(0, "a", "b"))
    state = PartitionFetchState(replica)
    first = state.request(100)
    assert state.request(100) is first
    assert state.awaits(first)
    assert state.request(200) is not first
    replica.update_offsets(2, 1)
    assert state.request(200).log_start_offset == 1
    replica.append(records(2, "c", epoch=0))
    before = state.request(200)
    state.continue_at_end()
    assert not state.awaits(before)
    assert state.request(200).fetch_offset == 3


def test_nothing_is_awaited_after_a_stop_or_in_another_epoch(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.replica().append(records(0, "a"))
    state, other = world.state(), world.state()
    request, asked = state.request(100), other.request(100)
    state.stop()
    assert not state.awaits(request)
    world.place(leader=2, leader_epoch=1)
    assert not other.awaits(asked)
    with pytest.raises(NotLeaderOrFollowerError):
        other.request(100)


def test_a_delay_is_not_prolonged_and_a_brief_one_grows(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.replica().append(records(0, "a"))
    state = world.state()
    state.delay(10.0, 1.0)
    state.delay(10.5, 1.0)
    assert (state.delayed_until, state.is_ready(10.9), state.is_ready(11.0)) == (11.0, False, True)
    now, delays = 20.0, []
    for _ in range(7):
        state.delay_briefly(now, 1.0)
        delays.append(round(state.delayed_until - now, 3))
        now = state.delayed_until
    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    state.continue_at_end()
    state.delay_briefly(now, 1.0)
    assert state.delayed_until == pytest.approx(now + 0.05)


def test_nothing_is_asked_for_during_a_reset(tmp_path: Path) -> None:
    world = FollowerWorld(tmp_path)
    world.replica().append(records(0, "a"))
    state = world.state()
    request = state.request(100)
    state.begin_reset()
    assert (state.is_ready(0.0), state.awaits(request)) == (False, True)
    state.restore_from_remote(RemoteLogState(90, (EpochEntry(0, 20), EpochEntry(3, 80)), encode_snapshot(())), 20)
    assert (state.is_ready(0.0), state.awaits(request)) == (False, False)
    state.end_reset()
    assert state.is_ready(0.0)
    asked = state.request(100)
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (90, 3, 20)
