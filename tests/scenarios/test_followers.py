"""Stories about followers: three brokers with real logs and fetchers, and metadata as the test decides it."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.protocol.api_keys import ApiKey
from broker.records.append_origin import AppendOrigin
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.partition_fetch_state import PartitionFetchState
from tests.support.builders import batch, parsed, values_of
from tests.support.replica_cluster import ReplicaCluster, T, tell_of

tell = functools.partial(tell_of, ReplicaCluster)


def fetches(cluster: ReplicaCluster, source: int, target: int | None = None) -> list[Any]:
    """The requests of one follower so far."""
    return [
        entity
        for sender, receiver, entity in cluster.requests
        if sender == source and entity.__api_key__ == ApiKey.FETCH and target in (None, receiver)
    ]


def state(cluster: ReplicaCluster, broker_id: int, topic: str = "t", partition: int = 0) -> PartitionFetchState:
    found = [
        each for _, each in cluster.brokers[broker_id].fetchers.states() if each.topic_partition == (topic, partition)
    ]
    assert len(found) == 1, found
    return found[0]


def values(cluster: ReplicaCluster, broker_id: int, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return values_of(cluster.log_bytes(broker_id, topic, partition))


def epochs(cluster: ReplicaCluster, broker_id: int) -> list[EpochEntry]:
    return list(cluster.partition(broker_id).log.leader_epochs.entries)


def test_14_metadata_of_a_lower_partition_epoch_is_ignored_and_the_same_epoch_restarts_nothing(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        before = state(cluster, 2)
        asked = len(fetches(cluster, 2))
        cluster.place(isr=(1, 2))  # the same leader epoch
        assert state(cluster, 2) is before
        cluster.place(leader=3, leader_epoch=9, partition_epoch=0)
        assert cluster.partition(2).leader_id == 1
        assert state(cluster, 2) is before
        assert len(fetches(cluster, 2)) == asked

    tell(tmp_path, story)


def test_15_a_new_epoch_of_the_same_leader_restarts_the_fetch_and_truncates_nothing(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a", "b"))
        await cluster.until_caught_up()
        before = state(cluster, 2)
        cluster.elect(1)
        assert state(cluster, 2) is not before
        cluster.brokers[1].append(batch("c"))
        await cluster.until_caught_up()
        asked = [topic.partitions[0] for each in fetches(cluster, 2) for topic in each.topics]
        first = next(each for each in asked if each.current_leader_epoch == 1)
        assert (first.fetch_offset, first.last_fetched_epoch) == (2, 0)
        assert cluster.are_identical()
        assert epochs(cluster, 2) == [(0, 0), (1, 2)]

    tell(tmp_path, story)


def test_16_an_old_leader_gives_up_what_nobody_else_had(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"), batch("b"))
        await cluster.until_caught_up()
        cluster.cut |= {(2, 1), (3, 1)}
        cluster.brokers[1].append(batch("lost"), batch("lost too"))
        cluster.elect(2, isr=(2, 3))
        cluster.brokers[2].append(batch("c"))
        await cluster.until_caught_up()
        assert cluster.are_identical()
        assert values(cluster, 1) == [b"a", b"b", b"c"]
        assert epochs(cluster, 1) == [(0, 0), (1, 2)]

    tell(tmp_path, story)


def test_17_a_diverging_answer_changes_nothing_but_the_log_end(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        cluster.cut |= {(2, 1), (3, 1)}
        cluster.brokers[1].append(batch("lost 1"), batch("lost 2"), batch("lost 3"))
        cluster.unaware.add(1)
        cluster.elect(2, isr=(2, 3))
        cluster.brokers[2].append(batch("b"), batch("c"), batch("d"))
        await cluster.until(lambda: cluster.partition(2).log.high_watermark == 4)
        seen: list[tuple[int, int]] = []
        old_leader = cluster.partition(1).log

        def watch(source: int, response: Any) -> Any:
            diverging = [p for topic in response.responses for p in topic.partitions if p.diverging_epoch.epoch >= 0]
            if source == 1 and diverging:
                assert diverging[0].high_watermark == 4
                cluster.cut.add((1, 2))
            elif source == 1:
                seen.append((old_leader.high_watermark, old_leader.log_end_offset))
            return response

        cluster.tamper = watch
        cluster.tell(cluster.brokers[1])
        await cluster.until(lambda: old_leader.log_end_offset == 1)
        assert old_leader.high_watermark == 1
        cluster.cut.clear()
        await cluster.until_caught_up()
        assert seen[0] == (1, 1)
        assert cluster.are_identical()

    tell(tmp_path, story)


def test_18_two_rounds_find_the_common_end_of_three_epochs(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        cluster.cut |= {(2, 1), (3, 1), (1, 2), (1, 3)}
        cluster.brokers[1].append(batch("only 1"), batch("only 1"))  # epoch 0 at 1
        cluster.elect(2, isr=(2, 3))
        cluster.brokers[2].append(batch("b"), batch("c"))  # epoch 1 at 1
        await cluster.until(lambda: cluster.partition(3).log.log_end_offset == 3)
        cluster.elect(1, isr=(1,))  # uncleanly
        cluster.brokers[1].append(batch("only 1"))  # epoch 2 at 3
        cluster.elect(2, isr=(2, 3))
        cluster.brokers[2].append(batch("d"))  # epoch 3 at 3
        cluster.cut.clear()
        rounds = 0

        def count(source: int, response: Any) -> Any:
            nonlocal rounds
            if source == 1:
                rounds += any(p.diverging_epoch.epoch >= 0 for topic in response.responses for p in topic.partitions)
            return response

        cluster.tamper = count
        await cluster.until_caught_up()
        assert rounds == 2  # the leader has nothing of epoch 2, and less of epoch 0
        assert values(cluster, 1) == [b"a", b"b", b"c", b"d"]
        assert cluster.are_identical()

    tell(tmp_path, story)


def test_19_a_follower_below_the_leaders_start_begins_anew_there(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        await cluster.kill(3)
        cluster.fence(3)
        cluster.place(isr=(1, 2))
        cluster.brokers[1].append(batch("b"), batch("c"), batch("d"))
        await cluster.until(lambda: cluster.partition(1).log.high_watermark == 4)
        cluster.partition(1).delete_records_on_leader(3)
        broker = cluster.start(3)
        await cluster.until(lambda: broker.partition().log.log_end_offset == 4)
        log = broker.partition().log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 4, 4)
        assert epochs(cluster, 3) == [(0, 3)]
        assert values(cluster, 3) == [b"d"]

    tell(tmp_path, story)


def test_20_a_follower_ahead_of_an_uncleanly_elected_leader_gives_up_the_rest(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(isr=(1, 2))
        cluster.cut |= {(3, 1)}
        cluster.brokers[1].append(batch("a"), batch("b"), batch("c"))
        await cluster.until(lambda: cluster.partition(2).log.log_end_offset == 3)
        cluster.elect(3, isr=(3,))  # it has nothing
        cluster.brokers[3].append(batch("x"))
        await cluster.until_caught_up()
        assert values(cluster, 1) == values(cluster, 2) == [b"x"]
        assert cluster.are_identical()
        cluster.brokers[3].append(batch("y"))
        await cluster.until_caught_up()
        assert values(cluster, 2) == [b"x", b"y"]

    tell(tmp_path, story)


def test_21_an_empty_follower_takes_the_whole_batch_the_leader_starts_in(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2), isr=(1,))
        cluster.cut |= {(2, 1)}
        cluster.brokers[1].append(batch("a", "b", "c", "d"))
        cluster.partition(1).delete_records_on_leader(2)
        cluster.cut.clear()
        await cluster.until(lambda: cluster.partition(2).log.log_end_offset == 4)
        log = cluster.partition(2).log
        assert log.segments.first.base_offset == 0
        assert values(cluster, 2) == [b"a", b"b", b"c", b"d"]
        assert log.log_start_offset == 2  # what came with it hides the beginning again
        await cluster.until_caught_up()

    tell(tmp_path, story)


def _refuse(error: ErrorCode, source: int = 2, topic: str = "t") -> Callable[[int, Any], Any]:
    """Answers of one broker say `error` for every partition."""

    def tamper(sender: int, response: Any) -> Any:
        if sender != source or not hasattr(response, "responses"):
            return response
        return dataclasses.replace(
            response,
            responses=tuple(
                dataclasses.replace(
                    each, partitions=tuple(dataclasses.replace(p, error_code=error) for p in each.partitions)
                )
                for each in response.responses
            ),
        )

    return tamper


def test_22_a_fenced_follower_waits_for_metadata_and_one_ahead_asks_again(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.unaware = {2}
        cluster.create_topic(replicas=(1, 2))
        cluster.elect(1)
        cluster.unaware = set()
        cluster.tell(cluster.brokers[2])
        cluster.unaware = {2}
        cluster.elect(1)  # the leader is in epoch 2, the follower in epoch 1
        fetchers = cluster.brokers[2].fetchers
        await cluster.until(lambda: fetchers.failed_count == 1)
        assert list(fetchers.states()) == []
        cluster.tell(cluster.brokers[2])
        assert fetchers.failed_count == 0
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()

        cluster.unaware = {1}
        cluster.elect(1)  # now the follower is ahead
        asked = len(fetches(cluster, 2))
        await cluster.until(lambda: len(fetches(cluster, 2)) >= asked + 3, seconds=1)
        assert fetchers.failed_count == 0
        cluster.tell(cluster.brokers[1])
        await cluster.until_caught_up()
        assert state(cluster, 2).leader_epoch == 3

    tell(tmp_path, story)


def test_23_a_corrupt_batch_stops_its_partition_alone(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2), partitions=2)

        def damage(source: int, response: Any) -> Any:
            topics = []
            for topic in response.responses:
                partitions = [
                    dataclasses.replace(each, records=bytes(each.records[:-1]) + b"\xff")
                    if each.partition_index == 0 and each.records
                    else each
                    for each in topic.partitions
                ]
                topics.append(dataclasses.replace(topic, partitions=tuple(partitions)))
            return dataclasses.replace(response, responses=tuple(topics))

        cluster.tamper = damage
        for number in range(5):
            cluster.brokers[1].append(batch(f"a{number}"))
            cluster.brokers[1].append(batch(f"b{number}"), partition=1)
            await cluster.until(lambda end=number + 1: cluster.partition(2, partition=1).log.log_end_offset == end)
        assert cluster.partition(2).log.log_end_offset == 0
        assert cluster.brokers[2].fetchers.failed_count == 0
        cluster.tamper = None
        await cluster.until_caught_up()
        await cluster.until_caught_up(partition=1)
        assert cluster.are_identical()

    tell(tmp_path, story)


def test_24_a_delayed_partition_is_forgotten_and_comes_back(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2))
        cluster.create_topic("other", replicas=(1, 2))
        await cluster.until(lambda: len(fetches(cluster, 2)) >= 3)

        def refuse(source: int, response: Any) -> Any:
            topics = tuple(
                dataclasses.replace(
                    topic,
                    partitions=tuple(
                        dataclasses.replace(each, error_code=ErrorCode.unknown_server_error)
                        for each in topic.partitions
                    ),
                )
                if topic.topic_id == cluster.partition(1).topic_id
                else topic
                for topic in response.responses
            )
            return dataclasses.replace(response, responses=topics)

        cluster.tamper = refuse
        cluster.brokers[1].append(batch("a"))
        before = len(fetches(cluster, 2))
        await cluster.until(lambda: any(each.forgotten_topics_data for each in fetches(cluster, 2)[before:]))
        cluster.tamper = None
        forgetting = next(each for each in fetches(cluster, 2)[before:] if each.forgotten_topics_data)
        assert [(t.topic_id, t.partitions) for t in forgetting.forgotten_topics_data] == [
            (cluster.partition(1).topic_id, (0,))
        ]
        await cluster.until_caught_up(seconds=2)
        after = fetches(cluster, 2)[fetches(cluster, 2).index(forgetting) + 1 :]
        assert any(topic.topic_id == cluster.partition(1).topic_id for each in after for topic in each.topics)

    tell(tmp_path, story)


def test_25_a_followers_high_watermark_is_held_by_its_own_end_and_may_go_back(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(isr=(1, 2))
        cluster.cut |= {(3, 1)}
        cluster.brokers[1].append(batch("a"), batch("b"), batch("c"))
        await cluster.until(lambda: cluster.partition(2).log.high_watermark == 3)
        cluster.cut.clear()
        cluster.cut |= {(1, 3), (2, 3)}
        cluster.elect(3, isr=(3,))  # uncleanly
        cluster.brokers[3].append(batch("x"))
        cluster.cut.clear()
        await cluster.until(lambda: values(cluster, 2) == [b"x"])
        assert cluster.partition(2).log.high_watermark <= 1
        await cluster.until_caught_up()
        assert cluster.partition(2).log.high_watermark == 1

    tell(tmp_path, story)


def test_a_topic_that_is_deleted_and_made_again_is_followed_from_its_beginning(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("old"))
        await cluster.until_caught_up()
        cluster.delete_topic()
        cluster.create_topic(incarnation=1, leader=2)
        cluster.brokers[2].append(batch("new"))
        await cluster.until_caught_up()
        assert values(cluster, 1) == values(cluster, 3) == [b"new"]

    tell(tmp_path, story)


def test_a_partition_that_is_moved_away_loses_its_log_and_its_fetcher(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        cluster.place(replicas=(1, 2), isr=(1, 2))
        assert cluster.brokers[3].replicas.hosted_partition(T) is None
        assert cluster.brokers[3].logs.deleted == [T]
        assert cluster.brokers[3].fetchers.fetchers == []

    tell(tmp_path, story)


def test_a_follower_waits_for_its_leaders_registration(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(9, 2), leader=9)
        assert cluster.brokers[2].fetchers.fetchers == []
        assert cluster.partition(2).log.log_end_offset == 0
        cluster.start(9)
        cluster.brokers[9].append(batch("a"))
        await cluster.until_caught_up()

    tell(tmp_path, story)


def test_a_leader_that_restarts_has_lost_the_session_and_nothing_else(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2))
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        await cluster.kill(1)
        cluster.start(1)
        cluster.brokers[1].append(batch("b"))
        await cluster.until_caught_up()
        assert cluster.are_identical()
        assert [each.session_epoch for each in fetches(cluster, 2)].count(0) >= 2

    tell(tmp_path, story)


def test_consumers_of_a_follower_see_what_it_knows_to_be_committed(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2))
        await cluster.until(lambda: state(cluster, 2).lag == 0)
        parked = cluster.brokers[2].start_fetch(
            FetchParams(12, max_wait_ms=5_000), [FetchPartition("t", 0, 0, 1_000_000)]
        )
        cluster.brokers[1].append(batch("a"))
        await cluster.until(parked.done, seconds=1)
        assert values_of(parked.result()[0].records) == [b"a"]
        assert cluster.partition(2).topic_stats.replication_bytes_in == len(batch("a"))

    tell(tmp_path, story)


def test_a_new_leader_is_met_while_the_old_fetch_waits(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.create_topic("idle", replicas=(2, 1, 3))  # the fetchers to broker 2 wait for its records
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        cluster.elect(2)
        cluster.brokers[2].append(batch("b"))
        await cluster.until(lambda: cluster.partition(2).log.high_watermark == 2, seconds=0.1)

    tell(tmp_path, story)


def test_a_leader_never_truncates(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        replica = state(cluster, 2).replica
        cluster.elect(2)
        cluster.partition(2).append_records_to_leader(parsed(batch("b")), AppendOrigin.CLIENT)
        assert not replica.is_valid
        with pytest.raises(Exception, match="does not follow in epoch 0"):
            replica.truncate_to(0)
        assert cluster.partition(2).log.log_end_offset == 2

    tell(tmp_path, story)


def test_an_epoch_without_records_does_not_hide_that_a_log_has_diverged(tmp_path: Path) -> None:
    """A replica that led without appending must not report that epoch; otherwise a foreign tail goes unnoticed."""

    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(leader=3)  # epoch 0
        cluster.elect(3)  # epoch 1
        cluster.brokers[3].append(batch("a"), batch("b"))
        await cluster.until_caught_up()
        cluster.cut |= {(1, 3), (2, 3)}
        cluster.brokers[3].append(batch("only 3"))  # epoch 1 at 2, on broker 3 alone
        cluster.cut |= {(3, 1), (3, 2)}
        cluster.elect(1, isr=(1, 2))  # epoch 2
        cluster.brokers[1].append(batch("c"))  # at 2
        await cluster.until(lambda: cluster.partition(2).log.log_end_offset == 3)
        cluster.cut |= {(2, 1)}
        cluster.brokers[1].append(batch("d"))  # at 3, on broker 1 alone so far
        cluster.elect(2, isr=(1, 2))  # epoch 3, begins at 3 and appends nothing
        assert epochs(cluster, 2)[-1] == (3, 3)
        cluster.cut |= {(1, 2)}
        cluster.elect(1, isr=(1, 2))  # epoch 4
        assert epochs(cluster, 2)[-1] == (2, 2)
        cluster.cut.clear()
        await cluster.until_caught_up()
        assert cluster.are_identical()
        assert values(cluster, 3) == [b"a", b"b", b"c", b"d"]

    tell(tmp_path, story)
