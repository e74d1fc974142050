"""Random stories about followers through a bucket: nothing shown below a high watermark is ever another record.

Elections are clean: only members of the ISR the controller knows are elected.  Old leaders may not know, and go on.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.common.identifiers import TopicPartition
from broker.records.record_batch import batches
from broker.replication.partition import Partition
from tests.support.builders import batch
from tests.support.plain_bucket import PlainBucket, PlainLeaderWal
from tests.support.replica_cluster import ReplicaCluster
from tests.support.sim_loop import SimLoop, simulate

PROPERTIES = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///not/used",
    "broker.rack": "zone-a",
    "replica.lag.time.max.ms": "2000",
    "remote.wal.fallback.lag.ms": "500",
}
BROKERS = (1, 2, 3)
STEPS = 150
PAUSES = (*(0.0, 0.001, 0.01, 0.1) * 8, 2.5)  # the last is long enough to leave the ISR in


class Story:
    """One partition, one seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.bucket = PlainBucket()
        self.bucket.latency = lambda: self.draw.choice((0.001, 0.004, 0.05))
        self.cluster = ReplicaCluster(directory, properties=PROPERTIES, make_bucket_follower=self.bucket.make_follower)
        self.cluster.latency = lambda: self.draw.choice((0.0005, 0.002, 0.02))
        self.shown: dict[int, bytes] = {}
        self.falls_back: set[int] = set()
        self.appended = 0
        self.acts: list[Callable[[], None]] = [
            *[self.append] * 12,
            *[self.elect] * 2,
            self.fence_off,
            self.connect,
            self.inform,
            self.inform,
            *[self.delete_records] * 2,
            self.switch_fallback,
            self.switch_bucket,
            *[self.shrink] * 3,
        ]

    async def run(self) -> None:
        self.cluster.create_topic(configs={"remote.wal.enable": "true"})
        for broker_id in BROKERS:
            self.partition(broker_id).add_listener(Shown(self, broker_id))
        for _ in range(STEPS):
            self.draw.choice(self.acts)()
            self.lead()
            await asyncio.sleep(self.draw.choice(PAUSES))
        self.cluster.cut.clear()
        for broker_id in BROKERS:
            self.cluster.tell(self.cluster.brokers[broker_id])
        self.bucket.is_down = False
        self.lead()
        self.append()
        for follower in self.bucket.followers:
            follower.pump()
        await self.cluster.until_caught_up(seconds=20)
        # What a leader deleted, the next one may not have heard of.
        start = max(self.partition(broker_id).log.log_start_offset for broker_id in BROKERS)
        expected = records_by_offset(self.partition(self.cluster.leader()), start)
        for broker_id in BROKERS:
            assert self.cluster.brokers[broker_id].fetchers.failed_count == 0
            assert records_by_offset(self.partition(broker_id), start) == expected, broker_id

    def partition(self, broker_id: int) -> Partition:
        return self.cluster.partition(broker_id)

    def leaders(self) -> list[Partition]:
        """All who think so."""
        return [partition for partition in map(self.partition, BROKERS) if partition.is_leader]

    def lead(self) -> None:
        """Who leads, or does again, sends through the bucket."""
        for partition in self.leaders():
            wal = partition.leader_wal
            if not isinstance(wal, PlainLeaderWal) or wal.leader_epoch != partition.leader_epoch:
                self.bucket.lead(partition).falls_back = self.falls_back

    # What happens

    def append(self) -> None:
        leader = self.draw.choice(self.leaders() or [None])
        if leader is not None:
            broker_id = next(each for each in BROKERS if self.partition(each) is leader)
            self.appended += 1
            count = self.draw.randint(1, 4)
            self.cluster.brokers[broker_id].append(batch(*[f"{self.appended}.{place}" for place in range(count)]))

    def elect(self) -> None:
        if self.draw.random() < 0.3:
            self.cluster.unaware.add(self.cluster.leader())
        self.cluster.elect(self.draw.choice(self.cluster.registration().isr))

    def inform(self) -> None:
        for broker_id in sorted(self.cluster.unaware):
            self.cluster.tell(self.cluster.brokers[broker_id])

    def fence_off(self) -> None:
        broker_id = self.draw.choice(BROKERS)
        self.cluster.cut |= {(broker_id, each) for each in BROKERS} | {(each, broker_id) for each in BROKERS}

    def connect(self) -> None:
        self.cluster.cut.clear()

    def delete_records(self) -> None:
        leader = self.draw.choice(self.leaders() or [None])
        if leader is not None:
            high_watermark = leader.log.high_watermark
            leader.delete_records_on_leader(self.draw.randint(max(0, high_watermark - 6), high_watermark))

    def switch_fallback(self) -> None:
        self.falls_back ^= {self.draw.choice(BROKERS)}

    def switch_bucket(self) -> None:
        self.bucket.is_down = not self.bucket.is_down

    def shrink(self) -> None:
        for leader in self.leaders():
            leader.maybe_shrink_isr()


class Shown:
    """Writes down what readers of one broker are shown."""

    def __init__(self, story: Story, broker_id: int) -> None:
        self._story = story
        self._broker_id = broker_id

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        partition = self._story.partition(self._broker_id)
        for each, value in records_by_offset(partition, partition.log.log_start_offset).items():
            if each < offset:
                before = self._story.shown.setdefault(each, value)
                assert before == value, f"broker {self._broker_id} shows {value!r} at {each}, where {before!r} was"

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None: ...
    def on_deleted(self, topic_partition: TopicPartition) -> None: ...


def records_by_offset(partition: Partition, start: int) -> dict[int, bytes]:
    data = b"".join(segment.records.path.read_bytes() for segment in partition.log.segments)
    found = {record.offset: bytes(record.value or b"") for each in batches(data) for record in each.records()}
    return {offset: value for offset, value in found.items() if offset >= start}


@pytest.mark.parametrize("seed", range(12))
def test_nothing_committed_changes_and_all_replicas_agree_in_the_end(tmp_path: Path, seed: int) -> None:
    async def run(loop: SimLoop) -> None:
        story = Story(tmp_path, seed)
        try:
            await story.run()
        finally:
            await story.cluster.stop()

    simulate(run)
