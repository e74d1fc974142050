import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.common.errors import CorruptMessageError, ErrorCode, FencedLeaderEpochError, StorageFailure
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.leader_endpoint import LeaderEndPoint
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.replica_fetcher_manager import LeaderAddress, ReplicaFetcherManager, fetcher_id
from tests.support.builders import ReplicaWorld, settle
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_topics import TIERED, TIERING
from tests.unit.replication.bucket_world import THROUGH_BUCKETS, FakeBucketFollower, told
from tests.unit.replication.follower_world import FakeLeader, T, records


class ManagerWorld(ReplicaWorld):
    """Broker 1 and its fetchers; every leader of them is a `FakeLeader`."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None, *, has_bucket: bool = False) -> None:
        self.has_bucket = has_bucket
        self.connected: list[tuple[LeaderAddress, int]] = []
        self.leaders: list[FakeLeader] = []
        super().__init__(directory, properties, fetchers=self._make)
        self.register_brokers(1, 2, 3)

    def _make(self, world: ReplicaWorld) -> ReplicaFetcherManager:
        def address_of(broker_id: int) -> LeaderAddress | None:
            broker = world.metadata.broker(broker_id)
            endpoint = None if broker is None else broker.listeners["PLAINTEXT"]
            return None if endpoint is None else LeaderAddress(broker_id, endpoint.host, endpoint.port)

        def connect(address: LeaderAddress, number: int) -> LeaderEndPoint:
            self.connected.append((address, number))
            self.leaders.append(FakeLeader())
            return self.leaders[-1]

        make = FakeBucketFollower if self.has_bucket else None
        self.remote_log = ScriptedRemoteLog()
        self.manager = ReplicaFetcherManager(
            1, world.config, address_of, connect, make_bucket_follower=make, remote_log=self.remote_log
        )
        return self.manager

    @property
    def followed(self) -> dict[str, list[str]]:
        """Partitions by fetcher."""
        found: dict[str, list[str]] = {}
        for fetcher, state in self.manager.states():
            found.setdefault(fetcher.name, []).append(str(state.topic_partition))
        return found


def tell(
    tmp_path: Path,
    story: Callable[[ManagerWorld], Awaitable[None]],
    properties: dict[str, str] | None = None,
    *,
    has_bucket: bool = False,
) -> None:
    async def run(loop: SimLoop) -> None:
        world = ManagerWorld(tmp_path, properties, has_bucket=has_bucket)
        async with world.manager.running():
            await story(world)

    simulate(run)


@pytest.mark.parametrize(
    ("topic", "partition", "count", "expected"),
    [("t", 0, 1, 0), ("orders", 0, 4, 1), ("orders", 1, 4, 0), ("a-topic-with-a-long-name", 7, 5, 4)],
)
def test_the_fetcher_of_a_partition_is_kafkas(topic: str, partition: int, count: int, expected: int) -> None:
    # Utils.abs(31 * topic.hashCode() + partition) % count, in Java's 32 bits.
    assert fetcher_id(TopicPartition(topic, partition), count) == expected


def test_one_fetcher_follows_all_partitions_of_a_leader(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic("t", replicas=(2, 1), leader=2, partitions=2)
        world.create_topic("u", replicas=(3, 1), leader=3)
        assert world.followed == {
            "ReplicaFetcherThread-0-2": ["t-0", "t-1"],
            "ReplicaFetcherThread-0-3": ["u-0"],
        }
        assert world.connected == [
            (LeaderAddress(2, "10.0.0.2", 9092), 0),
            (LeaderAddress(3, "10.0.0.3", 9092), 0),
        ]
        await settle()
        assert set(world.leaders[0].asked[0]) == {T, ("t", 1)}

    tell(tmp_path, story)


def test_a_partition_leaves_its_fetcher_for_another_leader_and_when_it_leads(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1, 3), leader=2)
        await settle()
        world.place(leader=3, leader_epoch=1)
        assert world.followed == {"ReplicaFetcherThread-0-3": ["t-0"]}
        await settle()
        assert (len(world.manager.fetchers), world.leaders[0].closed) == (1, 1)  # the idle one has ended
        world.place(leader=1, leader_epoch=2)
        await settle()
        assert (world.followed, world.manager.fetchers) == ({}, [])
        world.place(leader=3, leader_epoch=3)
        assert world.followed == {"ReplicaFetcherThread-0-3": ["t-0"]}
        world.delete_topic()
        assert world.followed == {}

    tell(tmp_path, story)


def test_without_a_leader_nobody_is_followed(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        world.place(leader=-1, leader_epoch=1)
        assert (world.followed, world.partition().local_log is not None) == ({}, True)
        world.place(leader=2, leader_epoch=2)
        assert world.followed == {"ReplicaFetcherThread-0-2": ["t-0"]}

    tell(tmp_path, story)


def test_a_leader_that_is_not_registered_is_waited_for(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(9, 1), leader=9)
        assert world.followed == {}
        world.register_brokers(9)
        assert world.followed == {"ReplicaFetcherThread-0-9": ["t-0"]}

    tell(tmp_path, story)


def test_a_leader_at_another_address_gets_another_fetcher(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        await settle()
        world.register_brokers(2, epoch=50)  # the same address
        assert len(world.connected) == 1
        from dataclasses import replace

        broker = world.metadata.broker(2)
        assert broker is not None
        moved = replace(broker, listeners={"PLAINTEXT": broker.listeners["PLAINTEXT"]._replace(port=9999)})
        world.replay(moved.to_record())
        await settle()
        assert [address.port for address, _ in world.connected] == [9092, 9999]
        assert len(world.manager.fetchers) == 1

    tell(tmp_path, story)


def test_a_broker_on_its_way_out_follows_only_where_it_counts(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        from dataclasses import replace

        world.create_topic("t", replicas=(2, 1), leader=2)
        world.create_topic("u", replicas=(2, 1), leader=2)
        ours = world.metadata.broker(1)
        assert ours is not None
        world.replay(replace(ours, in_controlled_shutdown=True).to_record())
        world.place("t", leader=2, leader_epoch=1, isr=(2,))
        world.place("u", leader=2, leader_epoch=1, isr=(1, 2))
        assert world.followed == {"ReplicaFetcherThread-0-2": ["u-0"]}
        assert world.partition("t").local_log is not None
        world.place("u", leader=-1, leader_epoch=2, isr=(1, 2))
        assert world.followed == {}

    tell(tmp_path, story)


def test_a_fenced_partition_is_failed_until_new_metadata(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        world.leaders[0].answer_one(error=ErrorCode.fenced_leader_epoch)
        await settle()
        assert (world.manager.failed_count, world.followed) == (1, {})
        world.manager.retry_failed()
        assert world.manager.failed_count == 1
        world.place(isr=(2,))  # the same epoch
        assert world.manager.failed_count == 1
        world.place(leader=2, leader_epoch=1)
        assert (world.manager.failed_count, world.followed) == (0, {"ReplicaFetcherThread-0-2": ["t-0"]})

    tell(tmp_path, story)


def test_a_failure_that_stays_is_told_once_a_minute(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        state = next(state for _, state in world.manager.states())
        with capture_logs() as logged:
            for _ in range(61):
                world.manager._on_failed(state, StorageFailure("full"))
                await asyncio.sleep(1)
            world.manager.leave([T])
            world.manager._on_failed(state, FencedLeaderEpochError("newer"))
        told = [(entry["log_level"], entry["error"]) for entry in logged if entry["event"] == "partition_not_followed"]
        assert [each for each in told if each[0] != "debug"] == [
            ("error", "full"),
            ("error", "full"),
            ("warning", "newer"),
        ]

    tell(tmp_path, story)


def test_what_a_disk_refused_is_tried_again_by_the_timer(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        state = next(state for _, state in world.manager.states())
        world.manager._on_failed(state, StorageFailure("full"))
        for fetcher in world.manager.fetchers:
            fetcher.remove(T)
        assert (world.manager.failed_count, world.followed) == (1, {})
        world.replicas.reopen_offline()
        assert (world.manager.failed_count, world.followed) == (0, {"ReplicaFetcherThread-0-2": ["t-0"]})

    tell(tmp_path, story)


def test_a_partition_whose_log_could_not_be_opened_is_followed_once_it_can(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.logs.failure = StorageFailure("disk")
        world.create_topic(replicas=(2, 1), leader=2)
        assert world.followed == {}
        world.logs.failure = None
        world.replicas.reopen_offline()
        assert world.followed == {"ReplicaFetcherThread-0-2": ["t-0"]}

    tell(tmp_path, story)


def test_partitions_are_shared_out_anew_when_the_number_of_fetchers_changes(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2, partitions=4)
        assert [number for _, number in world.connected] == [0]
        world.config.update(world.config.current.with_overrides({"num.replica.fetchers": "2"}))
        world.place(isr=(2,))  # any change of the metadata
        assert world.followed == {
            "ReplicaFetcherThread-0-2": ["t-0", "t-2"],
            "ReplicaFetcherThread-1-2": ["t-1", "t-3"],
        }

    tell(tmp_path, story)


def test_the_gauges_read_the_fetchers(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        assert (world.manager.max_lag, world.manager.min_fetch_rate, world.manager.failed_count) == (0, 0.0, 0)
        world.create_topic(replicas=(2, 1), leader=2)
        world.leaders[0].answer_one(records=records(0, "a"), high_watermark=9)
        await settle()
        assert world.manager.max_lag == 8
        await asyncio.sleep(10)
        assert world.manager.min_fetch_rate == pytest.approx(0.2)  # two fetches
        assert (world.manager.stats[2].requests, world.manager.stats[2].bytes) == (2, len(records(0, "a")))

    tell(tmp_path, story)


def test_an_unexpected_failure_of_one_partition_is_failed_too(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic(replicas=(2, 1), leader=2)
        state = next(state for _, state in world.manager.states())
        world.manager._on_failed(state, CorruptMessageError("any"))
        world.manager.retry_failed()
        assert world.manager.failed_count == 1

    tell(tmp_path, story)


WAL = {"remote.wal.enable": "true"}


def test_partitions_kept_in_a_bucket_have_fetchers_and_connections_of_their_own(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic("classic", replicas=(2, 1), leader=2)
        world.create_topic("t", replicas=(2, 1), leader=2, configs=WAL)
        assert world.followed == {"ReplicaFetcherThread-0-2": ["classic-0"], "BucketReplicaFetcher-0-2": ["t-0"]}
        assert world.connected == [(LeaderAddress(2, "10.0.0.2", 9092), 0)] * 2
        await settle()
        assert [[str(each) for each in leader.asked[0]] for leader in world.leaders] == [["classic-0"], ["t-0"]]

    tell(tmp_path, story, THROUGH_BUCKETS, has_bucket=True)


def test_without_a_bucket_follower_all_are_followed_as_ever(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic("t", replicas=(2, 1), leader=2, configs=WAL)
        assert world.followed == {"ReplicaFetcherThread-0-2": ["t-0"]}

    tell(tmp_path, story, THROUGH_BUCKETS)


def test_to_switch_a_partition_is_followed_again_and_what_was_asked_finds_nobody(tmp_path: Path) -> None:
    async def story(world: ManagerWorld) -> None:
        world.create_topic("t", replicas=(2, 1), leader=2)
        await settle()
        partition = world.partition()
        assert partition.local_log is not None
        partition.local_log.update_config(TopicConfig.effective(world.config.current, WAL))
        world.manager.follow([partition])
        assert world.followed == {"BucketReplicaFetcher-0-2": ["t-0"]}
        world.leaders[0].answer_one(records=records(0, "late"), high_watermark=1)
        await settle()
        assert partition.log.log_end_offset == 0
        assert len(world.leaders[1].asked) == 1
        [(_, state)] = world.manager.states()
        assert isinstance(state, BucketFetchState)
        partition.local_log.update_config(TopicConfig.effective(world.config.current, {}))
        world.manager.follow([partition])
        assert world.followed == {"ReplicaFetcherThread-0-2": ["t-0"]}
        assert told(state) == ["truncated", "stop"]  # a log without epochs is cut to what is committed, at first
        world.manager.settle()
        assert [fetcher.name for fetcher in world.manager.fetchers] == ["ReplicaFetcherThread-0-2"]

    tell(tmp_path, story, THROUGH_BUCKETS, has_bucket=True)


@pytest.mark.parametrize("has_bucket", [False, True])
def test_a_follower_may_begin_behind_remote_storage(tmp_path: Path, has_bucket: bool) -> None:
    async def story(world: ManagerWorld) -> None:
        configs = {**TIERED, **({"remote.wal.enable": "true"} if has_bucket else {})}
        world.create_topic(replicas=(2, 1), leader=2, configs=configs)
        await settle()
        (leader,) = world.leaders
        leader.earliest_local = LeaderLocalStart(0, 90)
        leader.answer_one(error=ErrorCode.offset_moved_to_tiered_storage)
        await settle()
        (question,) = world.remote_log.state_questions
        assert (question.epoch, question.offset) == (0, 89)
        world.manager.leave([T])
        await settle()
        assert question.answer.cancelled()

    tell(tmp_path, story, {**TIERING, **(THROUGH_BUCKETS if has_bucket else {})}, has_bucket=has_bucket)
