from pathlib import Path

import pytest

from broker.common.errors import StorageFailure
from broker.common.identifiers import TopicPartition
from broker.replication.fetch_plan import FetchPlan
from broker.replication.follower_replica import FollowerReplica
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.replication_throttle import ReplicationThrottle
from tests.unit.replication.follower_world import FollowerWorld, T, records

U = TopicPartition("u", 0)


class PlanWorld(FollowerWorld):
    """t-0 and u-0 follow broker 2."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"follower.replication.throttled.rate": "1000"})
        self.create_topic("u", replicas=(2, 1), leader=2, configs={"follower.replication.throttled.replicas": "0:1"})
        self.errors: list[tuple[TopicPartition, Exception]] = []
        self.throttle = ReplicationThrottle(
            1, self.config, lambda: 0, lambda current: current.follower_replication_throttled_rate
        )
        self.plan = FetchPlan(self.config, self.throttle, lambda state, error: self._on_error(state, error))
        self.t, self.u = self._state("t"), self._state("u")
        self.plan.add(self.t)
        self.plan.add(self.u)

    def _state(self, topic: str) -> PartitionFetchState:
        return PartitionFetchState(FollowerReplica(self.partition(topic), 0))

    def _on_error(self, state: PartitionFetchState, error: Exception) -> None:
        self.errors.append((state.topic_partition, error))
        self.plan.remove(state.topic_partition)

    def asked(self, now: float) -> list[TopicPartition]:
        return list(self.plan.requests(now))


@pytest.fixture
def world(tmp_path: Path) -> PlanWorld:
    return PlanWorld(tmp_path)


def test_what_is_added_is_asked_for_until_it_is_removed(world: PlanWorld) -> None:
    assert world.asked(0.0) == [T, U]
    assert (len(world.plan), list(world.plan), world.plan.get(T)) == (2, [world.t, world.u], world.t)
    request = world.plan.requests(0.1)[T]
    assert world.plan.requests(0.2)[T] is request
    world.plan.remove(T)
    assert world.asked(0.3) == [U]
    assert not world.plan.holds(world.t)
    assert not world.t.awaits(request)
    world.plan.remove(T)


def test_another_state_takes_the_place(world: PlanWorld) -> None:
    request = world.plan.requests(0.0)[T]
    world.plan.add(world._state("t"))
    assert (world.plan.holds(world.t), len(world.plan)) == (False, 2)
    assert world.plan.requests(0.1)[T] is not request


def test_what_moved_is_asked_for_last(world: PlanWorld) -> None:
    world.asked(0.0)
    world.t.replica.append(records(0, "a"))
    world.t.continue_at_end()
    world.plan.touch(world.t)
    assert world.asked(0.1) == [U, T]
    assert world.plan.requests(0.1)[T].fetch_offset == 1


def test_what_is_delayed_is_left_out_until_it_is_due(world: PlanWorld) -> None:
    world.asked(0.0)
    assert world.plan.next_due(0.0) is None
    world.t.delay(0.0, 0.3)
    world.u.delay(0.0, 0.2)
    world.plan.touch(world.t)
    world.plan.touch(world.u)
    assert world.asked(0.1) == []
    assert world.plan.next_due(0.1) == 0.2
    assert world.asked(0.2) == [U]
    assert world.plan.next_due(0.2) == 0.3
    assert world.asked(0.3) == [U, T]


def test_what_moves_by_itself_is_noticed_within_a_second(world: PlanWorld) -> None:
    world.t.replica.append(records(0, "a") + records(1, "b"))
    world.t.replica.update_offsets(2, 0)
    world.t.continue_at_end()
    world.asked(0.0)
    world.partition("t").log.maybe_increment_log_start_offset(1, "retention")
    assert world.plan.requests(0.9)[T].log_start_offset == 0
    assert world.plan.requests(1.0)[T].log_start_offset == 1


def test_a_log_without_epochs_is_cut_first(tmp_path: Path) -> None:
    world = PlanWorld(tmp_path)
    world.plan.remove(T)
    replica = FollowerReplica(world.partition("t"), 0)
    replica.append(records(0, "a") + records(1, "b"))
    replica.update_offsets(1, 0)
    world.partition("t").log.leader_epochs.clear()
    world.plan.add(PartitionFetchState(replica))
    assert world.plan.requests(0.0)[T].fetch_offset == 1
    assert world.partition("t").log.log_end_offset == 1


def test_a_throttled_partition_waits_while_it_lags(world: PlanWorld) -> None:
    world.throttle.record(5000)
    assert world.asked(0.0) == [T]
    assert world.plan.next_due(0.0) == 0.1
    world.u.lag = 0
    assert world.asked(0.1) == [T, U]
    assert (world.plan.is_covered(world.t), world.plan.is_covered(world.u)) == (False, True)


def test_who_does_not_follow_any_more_is_not_asked_for(world: PlanWorld) -> None:
    world.asked(0.0)
    world.place("t", leader=1, leader_epoch=1)
    world.plan.touch(world.t)
    assert world.asked(0.1) == [U]
    assert world.errors == []


def test_what_the_disk_refuses_is_told(world: PlanWorld) -> None:
    world.partition("t").local_log = None
    assert world.asked(0.0) == [U]
    assert [(where, type(error)) for where, error in world.errors] == [(T, StorageFailure)]
