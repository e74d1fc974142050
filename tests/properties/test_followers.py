"""Three replicas under elections, restarts, cuts and late metadata: what was acknowledged stays, and the logs agree.

Elections are clean: a leader comes from the ISR.  A restart keeps what was written; losing it is for the simulation of
the whole node.
"""

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.records.record_batch import batches
from tests.support.builders import batch
from tests.support.replica_cluster import ReplicaCluster, T
from tests.support.sim_loop import SimLoop, simulate

SEEDS = range(int(os.environ.get("WHERRY_SEEDS", "20")))
BROKERS = (1, 2, 3)
STEPS = 60
TOPIC = {"min.insync.replicas": "2", "segment.bytes": "1048576"}


HAPPENED: Counter[str] = Counter()  # over all seeds


class Chaos:
    def __init__(self, cluster: ReplicaCluster, draw: random.Random) -> None:
        self.cluster = cluster
        self.draw = draw
        self.sent = 0
        self.acknowledged: list[tuple[int, str]] = []  # offset and value
        self.happened: dict[str, int] = {}
        self.writes: list[asyncio.Task[None]] = []

    def step(self) -> None:
        choices = {
            self.append: 10,
            self.elect: 3,
            self.cut: 2,
            self.heal: 2,
            self.leave_unaware: 2,
            self.tell: 3,
            self.delete_records: 1,
            self.roll: 1,
        }
        action = self.draw.choices(list(choices), list(choices.values()))[0]
        if action():
            self.happened[action.__name__] = self.happened.get(action.__name__, 0) + 1

    def append(self) -> bool:
        """To any broker that believes it leads."""
        leaders = [b for b in self.cluster.brokers.values() if (p := b.replicas.hosted_partition(T)) and p.is_leader]
        if not leaders:
            return False
        broker = self.draw.choice(leaders)
        for _ in range(self.draw.randint(1, 3)):
            self.sent += 1
            size = self.draw.choice((1, 1, 2, 200))
            self.writes.append(
                asyncio.get_running_loop().create_task(self._write(broker, [f"{self.sent}/{n}" for n in range(size)]))
            )
        return True

    async def _write(self, broker: object, values: list[str]) -> None:
        results = await broker.produce([(T, batch(*values))], acks=-1, timeout_ms=3_000)  # type: ignore[attr-defined]
        if results[0].error is ErrorCode.none:
            self.acknowledged += enumerate(values, results[0].base_offset)

    def elect(self) -> bool:
        old = self.cluster.registration()
        alive = [member for member in old.isr if member in self.cluster.brokers]
        if not alive:
            return False
        self.cluster.elect(self.draw.choice(alive))
        return True

    def cut(self) -> bool:
        self.cluster.cut.add(tuple(self.draw.sample(BROKERS, 2)))  # type: ignore[arg-type]
        return True

    def heal(self) -> bool:
        had = bool(self.cluster.cut)
        self.cluster.cut.clear()
        return had

    def leave_unaware(self) -> bool:
        self.cluster.unaware.add(self.draw.choice(BROKERS))
        return True

    def tell(self) -> bool:
        late = [broker_id for broker_id in self.cluster.unaware if broker_id in self.cluster.brokers]
        for broker_id in late:
            self.cluster.tell(self.cluster.brokers[broker_id])
        return bool(late)

    def delete_records(self) -> bool:
        leader = self.cluster.leader()
        broker = self.cluster.brokers.get(leader)
        if broker is None or not broker.partition().is_leader:
            return False
        log = broker.partition().log
        offset = self.draw.randint(log.log_start_offset, log.high_watermark)
        broker.partition().delete_records_on_leader(offset)
        return True

    def roll(self) -> bool:
        broker = self.draw.choice(list(self.cluster.brokers.values()) or [None])  # type: ignore[list-item]
        if broker is None or (partition := broker.replicas.hosted_partition(T)) is None:
            return False
        partition.log.roll()
        return True

    async def kill_or_start(self) -> None:
        down = [broker_id for broker_id in BROKERS if broker_id not in self.cluster.brokers]
        if down and self.draw.random() < 0.7:
            self.start(self.draw.choice(down))
        elif len(down) < 2:
            victim = self.draw.choice([broker_id for broker_id in BROKERS if broker_id not in down])
            await self.cluster.kill(victim)
            self.cluster.unaware.discard(victim)
            self.fence(victim)
            self.happened["kill"] = self.happened.get("kill", 0) + 1

    def fence(self, victim: int) -> None:
        """As the controller does: out of the ISR unless it is the last member, and another leader."""
        self.cluster.fence(victim)
        old = self.cluster.registration()
        isr = tuple(member for member in old.isr if member != victim) or old.isr
        if old.leader == victim:
            self.cluster.elect(-1 if isr == (victim,) else self.draw.choice(isr), isr=isr)
        elif isr != old.isr:
            self.cluster.place(isr=isr)

    def start(self, broker_id: int) -> None:
        self.cluster.start(broker_id)
        if self.cluster.leader() == -1 and broker_id in self.cluster.registration().isr:
            self.cluster.elect(broker_id)

    async def settle(self) -> None:
        self.cluster.cut.clear()
        for broker_id in BROKERS:
            if broker_id not in self.cluster.brokers:
                self.start(broker_id)
        self.tell()
        await asyncio.gather(*self.writes)
        await self.cluster.until(lambda: set(self.cluster.registration().isr) == set(BROKERS), seconds=60)
        await self.cluster.until_caught_up(seconds=60)


@pytest.mark.parametrize("seed", SEEDS)
def test_acknowledged_records_stay_and_replicas_agree(tmp_path: Path, seed: int) -> None:
    async def story(loop: SimLoop) -> None:
        draw = random.Random(seed)
        cluster = ReplicaCluster(tmp_path, properties={"replica.lag.time.max.ms": "2000"})
        cluster.latency = lambda: draw.expovariate(1 / 0.002)
        cluster.controller_delay = lambda: draw.expovariate(1 / 0.02)
        cluster.create_topic(configs=TOPIC)
        chaos = Chaos(cluster, draw)
        shrinking = loop.create_task(shrink(cluster))
        for _ in range(STEPS):
            chaos.step()
            if draw.random() < 0.15:
                await chaos.kill_or_start()
            await asyncio.sleep(draw.expovariate(1 / draw.choice((0.003, 0.05, 0.8))))
        await chaos.settle()
        shrinking.cancel()
        logs = {broker_id: read(cluster, broker_id) for broker_id in BROKERS}
        # A replica's log start never goes back, so whoever deleted more as a leader keeps that.
        start = max(cluster.partition(broker_id).log.log_start_offset for broker_id in BROKERS)
        for log in logs.values():
            assert [each for each in log if each[0] >= start] == [each for each in logs[1] if each[0] >= start]
            assert set(chaos.acknowledged) <= set(log) | {each for each in chaos.acknowledged if each[0] < start}
            assert len({value for _, value in log}) == len(log), "a record is there twice"
        assert all(broker.fetchers.failed_count == 0 for broker in cluster.brokers.values())
        for name, count in (*chaos.happened.items(), ("acknowledged", len(chaos.acknowledged))):
            HAPPENED[name] += count
        await cluster.stop()

    simulate(story, seed=seed)


def test_all_that_can_happen_did() -> None:
    missing = {"append", "elect", "cut", "heal", "leave_unaware", "tell", "kill", "acknowledged"} - HAPPENED.keys()
    assert not missing, HAPPENED
    assert HAPPENED["acknowledged"] > 50 * len(SEEDS)


def read(cluster: ReplicaCluster, broker_id: int) -> list[tuple[int, str]]:
    """Offset and value of every record from the log start on."""
    log = cluster.partition(broker_id).log
    found = [
        (record.offset, record.value.decode())
        for each in batches(cluster.log_bytes(broker_id))
        for record in each.records()
        if record.offset >= log.log_start_offset
    ]
    return found


async def shrink(cluster: ReplicaCluster) -> None:
    while True:
        await asyncio.sleep(1.0)
        for broker in list(cluster.brokers.values()):
            broker.replicas.maybe_shrink_isrs()
