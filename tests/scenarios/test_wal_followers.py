"""Stories about followers that take records from buckets (KIP-1176): brokers with real logs, fetchers and slices."""

import asyncio
import functools
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.leader_epoch_file_cache import EpochEntry
from broker.protocol.api_keys import ApiKey
from broker.records.record_batch import batches
from broker.wal.objects.wal_slice import WalSlice
from tests.support.builders import values_of
from tests.support.replica_cluster import tell_of
from tests.support.sim_loop import SimLoop, simulate
from tests.support.wal_replica_cluster import WalReplicaCluster, bucket_of

tell = functools.partial(tell_of, WalReplicaCluster)


def end(cluster: WalReplicaCluster, broker_id: int, partition: int = 0) -> int:
    return cluster.partition(broker_id, "t", partition).log.log_end_offset


def values(cluster: WalReplicaCluster, broker_id: int) -> str:
    return "".join(value.decode() for value in values_of(cluster.log_bytes(broker_id)) if value is not None)


def epochs(cluster: WalReplicaCluster, broker_id: int) -> list[EpochEntry]:
    return list(cluster.partition(broker_id).log.leader_epochs.entries)


def asked_epochs(cluster: WalReplicaCluster, broker_id: int) -> list[tuple[int, int]]:
    """Of OffsetForLeaderEpoch: (epoch asked for, current leader epoch)."""
    return [
        (partition.leader_epoch, partition.current_leader_epoch)
        for source, _, request in cluster.requests
        if source == broker_id and request.__api_key__ == ApiKey.OFFSET_FOR_LEADER_EPOCH
        for topic in request.topics
        for partition in topic.partitions
    ]


async def agree(cluster: WalReplicaCluster, *broker_ids: int) -> None:
    await cluster.until(lambda: all(map(cluster.is_agreed, broker_ids)))


def deposed(cluster: WalReplicaCluster, broker_id: int) -> None:
    """It does not hear of what comes: a leader that goes on leading."""
    cluster.unaware.add(broker_id)


# Records come through the bucket, and nowhere else


def test_followers_take_what_the_leader_uploads_and_tell_it(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        for word in ("abc", "de", "f"):
            cluster.append(1, *word)
            await cluster.until_caught_up(seconds=0.2)
        assert cluster.are_identical() and values(cluster, 2) == "abcdef"
        for broker_id in (2, 3):
            received = cluster.partition(broker_id).topic_stats.received_bytes
            assert {path for path, _ in received} == {"wal"}
            assert sum(received.values()) == len(cluster.log_bytes(1))
            assert cluster.wal_broker(broker_id).wal_stats.of("t").fetch_bytes == len(cluster.log_bytes(1))

    tell(tmp_path, story)


def test_an_idle_cluster_asks_no_bucket(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, "a")
        await cluster.until_caught_up()
        asked = len(cluster.gets(2))
        await asyncio.sleep(60)
        assert len(cluster.gets(2)) == asked == 1
        assert asked_epochs(cluster, 2) == []

    tell(tmp_path, story)


def test_22_an_event_delivered_twice_is_applied_once(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abc")
        entries = cluster.upload(1, (0, 0))
        cluster.announce(entries)
        cluster.announce(entries)
        await cluster.until(cluster.reaches(2, 3))
        cluster.announce(entries)
        await asyncio.sleep(1)
        assert values(cluster, 2) == "abc" and len(cluster.gets(2)) == 1

    tell(tmp_path, story, uploads_itself=False)


def test_23_slices_delivered_out_of_order_are_appended_in_order(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcdef")
        slices = [cluster.slice_of(1, 0, start, start + 2) for start in (0, 2, 4)]
        objects = [cluster.upload(1, each) for each in slices]
        await agree(cluster, 2)
        for index in (2, 0, 1):
            cluster.announce(objects[index])
            await asyncio.sleep(0.05)
        assert values(cluster, 2) == values(cluster, 3) == "abcdef"

    tell(tmp_path, story, uploads_itself=False)


def test_24_a_gap_is_waited_for_until_the_leader_serves_it(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcdef")
        cluster.announce(cluster.upload(1, cluster.slice_of(1, 0, 0, 2)))
        cluster.announce(cluster.upload(1, cluster.slice_of(1, 0, 4, 6)))
        await asyncio.sleep(3)
        assert end(cluster, 2) == end(cluster, 3) == 2
        cluster.falls_back = {2}
        await cluster.until(cluster.reaches(2, 6))
        cluster.falls_back = set()
        cluster.append(1, *"gh")
        cluster.announce(cluster.upload(1, (0, 6)))
        await cluster.until(cluster.reaches(2, 8))
        assert cluster.are_identical() is False and values(cluster, 2) == "abcdefgh"  # broker 3 still waits
        assert end(cluster, 3) == 2

    tell(tmp_path, story, uploads_itself=False, may_fall_back=True)


def test_25_38_overlaps_of_slices_and_of_what_the_leader_sent_are_trimmed(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcdefgh")
        for first, last in ((0, 4), (2, 6), (5, 8), (0, 8)):
            cluster.announce(cluster.upload(1, cluster.slice_of(1, 0, first, last)))
            cluster.falls_back = {2} if first == 2 else set()
            await asyncio.sleep(0.004)
        await cluster.until_caught_up()
        assert cluster.are_identical() and values(cluster, 2) == "abcdefgh"

    tell(tmp_path, story, uploads_itself=False, may_fall_back=True)


def test_26_a_flipped_byte_is_never_appended(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        (bad,) = cluster.upload(1, (0, 0))
        objects = cluster.buckets[bad.bucket].objects
        objects[bad.object_key] = objects[bad.object_key][:70] + b"?" + objects[bad.object_key][71:]
        cluster.announce([bad])
        await asyncio.sleep(1)
        assert end(cluster, 2) == 0 and len(cluster.gets(2)) == 2
        assert cluster.wal_broker(2).wal_stats.of("t").corrupt == 2
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until_caught_up()
        assert cluster.are_identical()

    tell(tmp_path, story, uploads_itself=False)


def test_27_28_objects_that_are_gone_or_short_give_way(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        (good,) = cluster.upload(1, (0, 0), bucket=bucket_of(3))
        (gone,), (short,) = cluster.upload(1, (0, 0)), cluster.upload(1, (0, 0))
        objects = cluster.buckets[bucket_of(1)].objects
        del objects[gone.object_key]
        objects[short.object_key] = objects[short.object_key][: short.size - 1]
        cluster.announce([good, gone, short])  # told last is tried first
        await cluster.until_caught_up()
        assert [key for key, _, _ in cluster.gets(2)] == [short.object_key] * 2 + [gone.object_key, good.object_key]
        assert [key for key, _, _ in cluster.gets(3)] == [good.object_key]  # in its own zone
        assert cluster.brokers[2].fetchers.failed_count == 0

    tell(tmp_path, story, uploads_itself=False)


def test_29_a_zone_dies_and_the_next_leaders_bucket_is_used(tmp_path: Path) -> None:
    """Leader and bucket go; what was announced there and not fetched is announced again by the next leader."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcd")
        await cluster.until(lambda: end(cluster, 2) == 4)
        cluster.cut.add((3, 1))
        cluster.dead_buckets.add(bucket_of(1))
        cluster.uploads_itself = False
        cluster.append(1, *"ef")
        cluster.announce(cluster.upload(1, (0, 4)))  # nobody can fetch it
        await asyncio.sleep(0.1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        cluster.uploads_itself = True
        await cluster.kill(1)
        cluster.elect(2, isr=(2, 3))
        cluster.append(2, *"gh")
        await cluster.until(lambda: end(cluster, 3) == end(cluster, 2), seconds=10)
        assert loop.time() - began < 10
        assert values(cluster, 2) == values(cluster, 3) == "abcdgh"

    tell(tmp_path, story)


# Who may say what


def test_30_a_deposed_leader_with_a_live_bucket_is_not_believed(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abc")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until_caught_up()
        deposed(cluster, 1)
        cluster.elect(2)
        await agree(cluster, 3)
        cluster.append(1, *"xyz")
        cluster.announce(cluster.upload(1, (0, 3)))
        await asyncio.sleep(1)
        assert end(cluster, 3) == 3 and len(cluster.gets(3)) == 1
        assert cluster.wal_broker(3).wal_stats.of("t").fenced_metadata == 1
        assert asked_epochs(cluster, 3) == [(0, 1)]
        cluster.append(2, *"de")
        cluster.announce(cluster.upload(2, (0, 3)))
        await cluster.until(cluster.reaches(3, 5))
        assert values(cluster, 3) == "abcde" and epochs(cluster, 3) == [EpochEntry(0, 0), EpochEntry(1, 3)]

    tell(tmp_path, story, uploads_itself=False)


def test_31_a_slice_of_an_epoch_to_come_is_held_until_it_comes(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        await agree(cluster, 2, 3)
        deposed(cluster, 3)
        cluster.elect(2)
        cluster.append(2, *"ab")
        cluster.announce(cluster.upload(2, (0, 0)))
        await asyncio.sleep(1)
        assert end(cluster, 3) == 0 and cluster.gets(3) == []
        cluster.tell(cluster.brokers[3])
        await cluster.until(cluster.reaches(3, 2))
        assert values(cluster, 3) == "ab"

    tell(tmp_path, story, uploads_itself=False)


def test_32_a_slice_of_an_older_leader_is_cut_where_its_epoch_ends(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcd")
        first, second, both = (cluster.upload(1, cluster.slice_of(1, 0, *each)) for each in ((0, 2), (2, 3), (2, 4)))
        cluster.announce(first)
        await cluster.until(lambda: end(cluster, 2) == end(cluster, 3) == 2)
        cluster.wal_broker(2).hear(second)
        await cluster.until(cluster.reaches(2, 3))
        cluster.elect(2)
        cluster.append(2, "E")
        cluster.announce(both)
        await cluster.until(lambda: end(cluster, 1) == end(cluster, 3) == 3)
        await asyncio.sleep(1)
        assert values(cluster, 3) == "abc" and end(cluster, 3) == 3
        cluster.announce(cluster.upload(2, (0, 3)))
        await cluster.until_caught_up()
        assert cluster.are_identical() and values(cluster, 3) == "abcE"

    tell(tmp_path, story, uploads_itself=False)


def test_32_who_announced_does_not_matter_but_whose_batches_they_are(tmp_path: Path) -> None:
    """The lineage is {0: 0-2, 3: 3-}.  Broker 2 led in epoch 1 from 2 on: asked about 1 alone, the leader says (0, 3),
    and 2 < 3 would let its batch in."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until(lambda: end(cluster, 2) == end(cluster, 3) == 2)
        cluster.append(1, "c")  # on the leader alone
        cluster.cut |= {(3, 1), (3, 2)}
        deposed(cluster, 1)
        cluster.elect(2, isr=(1, 2, 3))
        cluster.append(2, "x")
        foreign = cluster.upload(2, cluster.slice_of(2, 0, 0, 3))
        deposed(cluster, 2)
        cluster.elect(3)
        cluster.elect(1)
        cluster.tell(cluster.brokers[1])
        cluster.append(1, "d")
        cluster.announce(foreign)
        cluster.cut.clear()
        await agree(cluster, 3)
        await asyncio.sleep(2)
        assert values(cluster, 3) == "ab" and sorted(asked_epochs(cluster, 3)) == [(1, 3)]
        cluster.announce(cluster.upload(1, (0, 2)))
        await cluster.until(cluster.reaches(3, 4))
        assert values(cluster, 3) == "abcd"
        assert epochs(cluster, 3) == [EpochEntry(0, 0), EpochEntry(3, 3)]

    tell(tmp_path, story, uploads_itself=False)


def test_33_a_follower_with_records_of_a_deposed_leader_truncates_first(tmp_path: Path) -> None:
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
        deposed(cluster, 3)
        cluster.elect(2)
        cluster.append(2, *"CDE")
        cluster.announce(cluster.upload(2, (0, 2)))
        await asyncio.sleep(0.1)
        cluster.tell(cluster.brokers[3])
        seen: list[str] = []
        while end(cluster, 3) != 5:
            seen.append(values(cluster, 3))
            await asyncio.sleep(0.0005)
        assert list(dict.fromkeys(seen)) == ["abxy", "ab"] and values(cluster, 3) == "abCDE"

    tell(tmp_path, story, uploads_itself=False)


@pytest.mark.parametrize(("elected", "ends"), [(2, 5), (3, 7)])
def test_34_35_36_the_kips_example(tmp_path: Path, elected: int, ends: int) -> None:
    """Log ends 10, 5 and 7; the zone of the leader is lost; its announcements stay, and nobody voids them."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"0123456789")
        parts = [cluster.upload(1, cluster.slice_of(1, 0, *each)) for each in ((0, 5), (5, 7), (7, 10))]
        cluster.announce(parts[0])
        await cluster.until(lambda: end(cluster, 2) == end(cluster, 3) == 5)
        cluster.deaf.add(2)
        cluster.announce(parts[1])
        await cluster.until(cluster.reaches(3, 7))
        await cluster.kill(1)
        cluster.elect(elected, isr=(2, 3))
        cluster.deaf.clear()
        cluster.dead_buckets.add(bucket_of(1))
        cluster.announce(parts[2])
        other = 5 - elected
        cluster.wal_broker(other).hear(parts[1] + parts[2])
        if elected == 3:
            cluster.announce(cluster.upload(3, (0, 5)))
        await cluster.until(cluster.reaches(other, ends))
        await asyncio.sleep(7)
        assert (end(cluster, 2), end(cluster, 3)) == (ends, ends)
        cluster.append(elected, *"new")
        cluster.announce(cluster.upload(elected, (0, ends)))
        await cluster.until(cluster.reaches(other, ends + 3))
        assert values(cluster, 2) == values(cluster, 3) == "0123456789"[:ends] + "new"

    tell(tmp_path, story, uploads_itself=False)


# Traces of the protocol's model


def test_h4_an_answer_says_nothing_about_what_the_leader_has_deleted(tmp_path: Path) -> None:
    """1 announces @0 in epoch 0; 2 leads, 1 is cut to 0; 2 appends @0 of its own and deletes it."""

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
        cluster.wal_broker(1).hear(foreign)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert asked_epochs(cluster, 1) == [(0, 1)]  # and before it is answered:
        cluster.partition(2).delete_records_on_leader(1)
        await asyncio.sleep(2)
        assert values(cluster, 1) == ""
        cluster.announce(cluster.upload(2, (0, 1)))
        await cluster.until(cluster.reaches(1, 2))
        assert values(cluster, 1) == "b"

    tell(tmp_path, story, uploads_itself=False)


def test_h8_nothing_is_asked_before_the_handshake(tmp_path: Path) -> None:
    """Broker 1 knows that 2 leads before 2 does, and 2 still has records it is going to lose."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until_caught_up()
        cluster.append(1, *"cd")
        foreign = cluster.upload(1, (0, 2))
        deposed(cluster, 2)
        cluster.deaf.add(2)
        cluster.elect(2)
        cluster.announce(foreign)
        await asyncio.sleep(2)
        assert asked_epochs(cluster, 3) == [] and end(cluster, 3) == 2
        cluster.tell(cluster.brokers[2])
        await agree(cluster, 3)
        await cluster.until(lambda: asked_epochs(cluster, 3) == [(0, 1)])
        await asyncio.sleep(1)
        assert end(cluster, 3) == 2

    tell(tmp_path, story, uploads_itself=False)


def test_h8_each_epoch_asks_for_itself(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abc")
        first, second = (cluster.upload(1, cluster.slice_of(1, 0, *each)) for each in ((0, 1), (1, 3)))
        cluster.deaf.add(3)
        cluster.announce(first + second)
        await cluster.until(cluster.reaches(2, 3))
        cluster.elect(2)
        cluster.wal_broker(3).hear(first)
        await cluster.until(cluster.reaches(3, 1))
        cluster.elect(2)
        cluster.wal_broker(3).hear(second)
        await cluster.until(cluster.reaches(3, 3))
        assert asked_epochs(cluster, 3) == [(0, 1), (0, 2)]

    tell(tmp_path, story, uploads_itself=False)


def test_h10_what_came_while_a_foreign_tail_was_there_is_used_after_its_truncation(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"ab")
        cluster.announce(cluster.upload(1, (0, 0)))
        await cluster.until_caught_up()
        cluster.append(1, *"xyz")
        cluster.deaf.add(2)
        cluster.announce(cluster.upload(1, (0, 2)))
        await cluster.until(cluster.reaches(3, 5))
        deposed(cluster, 1)
        deposed(cluster, 3)
        cluster.elect(2)
        cluster.append(2, *"CD")
        cluster.announce(cluster.upload(2, (0, 2)))  # below the log end of 3, as it is now
        await asyncio.sleep(0.1)
        assert end(cluster, 3) == 5
        cluster.tell(cluster.brokers[3])
        await cluster.until(cluster.reaches(3, 4))
        assert values(cluster, 3) == "abCD" and cluster.wal_broker(3).reseeks == 0

    tell(tmp_path, story, uploads_itself=False)


def test_h10_a_log_cut_below_what_was_let_go_reads_the_metadata_again(tmp_path: Path) -> None:
    """An unclean election: even what was committed is cut."""

    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic()
        cluster.append(1, *"abcd")
        first, second, third = (cluster.upload(1, cluster.slice_of(1, 0, *each)) for each in ((0, 2), (2, 3), (3, 4)))
        cluster.announce(first)
        await cluster.until(lambda: end(cluster, 2) == end(cluster, 3) == 2)
        cluster.deaf.add(2)
        cluster.fence(2)
        cluster.place(isr=(1, 3))
        cluster.announce(second + third)
        await cluster.until(lambda: cluster.partition(3).log.high_watermark == 4)
        cluster.elect(2, isr=(2,))
        cluster.append(2, *"XYZ")
        cluster.announce(cluster.upload(2, (0, 2)))
        await cluster.until(lambda: values(cluster, 3) == values(cluster, 1) == "abXYZ")
        assert cluster.wal_broker(3).reseeks == 1

    tell(tmp_path, story, uploads_itself=False)


# Many partitions


def test_56_an_object_of_twenty_partitions_is_one_get(tmp_path: Path) -> None:
    async def story(cluster: WalReplicaCluster) -> None:
        cluster.create_wal_topic(partitions=20)
        for partition in range(20):
            cluster.append(1, *"ab", partition=partition)
        await cluster.until(lambda: all(cluster.is_agreed(2, index) for index in range(20)))
        cluster.announce(cluster.upload(1, *((index, 0) for index in range(20))))
        await cluster.until(lambda: all(end(cluster, 2, index) == 2 for index in range(20)))
        assert len(cluster.gets(2)) == 1
        for partition in range(20):
            cluster.append(1, "c", partition=partition)
        for each in cluster.upload(1, *((index, 2) for index in range(20))):
            cluster.announce([each])  # slice events alone: correct all the same
        await cluster.until(lambda: all(end(cluster, 2, index) == 3 for index in range(20)))
        assert all(cluster.are_identical("t", index) for index in range(20))

    tell(tmp_path, story, uploads_itself=False)


def test_56_partitions_that_lag_take_each_object_once(tmp_path: Path) -> None:
    """Two hundred objects behind: each with some slices of a partition, and not of every one."""

    async def story(cluster: WalReplicaCluster) -> None:
        rng = random.Random(1)
        cluster.get_latency = lambda: rng.choice((0.003, 0.005, 0.02))
        cluster.create_wal_topic(partitions=4)
        await cluster.until(lambda: all(cluster.is_agreed(2, index) for index in range(4)))
        cluster.deaf.add(2)
        made = []
        for number in range(200):
            cluster.uploaded_at_ms = number * 10
            slices = []
            for partition in range(4):
                for _ in range(rng.choice((1, 3)) if number % (partition + 1) == 0 else 0):
                    start = end(cluster, 1, partition)
                    cluster.append(1, "a", partition=partition)
                    slices.append(cluster.slice_of(1, partition, start))
            made.append(cluster.upload(1, *slices))
        for entries in made:
            cluster.wal_broker(2).hear(entries)
            await asyncio.sleep(0.001)
        for partition in range(4):
            await cluster.until(cluster.reaches(2, end(cluster, 1, partition), partition))
        assert len(cluster.gets(2)) == 200

    tell(tmp_path, story, uploads_itself=False)


# Anything may happen


class Chaos:
    """Leaders come and go, also without knowing it; slices are announced late, twice, overlapping, under any epoch
    their leader had; buckets die, lose objects and spoil them; records are deleted; followers restart."""

    def __init__(self, cluster: WalReplicaCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.made: list[WalSlice] = []
        self.step = 0
        self.occurred: Counter[str] = Counter()
        cluster.get_latency = lambda: rng.choice((0.001, 0.005, 0.02))
        cluster.metadata_latency = lambda: rng.choice((0.001, 0.01, 0.05))

    async def run(self, steps: int) -> None:
        actions = [self.append] * 4 + [self.slice] * 4 + [self.announce] * 6 + [self.elect, self.learn, self.fall_back]
        actions += [self.kill_bucket, self.spoil, self.delete_records, self.restart]
        for self.step in range(steps):
            action = self.rng.choice(actions)
            self.occurred[action.__name__] += 1
            await action()
            await asyncio.sleep(self.rng.choice((0, 0.003, 0.05)))
            check_agreement(self.cluster)

    async def settle(self) -> None:
        """One leader, of whom everybody knows and who uploads what it has: everybody gets its log."""
        cluster = self.cluster
        for broker_id in list(cluster.unaware):
            cluster.tell(cluster.brokers[broker_id])
        cluster.dead_buckets.clear()
        cluster.uploads_itself = True
        cluster.elect(cluster.leader())
        cluster.append(cluster.leader(), "last")
        await cluster.until_caught_up(seconds=60)
        leader = cluster.leader()
        for broker_id in (1, 2, 3):
            check_same(cluster, leader, broker_id)

    def some_leader(self) -> int:
        """One of those who think so."""
        return self.rng.choice([each for each in (1, 2, 3) if self.cluster.partition(each).is_leader])

    def some_bucket(self) -> str:
        return bucket_of(self.rng.randrange(1, 4))

    async def append(self) -> None:
        leader = self.some_leader()
        self.cluster.append(leader, *(f"{leader}.{self.step}." for _ in range(self.rng.randrange(1, 4))))

    async def slice(self) -> None:
        leader = self.some_leader()
        log = self.cluster.partition(leader).log
        if log.log_end_offset > log.log_start_offset:
            starts = (log.log_start_offset, self.rng.randrange(log.log_start_offset, log.log_end_offset))
            self.made.append(self.cluster.slice_of(leader, 0, self.rng.choice(starts)))

    async def announce(self) -> None:
        if self.made:
            entries = self.cluster.upload(1, self.rng.choice(self.made[-6:]), bucket=self.some_bucket())
            self.cluster.announce(entries if self.rng.random() < 0.8 else entries * 2)

    async def elect(self) -> None:
        cluster = self.cluster
        cluster.unaware |= {each for each in (1, 2, 3) if self.rng.random() < 0.4}
        cluster.elect(self.rng.choice(cluster.registration().isr))
        if cluster.leader() in cluster.unaware:
            cluster.tell(cluster.brokers[cluster.leader()])

    async def learn(self) -> None:
        if self.cluster.unaware:
            self.cluster.tell(self.cluster.brokers[self.rng.choice(sorted(self.cluster.unaware))])

    async def fall_back(self) -> None:
        self.cluster.falls_back = {each for each in (1, 2, 3) if self.rng.random() < 0.3}

    async def kill_bucket(self) -> None:
        self.cluster.dead_buckets = {self.some_bucket()} if self.rng.random() < 0.6 else set()

    async def spoil(self) -> None:
        objects = self.cluster.buckets[self.some_bucket()].objects
        if objects:
            key = self.rng.choice(sorted(objects))
            data = bytearray(objects.pop(key))
            if self.rng.random() < 0.6:
                data[self.rng.randrange(len(data))] ^= 1
                objects[key] = bytes(data[: self.rng.choice((len(data), len(data) // 2))])

    async def delete_records(self) -> None:
        partition = self.cluster.partition(self.some_leader())
        start, committed = partition.log.log_start_offset, partition.log.high_watermark
        if committed > start:
            partition.delete_records_on_leader(self.rng.randrange(start, committed + 1))

    async def restart(self) -> None:
        broker_id = self.rng.choice([each for each in (1, 2, 3) if each != self.cluster.leader()])
        await self.cluster.kill(broker_id)
        await asyncio.sleep(self.rng.choice((0, 0.02)))
        self.cluster.start(broker_id)


def check_agreement(cluster: WalReplicaCluster) -> None:
    """Who has shaken hands with its leader has nothing that the leader has not, as long as that one leads."""
    for broker_id in (1, 2, 3):
        replica = cluster.partition(broker_id)
        if not cluster.is_agreed(broker_id):
            continue
        leader = cluster.partition(replica.leader_id)
        if leader.is_leader and leader.leader_epoch == replica.leader_epoch:
            check_same(cluster, replica.leader_id, broker_id)


def check_same(cluster: WalReplicaCluster, leader: int, follower: int) -> None:
    """What both logs cover is the same bytes, without a gap, and ends at the follower's end."""
    start = max(cluster.partition(each).log.log_start_offset for each in (leader, follower))
    stop = end(cluster, follower)
    found = {
        each: [
            bytes(found.buffer)
            for found in batches(cluster.log_bytes(each))
            if found.last_offset >= start and found.next_offset <= stop
        ]
        for each in (leader, follower)
    }
    assert found[follower] == found[leader], (
        f"{follower} has {values(cluster, follower)}, its leader {values(cluster, leader)}"
    )


def chaos(directory: Path, seed: int, steps: int = 60) -> Counter[str]:
    async def run(loop: SimLoop) -> Counter[str]:
        cluster = WalReplicaCluster(directory, uploads_itself=False, may_fall_back=True)
        story = Chaos(cluster, random.Random(seed))
        cluster.create_wal_topic()
        try:
            await story.run(steps)
            await story.settle()
        finally:
            await cluster.stop()
        return story.occurred

    return simulate(run, seed=seed)


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 32))
def test_whatever_is_announced_a_follower_has_a_prefix_of_its_leaders_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chaos(tmp_path_factory.mktemp("chaos"), seed)
