from pathlib import Path

import pytest

from broker.config.replication_settings import LEADER_SELECTOR, RACK_AWARE_REPLICA_SELECTOR
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.replica_selector import replica_selector
from tests.support.builders import LISTENER, ReplicaWorld, batch, values_of
from tests.support.sim_loop import SimLoop, simulate


def racks(tmp_path: Path, selector: str = RACK_AWARE_REPLICA_SELECTOR, **topic: object) -> ReplicaWorld:
    """The leader 1 in rack x; 2 and 3 in rack y; 4 in rack z."""
    world = ReplicaWorld(tmp_path, {"replica.selector.class": selector})
    for broker_id, rack in ((1, "x"), (2, "y"), (3, "y"), (4, "z")):
        world.register_brokers(broker_id, rack=rack)
    world.create_topic(**{"replicas": (1, 2, 3, 4), "isr": (1, 2, 3), **topic})  # type: ignore[arg-type]
    world.append(batch("a"), batch("b"), batch("c"))
    for broker_id in (2, 3, 4):
        replicate(world, broker_id, 3)
    return world


def replicate(world: ReplicaWorld, broker_id: int, offset: int, log_start_offset: int = 0) -> None:
    partition = world.partition()
    partition.update_follower_fetch_state(
        broker_id,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        leader_log_end_offset=partition.log.log_end_offset,
        replica_epoch=10 + broker_id,
    )


def fetched(world: ReplicaWorld, rack: str, offset: int = 0, **keywords: object) -> FetchPartitionResult:
    """What the leader answers a consumer of a rack, that is ready to wait."""
    params = {"version": 12, "max_wait_ms": 500, "rack_id": rack, "listener_name": LISTENER, **keywords}
    answers: list[FetchPartitionResult] = []

    async def story(loop: SimLoop) -> None:
        answers.extend(await world.fetch(FetchParams(**params), FetchPartition("t", 0, offset, 1 << 20)))  # type: ignore[arg-type]
        assert loop.time() == 0 or answers[0].preferred_read_replica == -1

    simulate(story)
    return answers[0]


def test_a_consumer_is_sent_to_the_in_sync_replica_of_its_rack(tmp_path: Path) -> None:
    result = fetched(racks(tmp_path), "y")
    assert (result.preferred_read_replica, result.records, result.error.name) == (3, b"", "none")
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (3, 3, 0)


@pytest.mark.parametrize("rack", ["", "x", "nowhere", "z"])
def test_the_leader_serves_its_own_rack_and_those_without_an_in_sync_replica(tmp_path: Path, rack: str) -> None:
    result = fetched(racks(tmp_path), rack)
    assert result.preferred_read_replica == -1
    assert values_of(result.records) == [b"a", b"b", b"c"]


def test_the_most_records_then_the_latest_caught_up_then_the_highest_id(tmp_path: Path) -> None:
    world = racks(tmp_path)
    world.append(batch("d"))
    replicate(world, 2, 4)
    assert fetched(world, "y").preferred_read_replica == 2
    world.now_ms += 10
    replicate(world, 3, 4)
    assert fetched(world, "y").preferred_read_replica == 3  # as much, and both are caught up now
    world.append(batch("e"))
    world.now_ms += 10
    replicate(world, 2, 4)  # it was caught up when it fetched before: at 0, and 3 at 10
    assert fetched(world, "y").preferred_read_replica == 3


def test_who_lacks_the_offset_is_not_chosen(tmp_path: Path) -> None:
    world = racks(tmp_path)
    world.append(batch("d"))
    assert fetched(world, "y", offset=3).preferred_read_replica == 3
    assert fetched(world, "y", offset=4).preferred_read_replica == -1  # no follower has reached it
    replicate(world, 2, 4, log_start_offset=2)
    assert fetched(world, "y", offset=1).preferred_read_replica == 3
    replicate(world, 3, 4, log_start_offset=2)
    assert fetched(world, "y", offset=1).preferred_read_replica == -1
    assert fetched(world, "y", offset=2).preferred_read_replica == 3


def test_who_cannot_be_reached_is_not_chosen(tmp_path: Path) -> None:
    world = racks(tmp_path)
    assert fetched(world, "y", listener_name="INTERNAL").preferred_read_replica == -1
    world.register_brokers(3, fenced=True, rack="y")
    assert fetched(world, "y").preferred_read_replica == 2


def test_followers_and_old_consumers_are_not_sent_away(tmp_path: Path) -> None:
    world = racks(tmp_path)
    assert fetched(world, "y", version=10).preferred_read_replica == -1
    assert fetched(world, "y", replica_id=2, replica_epoch=12).preferred_read_replica == -1


def test_a_follower_serves_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    """And sends nobody on, whatever the rack; a consumer that may read from leaders only is refused."""
    world = racks(tmp_path)
    world.place(leader=2, leader_epoch=1)
    result = fetched(world, "z")
    assert (result.preferred_read_replica, values_of(result.records)) == (-1, [b"a", b"b", b"c"])
    assert fetched(world, "z", offset=4).error.name == "offset_out_of_range"
    assert fetched(world, "", version=10).error.name == "not_leader_or_follower"


@pytest.mark.parametrize("name", [None, LEADER_SELECTOR])
def test_without_a_selector_whoever_is_asked_serves(tmp_path: Path, name: str | None) -> None:
    world = racks(tmp_path, LEADER_SELECTOR)
    assert replica_selector(name, 1, world.metadata, lambda: 0) is None
    assert fetched(world, "y").preferred_read_replica == -1
