"""Traces in which one rule of replication through buckets (KIP-1176) stands between a follower and foreign records.

They are those of the protocol's model (tests/model) for rules whose absence no other story notices.
"""

import asyncio
from pathlib import Path
from typing import Any

from broker.log.leader_epoch_file_cache import EpochEntry
from tests.scenarios.test_wal_followers import agree, asked_epochs, deposed, end, epochs, tell, values
from tests.support.wal_replica_cluster import WalReplicaCluster, bucket_of

LONGER_THAN_A_BUCKET_IS_LEFT_ALONE_S = 7.0


def test_the_floor_is_no_end_of_an_epoch(tmp_path: Path) -> None:
    """The leader's log begins in epoch 1, and the answer to "where did 0 end" is asked for after the last fetch was
    answered: the follower does not know yet that the leader's log start has moved."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, "x")
        foreign = cluster.upload(1, (0, 0))
        cluster.cut |= {(1, 2), (3, 2)}
        deposed(cluster, 1)
        cluster.elect(2, isr=(1, 2, 3))
        cluster.append(2, *"ab")
        cluster.tell(cluster.brokers[1])
        cluster.place(isr=(2,))
        await asyncio.sleep(0.1)
        cluster.cut.clear()
        await agree(cluster, 1, 3)
        assert end(cluster, 1) == 0

        def lost(source: int, response: Any) -> Any:
            if source == 1:
                raise ConnectionError("the answer is lost")
            return response

        cluster.tamper = lost
        cluster.partition(2).delete_records_on_leader(1)
        cluster.wal_broker(1).hear(foreign)
        await cluster.until(lambda: asked_epochs(cluster, 1) == [(0, 1)])
        await asyncio.sleep(0.5)
        assert values(cluster, 1) == "" and cluster.gets(1) == []
        cluster.tamper = None
        cluster.announce(cluster.upload(2, (0, 1)))
        await cluster.until(cluster.reaches(1, 2))
        assert values(cluster, 1) == "b"

    tell(tmp_path, story, uploads_itself=False)


def test_where_an_epoch_ended_is_another_offset_for_another_leader(tmp_path: Path) -> None:
    """Broker 2 has all of epoch 0, broker 3 the first of it: asked by 4 they answer 3 and 1."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic(replicas=(1, 2, 3, 4))
        cluster.append(1, *"abc")
        first, rest = (cluster.upload(1, cluster.slice_of(1, 0, *each)) for each in ((0, 1), (1, 3)))
        cluster.announce(first)
        await cluster.until(lambda: all(end(cluster, each) == 1 for each in (2, 3, 4)))
        cluster.wal_broker(2).hear(rest)
        await cluster.until(cluster.reaches(2, 3))
        cluster.dead_buckets.add(bucket_of(1))
        deposed(cluster, 1)
        cluster.elect(2)
        cluster.wal_broker(4).hear(rest)
        await cluster.until(lambda: asked_epochs(cluster, 4) == [(0, 1)])
        await asyncio.sleep(0.1)
        cluster.elect(3)
        cluster.append(3, "x")
        cluster.dead_buckets.clear()
        await agree(cluster, 4)
        await asyncio.sleep(LONGER_THAN_A_BUCKET_IS_LEFT_ALONE_S)
        assert values(cluster, 4) == "a" and asked_epochs(cluster, 4) == [(0, 1), (0, 2)]
        cluster.announce(cluster.upload(3, (0, 1)))
        await cluster.until(cluster.reaches(4, 2))
        assert values(cluster, 4) == "ax"

    tell(tmp_path, story, uploads_itself=False, broker_ids=(1, 2, 3, 4))


def test_a_deposed_leaders_follower_takes_nothing_of_the_next_one(tmp_path: Path) -> None:
    """Neither broker 1 nor broker 3 has heard of epoch 1: 3 follows 1, and what 2 announces may not fit 1's log."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        await agree(cluster, 2, 3)
        deposed(cluster, 1)
        deposed(cluster, 3)
        cluster.elect(2)
        cluster.append(2, *"ab")
        cluster.append(1, "x")
        cluster.announce(cluster.upload(2, (0, 0)))
        await asyncio.sleep(1)
        assert cluster.is_agreed(3) and cluster.gets(3) == [] and end(cluster, 3) == 0
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until(cluster.reaches(3, 1))
        assert values(cluster, 3) == "x" and epochs(cluster, 3) == [EpochEntry(0, 0)]
        cluster.tell(cluster.brokers[3])
        await cluster.until(cluster.reaches(3, 2))
        assert values(cluster, 3) == "ab"

    tell(tmp_path, story, uploads_itself=False)


def test_a_follower_that_is_behind_knows_nothing_committed_beyond_its_end(tmp_path: Path) -> None:
    """What it gets later for those offsets may be another record: it would be shown to consumers at once."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        await agree(cluster, 2, 3)
        cluster.deaf.add(3)
        cluster.fence(3)
        cluster.place(isr=(1, 2))
        cluster.append(1, *"abc")
        first = cluster.upload(1, cluster.slice_of(1, 0, 0, 1))
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until(lambda: cluster.partition(1).log.high_watermark == 3)
        await asyncio.sleep(1)
        assert (end(cluster, 3), cluster.partition(3).log.high_watermark) == (0, 0)
        cluster.wal_broker(3).hear(first)
        await cluster.until(cluster.reaches(3, 1))
        await asyncio.sleep(1)
        assert cluster.partition(3).log.high_watermark == 1

    tell(tmp_path, story, uploads_itself=False)


def test_who_leads_by_the_time_a_slice_is_here_does_not_append_it(tmp_path: Path) -> None:
    """It was asked for as a follower; and who follows somebody else by then has not shaken hands."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        await agree(cluster, 2, 3)
        cluster.append(1, *"xy")
        cluster.get_latency = lambda: 0.2
        cluster.announce(cluster.upload(1, (0, 0)))
        await asyncio.sleep(0.1)
        assert len(cluster.gets(2)) == len(cluster.gets(3)) == 1  # under way
        deposed(cluster, 1)
        cluster.cut.add((3, 2))
        cluster.elect(2)
        await asyncio.sleep(0.5)
        assert end(cluster, 2) == end(cluster, 3) == 0
        cluster.append(2, *"a")
        cluster.cut.clear()
        cluster.announce(cluster.upload(2, (0, 0)))
        await cluster.until(cluster.reaches(3, 1))
        assert values(cluster, 2) == values(cluster, 3) == "a"

    tell(tmp_path, story, uploads_itself=False)


def test_before_the_leader_has_answered_nothing_is_appended(tmp_path: Path) -> None:
    """Broker 3 has two records of a deposed leader; what 2 announces would fit behind them."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until_caught_up()
        cluster.append(1, *"xy")
        cluster.deaf.add(2)
        cluster.announce(cluster.upload(1, (0, 2)))
        await cluster.until(cluster.reaches(3, 4))
        deposed(cluster, 1)
        cluster.cut.add((3, 2))
        cluster.elect(2)
        cluster.append(2, *"CDE")
        cluster.announce(cluster.upload(2, (0, 2)))
        await asyncio.sleep(1)
        assert values(cluster, 3) == "abxy" and cluster.gets(3)[2:] == []
        cluster.cut.clear()
        await cluster.until(cluster.reaches(3, 5))
        assert values(cluster, 3) == "abCDE"

    tell(tmp_path, story, uploads_itself=False)


def test_who_lacks_what_the_leader_began_its_epoch_with_does_not_join(tmp_path: Path) -> None:
    """All three records are committed, but broker 2, which leads next, has not heard of two of them: broker 3 has all
    that 2 knows to be committed, and could be elected without them."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, "a")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until(lambda: cluster.partition(2).log.high_watermark == 1)
        cluster.deaf.add(3)
        cluster.fence(3)
        cluster.place(isr=(1, 2))

        def lost(source: int, response: Any) -> Any:
            if source == 2 and cluster.partition(1).log.high_watermark == 3:
                raise ConnectionError("the answer is lost")
            return response

        cluster.tamper = lost
        cluster.append(1, *"bc")
        rest = cluster.upload(1, (0, 1))
        cluster.announce(rest)
        await cluster.until(lambda: cluster.partition(1).log.high_watermark == 3)
        await cluster.kill(1)
        cluster.tamper = None
        cluster.elect(2, isr=(1, 2))  # the controller has not noticed yet
        cluster.unfence(3)
        await agree(cluster, 3)
        await asyncio.sleep(1)
        assert (cluster.partition(2).log.high_watermark, end(cluster, 3)) == (1, 1)
        assert cluster.registration().isr == (1, 2)
        cluster.deaf.clear()
        cluster.wal_broker(3).hear(rest)
        await cluster.until(lambda: cluster.registration().isr == (1, 2, 3))
        assert values(cluster, 3) == "abc"

    tell(tmp_path, story, uploads_itself=False)
