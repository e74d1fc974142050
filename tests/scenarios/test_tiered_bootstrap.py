"""Stories about followers that are behind what their leader has on its disk (KIP-405): brokers with real logs and
fetchers, and remote storage as one of them sees it who begins behind it."""

import functools
from pathlib import Path
from typing import Any

from broker.common.errors import ErrorCode
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.protocol.api_keys import ApiKey
from broker.records.record_batch import batches
from tests.support.builders import batch, parsed
from tests.support.memory_remote_tier import MemoryRemoteTier
from tests.support.replica_cluster import ReplicaCluster, tell_of
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.tiered_topics import TIERED, TIERING

PRODUCER = 7
BACKOFF_S = 1.0  # replica.fetch.backoff.ms


class TieredCluster(ReplicaCluster):
    """Topic t is tiered; broker 3 has a replica of it and is not there until a story starts it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.tier = MemoryRemoteTier()
        self.remote = ScriptedRemoteLog()
        self.remote.states = self.tier.state_before
        super().__init__(directory, broker_ids=(1, 2), properties=TIERING, remote_log=self.remote, **options)
        self.create_topic(replicas=(1, 2, 3), isr=(1, 2), configs={**TIERED, "min.insync.replicas": "1"})

    async def append(self, *values: str, broker_id: int = 1, **keywords: Any) -> None:
        """One batch, which all that are in sync have afterwards."""
        self.brokers[broker_id].append(batch(*values, **keywords))
        log = self.partition(broker_id).log
        await self.until(lambda: log.high_watermark == log.log_end_offset)

    async def append_tiered(self, *values: str, broker_id: int = 1, **keywords: Any) -> int:
        """One batch, which is copied and leaves the leader's disk; returns where that begins then."""
        await self.append(*values, broker_id=broker_id, **keywords)
        self.partition(broker_id).log.roll()
        return self.tier.copy(self.partition(broker_id).log)

    async def lose(self, broker_id: int) -> None:
        """Its process ends, and the others go on without it."""
        await self.kill(broker_id)
        self.fence(broker_id)
        self.place(isr=(1, 2))

    @property
    def questions(self) -> list[tuple[int, int]]:
        """What remote storage was asked for: (epoch, offset)."""
        return [(each.epoch, each.offset) for each in self.remote.state_questions]

    def fetches(self, source: int) -> list[tuple[int, int]]:
        """(offset, last epoch) of a follower's fetches."""
        return [
            (partition.fetch_offset, partition.last_fetched_epoch)
            for sender, _, entity in self.requests
            if sender == source and entity.__api_key__ == ApiKey.FETCH
            for topic in entity.topics
            for partition in topic.partitions
        ]


tell = functools.partial(tell_of, TieredCluster)


async def in_sync(cluster: TieredCluster, broker_id: int) -> None:
    """Until it is, and has all the leader has."""
    await cluster.until(lambda: broker_id in cluster.registration().isr)
    leader = cluster.partition(cluster.leader()).log
    await cluster.until(lambda: cluster.partition(broker_id).log.log_end_offset == leader.log_end_offset)


def test_38_an_empty_follower_begins_behind_remote_storage_and_joins(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append_tiered("a", "b", producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        cluster.elect(1)
        next_offset = await cluster.append_tiered("c")
        await cluster.append("d")
        cluster.start(3)
        await in_sync(cluster, 3)
        log, leader = cluster.partition(3).log, cluster.partition(1).log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, next_offset, 4)
        assert log.leader_epochs.entries == leader.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 2))
        assert [each.producer_id for each in log.active_producers()] == [PRODUCER]
        assert log.active_producers() == leader.active_producers()
        assert min(each.base_offset for each in batches(cluster.log_bytes(3))) == next_offset
        assert cluster.log_bytes(3) == cluster.log_bytes(1)
        assert cluster.questions == [(1, next_offset - 1)]
        await cluster.append("e")  # committed by all three
        assert log.log_end_offset == 5

    tell(tmp_path, story)


def test_38_a_follower_that_comes_back_after_its_records_have_left_the_leaders_disk(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append("a")
        cluster.start(3)
        await in_sync(cluster, 3)
        await cluster.lose(3)
        await cluster.append("b")
        await cluster.append("c")
        cluster.partition(1).log.roll()
        next_offset = cluster.tier.copy(cluster.partition(1).log)
        await cluster.append("d")
        cluster.start(3)
        assert cluster.partition(3).log.log_end_offset == 1
        await in_sync(cluster, 3)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, next_offset, 4)
        assert cluster.fetches(3)[-1] == (4, 0)

    tell(tmp_path, story)


def test_a_follower_below_the_leaders_log_start_goes_there_first(tmp_path: Path) -> None:
    """Out of range first: what is deleted in both tiers is no matter of remote storage."""

    async def story(cluster: TieredCluster) -> None:
        for value in "abc":
            await cluster.append_tiered(value)
        await cluster.append("d")
        cluster.partition(1).delete_records_on_leader(2)
        cluster.start(3)
        await in_sync(cluster, 3)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 3, 4)
        assert [offset for offset, _ in cluster.fetches(3)][:3] == [0, 2, 3]
        assert log.leader_epochs.entries == (EpochEntry(0, 2),)

    tell(tmp_path, story)


def test_39_a_gap_in_the_epochs_is_bridged(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append_tiered(*["v"] * 20)
        await cluster.append_tiered(*["v"] * 65)
        cluster.elect(1)
        assert await cluster.append_tiered(*["v"] * 5) == 90
        cluster.elect(1)  # and nothing is appended in epoch 2
        cluster.elect(1)
        await cluster.append(*["v"] * 10)
        cluster.partition(1).delete_records_on_leader(20)
        leader = cluster.partition(1).log
        assert [tuple(entry) for entry in leader.leader_epochs.entries] == [(0, 20), (1, 85), (3, 90)]
        cluster.start(3)
        await in_sync(cluster, 3)
        assert cluster.questions == [(1, 89)]
        log = cluster.partition(3).log
        assert log.leader_epochs.entries == leader.leader_epochs.entries
        assert (log.log_start_offset, log.local_log_start_offset) == (20, 90)

    tell(tmp_path, story)


def test_40_a_follower_whose_metadata_lags_tries_again_until_it_has_it(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        next_offset = await cluster.append_tiered("a", "b")
        has_heard = False
        cluster.tier.knows = lambda: has_heard
        cluster.start(3)
        await cluster.until(lambda: len(cluster.questions) == 4)
        assert cluster.partition(3).log.log_end_offset == 0
        has_heard = True
        await in_sync(cluster, 3)
        assert cluster.partition(3).log.local_log_start_offset == next_offset
        assert len(cluster.questions) == 5

    tell(tmp_path, story)


def test_40_tries_keep_to_the_back_off(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append_tiered("a", "b")
        cluster.tier.knows = lambda: False
        cluster.start(3)
        await cluster.until(lambda: len(cluster.questions) == 1)
        before = cluster.brokers[3].now_ms
        await cluster.until(lambda: len(cluster.questions) == 6)
        seconds = (cluster.brokers[3].now_ms - before) / 1000
        assert 5 * BACKOFF_S <= seconds < 5 * BACKOFF_S + 0.2

    tell(tmp_path, story)


def test_41_an_idempotent_producer_continues_at_a_leader_that_began_behind_remote_storage(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        produced = {"producer_id": PRODUCER, "producer_epoch": 0}
        await cluster.append_tiered("a", "b", base_sequence=0, **produced)
        await cluster.append_tiered("c", "d", base_sequence=2, **produced)
        await cluster.append("of nobody")
        cluster.start(3)
        await in_sync(cluster, 3)
        assert cluster.partition(3).log.local_log_start_offset == 4  # it has none of the producer's records
        cluster.elect(3)

        def append(value: str, sequence: int) -> tuple[ErrorCode | None, bool]:
            (result,) = cluster.partition(3).append_records_to_leader(
                parsed(batch(value, base_sequence=sequence, **produced))
            )
            return None if result.error is None else result.error.code, result.is_duplicate

        assert append("too far", 5) == (ErrorCode.out_of_order_sequence_number, False)
        (result,) = cluster.partition(3).append_records_to_leader(parsed(batch("c", "d", base_sequence=2, **produced)))
        assert (result.error, result.is_duplicate) == (None, True)
        assert append("e", 4) == (None, False)
        await cluster.until_caught_up()
        assert cluster.partition(1).log.active_producers()[0].last_sequence == 4

    tell(tmp_path, story)


def test_a_new_leader_ends_what_was_begun_for_the_old_one(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append_tiered("a")
        cluster.start(3)
        cluster.remote.states = None  # it does not answer
        await cluster.until(lambda: len(cluster.questions) == 1)
        cluster.elect(2)  # which has all on its disk
        await in_sync(cluster, 3)
        assert cluster.remote.state_questions[0].answer.cancelled()
        log = cluster.partition(3).log
        assert (log.local_log_start_offset, log.log_end_offset) == (0, 1)

    tell(tmp_path, story)


def test_a_disk_that_moves_on_meanwhile_makes_it_begin_once_more(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        await cluster.append_tiered("a")
        cluster.start(3)
        cluster.remote.states = None
        await cluster.until(lambda: len(cluster.questions) == 1)
        next_offset = await cluster.append_tiered("b")
        cluster.remote.states = cluster.tier.state_before
        question = cluster.remote.state_questions[0]
        question.answer.set_result(cluster.tier.state_before(cluster.partition(3), question.epoch, question.offset))
        await in_sync(cluster, 3)
        assert cluster.questions == [(0, 0), (0, 1)]
        assert cluster.partition(3).log.local_log_start_offset == next_offset

    tell(tmp_path, story)


def test_a_restart_finds_what_was_begun_behind_remote_storage(tmp_path: Path) -> None:
    async def story(cluster: TieredCluster) -> None:
        next_offset = await cluster.append_tiered("a", "b", producer_id=PRODUCER, producer_epoch=0, base_sequence=0)
        await cluster.append("c")
        cluster.start(3)
        await in_sync(cluster, 3)
        before = cluster.partition(3).log
        state = before.leader_epochs.entries, before.active_producers(), before.local_log_start_offset
        before.flush()
        await cluster.lose(3)
        cluster.start(3)
        await in_sync(cluster, 3)
        log = cluster.partition(3).log
        assert (log.leader_epochs.entries, log.active_producers(), log.local_log_start_offset) == state
        assert log.local_log_start_offset == next_offset
        assert len(cluster.questions) == 1  # the new process had none

    tell(tmp_path, story)
