"""Whatever a cluster goes through: a snapshot and the records after it give what all records give (behaviour 5)."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.errors import KafkaError
from broker.common.identifiers import TopicPartition
from broker.controller.configuration_control_manager import AlterConfigOperation, ConfigChange
from broker.controller.replication_control_manager import ElectionType
from broker.controller.topic_control_manager import CreatableTopic, CreatePartitionsTopic
from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_loader import MetadataLoader
from broker.metadata.metadata_records import to_records
from broker.schemas.cluster_metadata import decode, encode, record_version
from tests.unit.controller.controller_support import ControlWorld

BROKERS = (1, 2, 3)
TOPICS = ("a", "b", "c")

broker_ids = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
Step = tuple[str, Any, Any]

steps = st.one_of(
    st.tuples(st.just("register"), broker_ids, st.integers(1, 3)),
    st.tuples(st.just("unfence"), broker_ids, st.none()),
    st.tuples(st.just("fence"), broker_ids, st.none()),
    st.tuples(st.just("shut down"), broker_ids, st.none()),
    st.tuples(st.just("unregister"), broker_ids, st.none()),
    st.tuples(st.just("create"), topics, st.integers(1, 3)),
    st.tuples(st.just("grow"), topics, st.integers(2, 4)),
    st.tuples(st.just("delete"), topics, st.none()),
    st.tuples(st.just("isr"), topics, st.lists(broker_ids, unique=True, max_size=3)),
    st.tuples(st.just("move"), topics, st.lists(broker_ids, unique=True, max_size=2)),
    st.tuples(st.just("elect"), topics, st.sampled_from(list(ElectionType))),
    st.tuples(st.just("config"), topics, st.sampled_from(["1000", "2000", None])),
    st.tuples(st.just("producer ids"), broker_ids, st.none()),
)


class RandomCluster(ControlWorld):
    """A cluster to which things happen; what it refuses does not happen."""

    def __init__(self, *, elr: bool) -> None:
        super().__init__(elr=elr, default__replication__factor="2")
        self.batches: list[list[Any]] = []
        self._note()
        for broker_id in BROKERS:
            self.happen(("register", broker_id, 1))
            self.happen(("unfence", broker_id, None))
        self.happen(("create", "a", 2))

    def happen(self, step: Step) -> None:
        kind, subject, detail = step
        self.now += 1
        try:
            self._handlers[kind](self, subject, detail)
        except KafkaError:
            return
        self._note()

    def _note(self) -> None:
        if self.records:
            self.batches.append(self.records)
            self.records = []

    def _register(self, broker_id: int, incarnation: int) -> None:
        self.now += 20 if incarnation == 3 else 0
        self.register(broker_id, incarnation, rack="ab"[broker_id % 2])

    def _beat(self, broker_id: int, **fields: Any) -> None:
        if broker_id in self.image.brokers:
            self.heartbeat(broker_id, **fields)

    def _isr(self, name: str, isr: list[int]) -> None:
        if name in self.image.topics.by_name:
            self.alter_isr(name, *dict.fromkeys([self.partition(name).leader, *isr]))

    def _move(self, name: str, replicas: list[int]) -> None:
        if name in self.image.topics.by_name:
            targets = {TopicPartition(name, 0): tuple(replicas) or None}
            self.apply(self.reassignments.alter_partition_reassignments(targets))

    def _config(self, name: str, value: str | None) -> None:
        operation = AlterConfigOperation.SET if value else AlterConfigOperation.DELETE
        change = ConfigChange("retention.ms", operation, value)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        self.apply(self.configuration.incremental_alter_configs({resource: [change]}))

    def _elect(self, name: str, kind: ElectionType) -> None:
        self.apply(self.replication.elect_leaders(kind, None))

    def _create(self, name: str, count: int) -> None:
        self.apply(self.topics.create_topics([CreatableTopic(name=name, num_partitions=count, replication_factor=2)]))

    def _grow(self, name: str, count: int) -> None:
        self.apply(self.topics.create_partitions([CreatePartitionsTopic(name=name, count=count)]))

    _handlers: dict[str, Callable[..., None]] = {  # noqa: RUF012  a table, never changed
        "register": _register,
        "unfence": lambda self, broker, _: self._beat(broker),
        "fence": lambda self, broker, _: self._beat(broker, want_fence=True),
        "shut down": lambda self, broker, _: self._beat(broker, want_shut_down=True),
        "unregister": lambda self, broker, _: self.apply(self.cluster.unregister_broker(broker)),
        "create": _create,
        "grow": _grow,
        "delete": lambda self, name, _: self.apply(self.topics.delete_topics([name])),
        "isr": _isr,
        "move": _move,
        "elect": _elect,
        "config": _config,
        "producer ids": lambda self, broker, _: self.apply(self.producer_ids.allocate_block(broker, 0)),
    }


def run(history: list[Step], *, elr: bool) -> RandomCluster:
    cluster = RandomCluster(elr=elr)
    for step in history:
        cluster.happen(step)
    return cluster


def stored(record: Any) -> Any:
    """What a reader of the log sees."""
    return decode(encode(record, record_version(type(record), 29)))


@settings(max_examples=60)
@given(history=st.lists(steps, min_size=10, max_size=40), cut=st.floats(0, 1), elr=st.booleans())
def test_5_a_snapshot_and_the_tail_give_what_all_records_give(history: list[Step], cut: float, elr: bool) -> None:
    cluster = run(history, elr=elr)
    whole, before, images = MetadataLoader(), MetadataLoader(), []
    offset = -1
    for batch in cluster.batches:
        offset += len(batch)
        whole.load_batch([stored(record) for record in batch], offset, 1)
        images.append(whole.image)
    assert whole.image == cluster.image
    index = min(int(cut * len(images)), len(images) - 1)
    snapshot = images[index]
    before.load_snapshot([stored(record) for record in to_records(snapshot, 29)], snapshot.offset, 1)
    assert before.image == snapshot
    for batch in cluster.batches[index + 1 :]:
        before.load_batch([stored(record) for record in batch], before.image.offset + len(batch), 1)
    assert before.image == whole.image
    delta = MetadataDelta.between(snapshot, whole.image)
    assert delta.apply(whole.image.offset, 1) == whole.image


@settings(max_examples=60)
@given(history=st.lists(steps, min_size=15, max_size=60), elr=st.booleans())
def test_leaders_are_active_members_of_the_isr(history: list[Step], elr: bool) -> None:
    cluster = run(history, elr=elr)
    for _, partition in cluster.image.topics.partitions():
        assert set(partition.isr) <= set(partition.replicas)
        assert len(partition.directories) == len(partition.replicas)
        assert not set(partition.eligible_leader_replicas) & set(partition.isr)
        if partition.has_leader:
            assert partition.leader in partition.isr
            assert cluster.image.is_broker_active(partition.leader)
        elif not elr:
            assert partition.isr


@settings(max_examples=60)
@given(history=st.lists(steps, min_size=15, max_size=60), elr=st.booleans())
def test_the_index_by_broker_is_what_the_image_says(history: list[Step], elr: bool) -> None:
    cluster = run(history, elr=elr)
    index = cluster.state.brokers_to_isrs
    fresh = type(index)()
    fresh.rebuild(cluster.image.topics)
    for broker_id in BROKERS:
        assert set(index.partitions_with_broker_in_isr(broker_id)) == set(
            fresh.partitions_with_broker_in_isr(broker_id)
        )
        assert set(index.partitions_led_by(broker_id)) == set(fresh.partitions_led_by(broker_id))
    assert set(index.partitions_with_no_leader()) == set(fresh.partitions_with_no_leader())


@settings(max_examples=40)
@given(history=st.lists(steps, min_size=10, max_size=40))
def test_epochs_never_go_back(history: list[Step]) -> None:
    cluster = RandomCluster(elr=False)
    before: MetadataImage = cluster.image
    for step in history:
        cluster.happen(step)
        for key, partition in cluster.image.topics.partitions():
            old = before.topics.partition_by_id(key.topic_id, key.partition)
            if old is not None and old is not partition:
                assert partition.partition_epoch > old.partition_epoch
                assert partition.leader_epoch >= old.leader_epoch
                if partition.leader != old.leader:
                    assert partition.leader_epoch > old.leader_epoch
        before = cluster.image
