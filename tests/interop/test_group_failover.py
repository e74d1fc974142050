"""Groups of every client whose coordinator is killed, frozen and restarted, on a cluster of three brokers.

All groups have the same coordinator and run through the same story at the same time; each test then looks at one
client.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, partition_for_key
from tests.interop.group_members import MEMBERS, Ledger, Member
from tests.support import java_tools
from tests.support.cluster_process import ClusterProcess
from tests.support.patience import PATIENCE_S, until

pytestmark = pytest.mark.interop

TOPIC, PARTITIONS = "moving", 6
OFFSETS_PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}
ANSWER_S = 10  # then another broker is asked
FREEZE_S = 8.0  # twice a broker's session: another coordinator has been elected when it thaws
PHASES = ("killed", "frozen", "restarted")

Membership = dict[str, tuple[tuple[str, int], ...]]  # by member id


@dataclass
class Group:
    """One client's group: a dynamic and a static member, and what was seen of it before and after each phase."""

    kind: str
    name: str
    ledger: Ledger = field(default_factory=Ledger)
    members: list[Member] = field(default_factory=list)
    before: dict[str, Membership] = field(default_factory=dict)
    after: dict[str, Membership] = field(default_factory=dict)
    coordinators: list[int] = field(default_factory=list)
    stored: dict[int, int] = field(default_factory=dict)


class Load:
    """Records without end until it is stopped; `acknowledged` has where they are."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[tuple[int, int]] = set()
        self.errors: list[str] = []
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._is_stopping.wait(0.01):
                return
            self._producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            self.acknowledged.add((partition, offset))

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


class Story:
    """What happens to all groups; afterwards `groups` has what was seen."""

    def __init__(self, cluster: ClusterProcess) -> None:
        self.cluster = cluster
        kinds = [kind for kind in MEMBERS if kind != "java" or java_tools.why_not_available() is None]
        self.groups = {kind: Group(kind, _name_in_partition_0(kind)) for kind in kinds}

    def run(self) -> None:
        self.cluster.create_topic(TOPIC, PARTITIONS)
        self.load = Load(self.cluster.bootstrap)
        for group in self.groups.values():
            for number, instance_id in enumerate((None, f"{group.name}-static")):
                name = f"{group.name}-{number}"
                member = MEMBERS[group.kind](self.cluster.bootstrap, TOPIC, group.name, name, instance_id, group.ledger)
                group.members.append(member)
                member.start()
        self._wait("the groups to begin", self._have_all_begun)
        for phase in PHASES:
            self._go_through(phase)
        self.load.stop()
        self._wait("everything to be processed", self._is_all_processed)
        for group in self.groups.values():
            for member in group.members:
                member.stop()
            group.stored = self._stored(group)

    def _go_through(self, phase: str) -> None:
        self.cluster.wait_for_full_isr(TOPIC)
        self.cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)
        for group in self.groups.values():
            coordinator, group.before[phase] = self._describe(group)
            group.coordinators.append(coordinator)
        happens: dict[str, Callable[[int], None]] = {
            "killed": self.cluster.kill,
            "frozen": self._freeze,
            "restarted": self.cluster.restart,
        }
        happens[phase](coordinator)
        since = time.monotonic()
        self._wait(
            f"commits after the coordinator was {phase}",
            lambda: all(group.ledger.last_commit_at > since for group in self.groups.values()),
        )
        for group in self.groups.values():
            group.after[phase] = self._describe(group)[1]
        if not self.cluster.broker(coordinator).is_running():
            self.cluster.restart(coordinator)

    def _freeze(self, node_id: int) -> None:
        self.cluster.pause(node_id)
        time.sleep(FREEZE_S)
        self.cluster.resume(node_id)

    def _describe(self, group: Group) -> tuple[int, Membership]:
        """The coordinator, and who has what, once the group is stable."""
        seen: list[object] = []

        def stable() -> Any:
            admin = self.cluster.admin()  # a used one knows coordinators of the past for minutes
            try:
                asked = admin.describe_consumer_groups([group.name], request_timeout=ANSWER_S)
                answer = asked[group.name].result(PATIENCE_S)
            except confluent_kafka.KafkaException as error:
                seen[:] = [error]
                return None
            seen[:] = [answer.state]
            return answer if answer.state is confluent_kafka.ConsumerGroupState.STABLE else None

        found = until(stable, f"{group.name} is stable", lambda: (*seen, group.ledger.notes[-20:]))
        return found.coordinator.id, {
            member.member_id: tuple(sorted((each.topic, each.partition) for each in member.assignment.topic_partitions))
            for member in found.members
        }

    def _stored(self, group: Group) -> dict[int, int]:
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group.name)
        admin = self.cluster.admin()  # kept: it takes what it was asked down with it
        answer = admin.list_consumer_group_offsets([asked])[group.name].result(PATIENCE_S)
        return {each.partition: each.offset for each in answer.topic_partitions}

    def _have_all_begun(self) -> bool:
        for group in self.groups.values():
            if len(group.ledger.committed) < PARTITIONS:
                return False
            if len(self._describe(group)[1]) < len(group.members):
                return False
        return True

    def _is_all_processed(self) -> bool:
        return all(
            self.load.acknowledged <= group.ledger.processed.keys() and self._is_all_committed(group)
            for group in self.groups.values()
        )

    def _is_all_committed(self, group: Group) -> bool:
        ends: dict[int, int] = {}
        for partition, offset in self.load.acknowledged:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return all(group.ledger.committed.get(partition, 0) >= end for partition, end in ends.items())

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        def notes() -> object:
            return {
                group.name: (dict(group.ledger.committed), group.ledger.notes[-10:]) for group in self.groups.values()
            }

        until(is_done, what, notes)


def _name_in_partition_0(kind: str) -> str:
    names = (f"{kind}-{number}" for number in itertools.count())
    return next(name for name in names if partition_for_key(name, OFFSETS_PARTITIONS) == 0)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), settings=SETTINGS, dedicated_controller=True) as cluster:
        story = Story(cluster)
        try:
            story.run()
            yield story
        finally:
            for member in [each for group in story.groups.values() for each in group.members]:
                member.abandon()


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.java if kind == "java" else ()) for kind in MEMBERS])
def group(request: pytest.FixtureRequest, story: Story) -> Group:
    if request.param not in story.groups:
        pytest.skip(java_tools.why_not_available() or "")
    return story.groups[request.param]


def test_44_the_coordinator_was_another_one_each_time(story: Story) -> None:
    for group in story.groups.values():
        assert group.coordinators[0] != group.coordinators[1], group.coordinators


def test_44_every_record_is_processed_and_none_again_once_committed(story: Story, group: Group) -> None:
    assert story.load.errors == []
    assert len(story.load.acknowledged) > 100
    assert story.load.acknowledged <= group.ledger.processed.keys()
    assert group.ledger.again_after_commit == []


def test_44_committed_offsets_stay(story: Story, group: Group) -> None:
    assert group.stored == group.ledger.committed


@pytest.mark.parametrize("phase", PHASES)
def test_44_members_keep_their_ids_and_assignments(group: Group, phase: str) -> None:
    """No generation began: the session of a member is longer than it takes to find another coordinator."""
    assert len(group.before[phase]) == 2
    assert group.after[phase] == group.before[phase], "\n".join(group.ledger.notes)
