"""Whatever brokers, leaders and administrators do, the controller's decisions keep what replication relies on.

No eligible leader replicas: their feature is off at the level the controller finalizes by default.
"""

import os
import random

import pytest

from broker.common.identifiers import TopicPartition
from broker.controller.brokers_to_isrs import BrokersToIsrs, PartitionKey
from broker.controller.configuration_control_manager import AlterConfigOperation, ConfigChange
from broker.controller.replication_control_manager import ElectionType
from broker.controller.topic_control_manager import CreatePartitionsTopic
from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from broker.metadata.partition_registration import NO_LEADER, LeaderRecoveryState, PartitionRegistration
from tests.unit.controller.controller_support import ControlWorld

BROKERS = (1, 2, 3, 4, 5)
TOPICS = ("a", "b", "c")
STEPS = 300
SEEDS = int(os.environ.get("WHERRY_SEEDS", "40"))


class Cluster:
    """A controller's managers, and what its brokers know: incarnations, and the leaders' views."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = ControlWorld()
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.unclean: set[str] = set()
        for broker_id in BROKERS[:3]:
            self.restart(broker_id)
        self.create_topic("a")

    # What happens

    def step(self) -> None:
        self.world.now += self.random.choice((0.0, 0.5, 3.0))
        kinds = (
            *(self.beat,) * 6,
            *(self.alter_isr,) * 6,
            self.fence_the_stalest,
            self.shut_down,
            self.restart_one,
            self.unregister,
            self.create_a_topic,
            self.delete_a_topic,
            self.add_a_partition,
            self.reassign,
            self.reassign,
            self.cancel_reassignments,
            self.elect,
            self.balance,
            self.allow_unclean,
        )
        self.random.choice(kinds)()

    def a_broker(self) -> int | None:
        return self.random.choice(sorted(self.world.image.brokers)) if self.world.image.brokers else None

    def beat(self) -> None:
        broker_id = self.a_broker()
        if broker_id is not None:
            behind = self.random.choice((0, 0, 0, 5))
            self.world.heartbeat(
                broker_id,
                want_fence=self.random.random() < 0.1,
                current_metadata_offset=self.world.next_offset - 1 - behind,
            )

    def shut_down(self) -> None:
        broker_id = self.a_broker()
        if broker_id is not None:
            self.world.heartbeat(broker_id, want_shut_down=True)

    def fence_the_stalest(self) -> None:
        self.world.apply(self.world.cluster.fence_stalest_broker(self.world.now))

    def restart_one(self) -> None:
        self.restart(self.random.choice(BROKERS))

    def restart(self, broker_id: int) -> None:
        registered = self.world.image.brokers.get(broker_id)
        if registered is not None:
            self.world.cluster.heartbeats.expire(broker_id)  # the old process is gone
        self.incarnations[broker_id] += 1
        self.world.register(broker_id, self.incarnations[broker_id], rack=f"rack-{broker_id % 2}")
        self.world.heartbeat(broker_id)

    def unregister(self) -> None:
        broker_id = self.a_broker()
        if broker_id is not None:
            self.world.apply(self.world.cluster.unregister_broker(broker_id))

    def create_a_topic(self) -> None:
        missing = [name for name in TOPICS if name not in self.world.image.topics.by_name]
        if missing:
            self.create_topic(self.random.choice(missing))

    def create_topic(self, name: str) -> None:
        active = [broker.id for broker in self.world.image.brokers.values() if broker.is_active]
        if active:
            assignments = [self._replicas(self.random.choice(active)) for _ in range(self.random.randint(1, 3))]
            size = min(map(len, assignments))
            self.world.create_topic(name, *(each[:size] for each in assignments))

    def _replicas(self, first: int) -> tuple[int, ...]:
        others = [broker_id for broker_id in self.world.image.brokers if broker_id != first]
        self.random.shuffle(others)
        return (first, *others[: self.random.randint(0, 2)])

    def delete_a_topic(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.world.image.topics.by_name and self.random.random() < 0.3:
            self.world.apply(self.world.topics.delete_topics([name]))
            self.unclean.discard(name)

    def add_a_partition(self) -> None:
        topic = self.world.image.topics.by_name.get(self.random.choice(TOPICS))
        if topic is not None and len(topic.partitions) < 6:
            wanted = CreatePartitionsTopic(name=topic.name, count=len(topic.partitions) + 1)
            self.world.apply(self.world.topics.create_partitions([wanted]))

    def a_partition(self) -> tuple[TopicPartition, PartitionRegistration] | None:
        partitions = [
            (TopicPartition(topic.name, index), partition)
            for topic in self.world.image.topics.by_id.values()
            for index, partition in topic.partitions.items()
        ]
        return self.random.choice(partitions) if partitions else None

    def alter_isr(self) -> None:
        """A leader that is alive adds or drops followers; what it proposes may be refused."""
        found = self.a_partition()
        if found is None or not self.world.image.is_broker_active(found[1].leader):
            return
        (name, index), partition = found
        others = [replica for replica in partition.replicas if replica != partition.leader]
        members = [replica for replica in others if self.random.random() < 0.7]
        recovery = self.random.choice((0, int(partition.leader_recovery_state)))
        self.world.alter_isr(name, partition.leader, *members, index=index, leader_recovery_state=recovery)

    def reassign(self) -> None:
        found = self.a_partition()
        first = self.a_broker()
        if found is not None and first is not None:
            targets = {found[0]: self._replicas(first)}
            self.world.apply(self.world.reassignments.alter_partition_reassignments(targets))

    def cancel_reassignments(self) -> None:
        targets = dict.fromkeys(self.world.reassignments.list_partition_reassignments(None))
        self.world.apply(self.world.reassignments.alter_partition_reassignments(targets))

    def elect(self) -> None:
        self.world.apply(self.world.replication.elect_leaders(ElectionType.PREFERRED, None))

    def balance(self) -> None:
        self.world.apply(self.world.replication.balance_partition_leaders())
        self.world.apply(self.world.replication.elect_unclean_leaders())

    def allow_unclean(self) -> None:
        name = self.random.choice(TOPICS)
        if name in self.world.image.topics.by_name:
            value = self.random.choice(("true", "false"))
            change = ConfigChange("unclean.leader.election.enable", AlterConfigOperation.SET, value)
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            self.world.apply(self.world.configuration.incremental_alter_configs({resource: [change]}))
            (self.unclean.add if value == "true" else self.unclean.discard)(name)

    # What must hold

    def partitions(self) -> dict[PartitionKey, PartitionRegistration]:
        return {
            PartitionKey(topic.id, index): partition
            for topic in self.world.image.topics.by_id.values()
            for index, partition in topic.partitions.items()
        }

    def check(self, before: dict[PartitionKey, PartitionRegistration]) -> None:
        image = self.world.image
        for key, partition in self.partitions().items():
            self._check_shape(partition)
            if partition.leader == NO_LEADER:
                waiting = [replica for replica in partition.isr if image.is_broker_active(replica)]
                assert not waiting, f"{waiting} are in sync and alive, and nobody leads {partition}"
            else:
                assert image.is_broker_active(partition.leader), f"a leader that cannot lead: {partition}"
            if key in before:
                name = image.topics.by_id[key.topic_id].name
                self._check_change(before[key], partition, is_unclean_allowed=name in self.unclean)
        rebuilt = BrokersToIsrs()
        rebuilt.rebuild(image.topics)
        for broker_id in (*BROKERS, NO_LEADER):
            index = self.world.state.brokers_to_isrs
            for look in ("partitions_with_broker_in_isr", "partitions_led_by"):
                assert set(getattr(index, look)(broker_id)) == set(getattr(rebuilt, look)(broker_id))

    def _check_shape(self, partition: PartitionRegistration) -> None:
        replicas = partition.replicas
        assert replicas
        assert len(set(replicas)) == len(replicas)
        assert partition.isr, "without eligible leader replicas an empty ISR forgets who has the records"
        assert len(set(partition.isr)) == len(partition.isr)
        assert set(partition.isr) <= set(replicas), partition
        assert partition.leader in (NO_LEADER, *partition.isr), partition
        assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(replicas), partition
        assert not set(partition.adding_replicas) & set(partition.removing_replicas), partition
        assert len(partition.directories) == len(replicas)

    def _check_change(
        self, before: PartitionRegistration, after: PartitionRegistration, *, is_unclean_allowed: bool
    ) -> None:
        if after is before:
            return
        assert after.partition_epoch > before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        if set(before.replicas) - set(after.replicas):
            assert after.leader_epoch > before.leader_epoch, "a replica that was removed must be fenced by the epoch"
        if after.leader != NO_LEADER and after.leader not in before.isr and not is_unclean_allowed:
            # It may lead in the same change in which it joins: a reassignment that completes.
            assert before.leader in before.isr, f"{after.leader} was not in sync: {before} -> {after}"
            assert after.leader in after.isr
            assert before.is_reassigning
        if after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            assert len(after.isr) == 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_decisions(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(STEPS):
        before = cluster.partitions()
        cluster.step()
        cluster.check(before)
