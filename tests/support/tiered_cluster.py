"""Broker processes that share a bucket for tiered storage, and what tests ask of them and do to their topics.

A record of `value_of` makes a batch of `BATCH_BYTES`, and is produced alone: `tiered_topic(per_segment=2)` rolls its
log after every second record.  All but the active segment leaves the local disks as soon as it is copied.
"""

import hashlib
import itertools
import json
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
import confluent_kafka.admin
from confluent_kafka import ElectionType
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.common.errors import ErrorCode
from broker.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from tests.support.cluster_process import ClusterProcess
from tests.support.directories import files_under
from tests.support.partition_requests import leader_known_here
from tests.support.patience import PATIENCE, PATIENCE_S, until
from tests.support.remote_bucket import RemoteBucket, running_bucket, segments_of
from tests.support.wire_client import WireClient

VALUE_BYTES: Final = 1000
METADATA_PARTITIONS: Final = 3
ONE_BYTE: Final = {"local.retention.bytes": "1"}  # nothing but the active segment stays

LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5
LIST_OFFSETS_VERSION: Final = 10
FETCH_REQUESTS: Final = "kafka_server_brokertopicmetrics_remotefetchrequests_total"
FETCH_ERRORS: Final = "kafka_server_brokertopicmetrics_remotefetcherrors_total"

QUICK_TIERING: Final = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": str(METADATA_PARTITIONS),
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "remote.fetch.max.wait.ms": "20000",  # as long as it takes: each read is asked for once, and can be counted
    "replica.selector.class": RACK_AWARE_REPLICA_SELECTOR,
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "10000",  # leaders and epochs are counted: nobody loses them on a busy machine
    "broker.heartbeat.interval.ms": "500",
}

_numbers = itertools.count(1)


def value_of(number: int) -> bytes:
    """Text, of no two records the same, and all of one size."""
    return hashlib.shake_128(str(number).encode()).hexdigest((VALUE_BYTES - 10) // 2).encode() + b"%010d" % number


BATCH_BYTES: Final = len(records_batch((0, None, value_of(0))))


class EpochOffset(NamedTuple):
    """An offset with the leader epoch of its record; -1 and -1 where there is none."""

    epoch: int
    offset: int


class TieredCluster(ClusterProcess):
    """`settings` win over those that make tiering quick."""

    def __init__(
        self,
        directory: Path,
        bucket: RemoteBucket,
        *,
        brokers: int = 2,
        settings: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.bucket = bucket
        copies = str(min(3, brokers))
        common = {
            **QUICK_TIERING,
            "rlmm.config.remote.log.metadata.topic.replication.factor": copies,
            **bucket.settings,
            **(settings or {}),
        }
        super().__init__(directory, brokers=brokers, settings=common, **options)

    # -- topics -----------------------------------------------------------------------------------------------------

    def tiered_topic(
        self,
        name: str,
        replicas: Sequence[Sequence[int]] = ((1, 2),),
        per_segment: int = 1,
        config: Mapping[str, str] = ONE_BYTE,
        *,
        is_tiered: bool = True,
        is_named: bool = False,
    ) -> str:
        """The name, made unique unless it `is_named`, of a topic whose partitions have these replicas, all in sync."""
        name = name if is_named else f"{name}-{next(_numbers)}"
        settings = {
            "remote.storage.enable": str(is_tiered).lower(),
            "internal.segment.bytes": str(per_segment * BATCH_BYTES),
            **config,
        }
        new = NewTopic(name, len(replicas), replica_assignment=[list(each) for each in replicas], config=settings)
        admin = self.admin()  # kept: it takes what it was asked down with it
        admin.create_topics([new])[name].result(PATIENCE_S)
        self.wait_for_full_isr(name)
        return name

    def alter(self, topic: str, **changes: str | None) -> None:
        """Change settings of a topic, "_" for "."; None takes one away."""
        self._alter(ResourceType.TOPIC, topic, changes)

    def alter_brokers(self, **changes: str | None) -> None:
        """Change settings of each broker."""
        for node_id in self.node_ids:
            self._alter(ResourceType.BROKER, str(node_id), changes)

    def _alter(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                key.replace("_", "."),
                text,
                incremental_operation=AlterConfigOpType.DELETE if text is None else AlterConfigOpType.SET,
            )
            for key, text in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        where = confluent_kafka.TopicPartition(topic, partition, offset)
        admin = self.admin()
        admin.delete_records([where])[where].result(PATIENCE_S)

    def delete_topic(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(PATIENCE_S)

    # -- replicas ---------------------------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int = 0) -> confluent_kafka.admin.PartitionMetadata:
        return self.admin().list_topics(timeout=PATIENCE_S).topics[topic].partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Its node id; -1 for none."""
        return int(self.partition(topic, partition).leader)

    def reassign(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Until the partition has these replicas, in this order, and all of them are in sync."""
        self.begin_reassignment(topic, replicas, partition)
        until(lambda: self._is_assigned(topic, partition, list(replicas)), f"{topic}-{partition} is on {replicas}")

    def begin_reassignment(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        with WireClient(self.broker(self._alive()).port) as client:
            schema = client.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
            row = schema.ReassignablePartition(partition_index=partition, replicas=tuple(replicas))
            target = schema.ReassignableTopic(name=topic, partitions=(row,))
            request = schema.AlterPartitionReassignmentsRequest(topics=(target,), timeout=PATIENCE)
            answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        assert answer.responses[0].partitions[0].error_code == 0, answer

    def _is_assigned(self, topic: str, partition: int, replicas: list[int]) -> bool:
        now = self.partition(topic, partition)
        return now.replicas == replicas and sorted(now.isrs) == sorted(replicas) and now.leader in replicas

    def _alive(self) -> int:
        return next(node_id for node_id in self.node_ids if self.broker(node_id).is_running())

    def move_leader(self, topic: str, to: int, partition: int = 0) -> None:
        """As operators do it: put it first, and elect the preferred one.  The leader epoch is one higher.

        Until each broker that runs has heard of it, the new leader among them.
        """
        replicas = self.partition(topic, partition).replicas
        self.reassign(topic, [to, *(each for each in replicas if each != to)], partition)
        where = confluent_kafka.TopicPartition(topic, partition)
        admin = self.admin()
        admin.elect_leaders(ElectionType.PREFERRED, [where]).result(PATIENCE_S)
        for broker in self.brokers:
            if broker.is_running():
                with WireClient(broker.port) as client:
                    until(
                        lambda asked=client: leader_known_here(asked, topic, partition) == to,  # type: ignore[misc]
                        f"the broker at {broker.bootstrap} knows that {to} leads {topic}-{partition}",
                    )

    # -- both tiers -------------------------------------------------------------------------------------------------

    def remote_segments(self, topic: str, partition: int = 0) -> list[int]:
        """First offsets."""
        return segments_of(self.bucket, topic, partition)

    def local_segments(self, topic: str, node_id: int, partition: int = 0) -> list[int]:
        """First offsets; empty where there is no replica."""
        directory = self.broker(node_id).data / f"{topic}-{partition}"
        return sorted(int(path.stem) for path in files_under(directory, ".log"))

    def wait_for_tiers(
        self, topic: str, remote: Iterable[int], local: Iterable[int] | None = None, partition: int = 0
    ) -> None:
        """Until these segments are in the bucket, and those on the disk of each replica; by their first offsets."""
        wanted = list(remote)
        until(
            lambda: self.remote_segments(topic, partition) == wanted,
            f"{wanted} of {topic}-{partition} in the bucket",
            lambda: self.remote_segments(topic, partition),
        )
        for node_id in () if local is None else self.partition(topic, partition).replicas:
            self._wait_for_disk(topic, partition, node_id, list(local or ()))

    def _wait_for_disk(self, topic: str, partition: int, node_id: int, wanted: list[int]) -> None:
        until(
            lambda: self.local_segments(topic, node_id, partition) == wanted,
            f"{wanted} of {topic}-{partition} on the disk of {node_id}",
            lambda: self.local_segments(topic, node_id, partition),
        )

    def offset(self, topic: str, timestamp: int, partition: int = 0) -> EpochOffset:
        """What the leader answers about a timestamp or one of the special ones."""
        answer = until(
            lambda: self._offset_by_leader(topic, timestamp, partition), f"the leader of {topic}-{partition} answers"
        )
        assert answer.error_code == 0, answer
        return EpochOffset(answer.leader_epoch, answer.offset)

    def _offset_by_leader(self, topic: str, timestamp: int, partition: int) -> Any:
        """None while brokers do not agree who that is."""
        leader = self.leader(topic, partition)
        if leader < 0:
            return None
        with WireClient(self.broker(leader).port) as client:
            schema = client.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
            row = schema.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
            request = schema.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=(schema.ListOffsetsTopic(name=topic, partitions=(row,)),),
                timeout=PATIENCE,
            )
            answer = client.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request).topics[0].partitions[0]
        return None if answer.error_code == ErrorCode.not_leader_or_follower else answer

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int, int, int]:
        """The begin of the log, the begin of its local part, the last offset in the bucket, and the end."""
        earliest, local, tiered, latest = (
            self.offset(topic, special, partition).offset
            for special in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
        )
        return earliest, local, tiered, latest

    def wait_for_offsets(self, topic: str, *wanted: int, partition: int = 0) -> None:
        """Until `offsets` are these."""
        until(
            lambda: self.offsets(topic, partition) == wanted,
            f"{topic}-{partition} has the offsets {wanted}",
            lambda: self.offsets(topic, partition),
        )

    def set_faults(self, faults: Mapping[str, object], *node_ids: int) -> None:
        """How the buckets of these brokers, or of all, fail from now on; `{}` is not at all."""
        for node_id in node_ids or self.node_ids:
            url = f"http://127.0.0.1:{self.broker(node_id).metrics_port}/faults"
            urllib.request.urlopen(urllib.request.Request(url, json.dumps(faults).encode()), timeout=PATIENCE_S).close()

    def sum_of(self, metric: str, **labels: str) -> int:
        """Over the brokers that run."""
        return int(sum(each.metric(metric, **labels) for each in self.brokers if each.is_running()))

    @contextmanager
    def remote_fetches(self, topic: str, expected: int, by: int | None = None) -> Iterator[None]:
        """Exactly so many reads of remote segments are made meanwhile, all of them by this broker, if one is named."""
        before = self.sum_of(FETCH_REQUESTS, topic=topic)
        own = 0 if by is None else self.broker(by).metric(FETCH_REQUESTS, topic=topic)
        yield
        assert self.sum_of(FETCH_REQUESTS, topic=topic) - before == expected
        assert by is None or self.broker(by).metric(FETCH_REQUESTS, topic=topic) - own == expected


@contextmanager
def tiered_cluster(kind: str, directory: Path, **options: Any) -> Iterator[TieredCluster]:
    """Running, with a bucket of this kind (`running_bucket`); all brokers must live in the end, and have no defect."""
    with (
        running_bucket(kind, directory) as bucket,
        TieredCluster(directory / "cluster", bucket, **options) as cluster,
    ):
        yield cluster
        for broker in cluster.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"
            assert "Traceback" not in broker.log_text(), broker.log_tail()


def settings_of(cluster: ClusterProcess, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = cluster.admin()
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return {name: entry.value for name, entry in described.items()}


# -- clients --------------------------------------------------------------------------------------------------------


def produce(
    cluster: ClusterProcess,
    topic: str,
    numbers: Iterable[int],
    partition: int = 0,
    timestamp: int = 0,
    **config: object,
) -> None:
    """Each `value_of` in a batch of its own, acknowledged by all.

    `timestamp` is that of the first, each later one is a millisecond younger; 0 is now.
    """
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **config}
    )
    for index, number in enumerate(numbers):
        producer.produce(
            topic,
            value_of(number),
            partition=partition,
            timestamp=timestamp and timestamp + index,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
        assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def consume(
    cluster: ClusterProcess, topic: str, count: int, start: int = 0, partition: int = 0, **config: object
) -> list[tuple[int, bytes]]:
    """The first `count` records from an offset on, as (offset, value); fails when they do not come."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **config,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, start)])
    found: list[tuple[int, bytes]] = []

    def are_all_there() -> bool:
        for message in consumer.consume(count - len(found), timeout=0.2):
            assert message.error() is None, message.error().str()
            found.append((message.offset(), message.value()))
        return len(found) >= count

    until(are_all_there, f"{count} records come", lambda: f"{len(found)} came", every_s=0)
    consumer.close()
    return found


def assert_readable(
    cluster: ClusterProcess, topic: str, numbers: Sequence[int], start: int = 0, partition: int = 0, **config: object
) -> None:
    """From `start` on there are the values of these numbers, at one offset after the other."""
    expected = [(start + index, value_of(number)) for index, number in enumerate(numbers)]
    assert consume(cluster, topic, len(numbers), start, partition, **config) == expected
