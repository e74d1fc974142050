"""Transactions through buckets: a follower knows of them what its leader knows, also when it has started again."""

import asyncio
import random
from pathlib import Path

from broker.log.transaction_index import AbortedTransaction
from broker.log.unified_log import UnifiedLog
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.memory_records_builder import records_batch
from tests.support.builders import NOW_MS, parsed
from tests.support.sim_loop import SimLoop, simulate
from tests.support.wal_replica_cluster import WAL_TOPIC, WalReplicaCluster

LEADER, FOLLOWER = 1, 2
COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


class Producers:
    """What transactional producers and their coordinator write to the leader."""

    def __init__(self, cluster: WalReplicaCluster) -> None:
        self._cluster = cluster
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, count: int = 1) -> None:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        records = [(NOW_MS, None, b"v" * 20)] * count
        about = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        self._append(records_batch(*records, is_transactional=True, **about), AppendOrigin.CLIENT)

    def end(self, producer_id: int, how: ControlRecordType) -> None:
        marker = EndTransactionMarker(how, 0)
        batch = end_transaction_marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS)
        self._append(batch, AppendOrigin.COORDINATOR)

    def _append(self, batch: bytearray, origin: AppendOrigin) -> None:
        (result,) = self._cluster.partition(LEADER).append_records_to_leader(parsed(batch), origin)
        assert result.error is None, result


def aborted(log: UnifiedLog) -> list[AbortedTransaction]:
    """All that its transaction indexes have."""
    return [each for segment in log.segments for each in segment.collect_aborted(0, log.log_end_offset).transactions]


def test_12_an_open_transaction_is_replicated_and_its_abort_is_known_at_the_follower(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = WalReplicaCluster(tmp_path)
        try:
            cluster.create_wal_topic()
            producers = Producers(cluster)
            producers.write(7, 3)
            producers.write(8, 2)
            await cluster.until_caught_up(seconds=1)
            await asyncio.sleep(1)
            logs = [cluster.partition(broker_id).log for broker_id in (LEADER, FOLLOWER)]
            assert [(log.log_end_offset, log.high_watermark, log.last_stable_offset) for log in logs] == [(5, 5, 0)] * 2
            producers.end(7, ABORT)
            producers.end(8, COMMIT)
            await cluster.until_caught_up(seconds=1)
            await asyncio.sleep(1)
            assert [(log.log_end_offset, log.last_stable_offset) for log in logs] == [(7, 7)] * 2
            assert aborted(logs[1]) == aborted(logs[0]) == [AbortedTransaction(7, 0, 5, 3)]
        finally:
            await cluster.stop()

    simulate(story)


def test_7_a_follower_that_starts_again_has_the_leaders_batches_producers_and_transactions(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        cluster = WalReplicaCluster(tmp_path)
        try:
            cluster.create_topic(configs={**WAL_TOPIC, "internal.segment.bytes": "4000"})
            producers, chance = Producers(cluster), random.Random(1176)
            open_ones: set[int] = set()
            for _ in range(600):
                producer_id = chance.randint(7, 10)
                if producer_id in open_ones and chance.random() < 0.4:
                    producers.end(producer_id, chance.choice([COMMIT, ABORT]))
                    open_ones.remove(producer_id)
                else:
                    producers.write(producer_id, chance.randint(1, 4))
                    open_ones.add(producer_id)
                if chance.random() < 0.1:
                    await asyncio.sleep(0.02)
            await cluster.until_caught_up(seconds=5)
            assert {path for path, _ in cluster.partition(FOLLOWER).topic_stats.received_bytes} == {"wal"}
            for _ in range(2):
                leader, follower = (cluster.partition(broker_id).log for broker_id in (LEADER, FOLLOWER))
                assert cluster.are_identical()
                assert len(aborted(leader)) > 50 and len(list(follower.segments)) > 5
                assert aborted(follower) == aborted(leader)
                assert follower.active_producers() == leader.active_producers()
                await cluster.kill(FOLLOWER)
                cluster.start(FOLLOWER)
                await cluster.until_caught_up(seconds=5)
        finally:
            await cluster.stop()

    simulate(story)
