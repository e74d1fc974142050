"""Layout: which processes, ports, directories and buckets a demonstration consists of, and their settings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.config.properties import format_properties
from broker.config.setting import ConfigError
from broker.demo.target import Target, TargetKind

HOST: Final = "127.0.0.1"
ZONE_LETTERS: Final = "abc"
BROKERS_MAX: Final = 9  # a key for each
PORT_MAX: Final = 65_000
CONTROLLER_PORT_OFFSET: Final = 98  # 9190, as in config/cluster
METRICS_PORT_OFFSET: Final = 312  # 9404, 9405, ...

PARTITIONS: Final = 3
WAL_TOPIC: Final = "orders"
CLASSIC_TOPIC: Final = "orders-classic"
SEGMENT_BYTES: Final = 4 << 20
# What is kept is bounded by size: a demonstration may run for days.
_SMALL: Final = {"segment.bytes": str(SEGMENT_BYTES), "file.delete.delay.ms": "5000"}
_TIERED: Final = {
    **_SMALL,
    "remote.wal.enable": "true",
    "remote.storage.enable": "true",
    "local.retention.ms": "60000",
    "local.retention.bytes": str(4 * SEGMENT_BYTES),
    "retention.bytes": str(16 * SEGMENT_BYTES),
}
# A request to S3 costs four times what it costs to S3 Express: larger objects, so that they pay.
_RARE_OBJECTS: Final = {
    "remote.wal.combine.economy.linger.ms": "500",
    "remote.wal.combine.min.bytes": "500000",
    "remote.wal.combine.partition.max.bytes": "524288",
}
_LOCAL: Final = {**_SMALL, "retention.bytes": str(8 * SEGMENT_BYTES)}


class DemoError(Exception):
    """Why the demonstration cannot begin, or go on; the message tells a user."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`url` as in a setting, `name` as metrics and faults have it."""

    url: str
    name: str

    @classmethod
    def of_directory(cls, directory: Path) -> "Bucket":
        return cls(directory.as_uri(), f"file://{directory}")

    @property
    def is_directory(self) -> bool:
        return self.url.startswith("file://")


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One process to be."""

    node_id: int
    zone: str  # its letter
    port: int
    metrics_port: int
    has_controller: bool

    @property
    def rack(self) -> str:
        return f"zone-{self.zone}"


@dataclass(frozen=True, slots=True)
class DemoTopic:
    name: str
    configs: Mapping[str, str]


class Layout:
    """`data` is the directory for everything; `store` another one, or `s3://bucket`, for the buckets.

    The last broker has the controller, so that breaking the first one, or its zone, leaves the cluster one.
    ConfigError for what cannot be.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int = 9092,
        brokers: int = 3,
        store: str | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise ConfigError(f"--brokers {brokers}: valid values are [1,...,{BROKERS_MAX}].")
        if not 1024 <= port <= PORT_MAX:
            raise ConfigError(f"--port {port}: valid values are [1024,...,{PORT_MAX}].")
        self.data = data.absolute()
        self.store = _absolute(store)
        self._overrides = dict(overrides or {})
        self.controller_port = port + CONTROLLER_PORT_OFFSET
        self.nodes = tuple(
            DemoNode(
                node_id=number,
                zone=ZONE_LETTERS[(number - 1) % len(ZONE_LETTERS)],
                port=port + number - 1,
                metrics_port=port + METRICS_PORT_OFFSET + number - 1,
                has_controller=number == brokers,
            )
            for number in range(1, brokers + 1)
        )
        self.replication_factor = min(3, brokers)
        self.fast_buckets = {zone: self._bucket(f"zone-{zone}") for zone in self.zones}
        self.standard_bucket = self._bucket("standard")

    @property
    def zones(self) -> list[str]:
        return sorted({node.zone for node in self.nodes})

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def node(self, node_id: int) -> DemoNode:
        return self.nodes[node_id - 1]

    def nodes_of_zone(self, zone: str) -> list[DemoNode]:
        return [node for node in self.nodes if node.zone == zone]

    def targets(self) -> list[Target]:
        """All that can be broken."""
        return [
            *(Target(TargetKind.BUCKET, zone) for zone in self.zones),
            *(Target(TargetKind.BROKER, str(node.node_id)) for node in self.nodes),
            *(Target(TargetKind.ZONE, zone) for zone in self.zones),
        ]

    def topics(self) -> list[DemoTopic]:
        """One through buckets and tiered, one as ever."""
        return [DemoTopic(WAL_TOPIC, _TIERED), DemoTopic(CLASSIC_TOPIC, _LOCAL)]

    # -- files ------------------------------------------------------------------------------------------------------

    def directory_of(self, node: DemoNode) -> Path:
        return self.data / f"broker-{node.node_id}"

    def properties_file_of(self, node: DemoNode) -> Path:
        return self.data / f"broker-{node.node_id}.properties"

    def log_file_of(self, node: DemoNode) -> Path:
        return self.data / f"broker-{node.node_id}.log"

    def prepare(self) -> bool:
        """Make directories and write the brokers' files; whether there is state of an earlier start.

        ConfigError when that is of another layout: its logs and its buckets would not fit.
        """
        mark = self.data / "demo.json"
        shape = {"brokers": len(self.nodes), "store": self.store}
        is_reused = mark.exists()
        if is_reused and (had := json.loads(mark.read_text(encoding="utf-8"))) != shape:
            raise ConfigError(
                f"{self.data} was made with --brokers {had['brokers']}"
                + (f" --store {had['store']}" if had["store"] else "")
                + ": use the same, or another --data."
            )
        self.data.mkdir(parents=True, exist_ok=True)
        for bucket in (*self.fast_buckets.values(), self.standard_bucket):
            if bucket.is_directory:
                Path(bucket.name.removeprefix("file://")).mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            file = self.properties_file_of(node)
            file.touch(mode=0o600)  # there may be keys to a bucket in it
            file.write_text(format_properties(self.settings_of(node), [_HEADING]), encoding="utf-8")
        mark.write_text(json.dumps(shape) + "\n", encoding="utf-8")
        return is_reused

    # -- settings ---------------------------------------------------------------------------------------------------

    def settings_of(self, node: DemoNode) -> dict[str, str]:
        """Of one broker; what the user gave for all of them wins."""
        return {
            **self._node_settings(node),
            **self._cluster_settings(),
            **self._wal_settings(node),
            **self._tiering_settings(),
            **self._overrides,
        }

    def _node_settings(self, node: DemoNode) -> dict[str, str]:
        listener, controller = f"PLAINTEXT://{HOST}:{node.port}", f"{HOST}:{self.controller_port}"
        return {
            "process.roles": "broker,controller" if node.has_controller else "broker",
            "node.id": str(node.node_id),
            "broker.rack": node.rack,
            "log.dirs": str(self.directory_of(node)),
            "listeners": f"{listener},CONTROLLER://{controller}" if node.has_controller else listener,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "metrics.http.listener": f"{HOST}:{node.metrics_port}",
        }

    def _cluster_settings(self) -> dict[str, str]:
        factor = str(self.replication_factor)
        return {
            "default.replication.factor": factor,
            "min.insync.replicas": "2" if self.replication_factor > 2 else "1",
            "offsets.topic.replication.factor": factor,
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "0",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "leader.imbalance.check.interval.seconds": "5",  # a healed broker leads again while somebody looks
            "log.retention.check.interval.ms": "5000",
            "log.initial.task.delay.ms": "5000",
        }

    def _wal_settings(self, node: DemoNode) -> dict[str, str]:
        bucket = self.fast_buckets[node.zone]
        settings = {
            "remote.wal.storage.system.enable": "true",
            "rwsm.config.bucket": bucket.url,
            "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "3",
            "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": str(self.replication_factor),
            "rwlmm.config.remote.wal.log.metadata.topic.retention.ms": "1800000",
            "remote.wal.cost.policy": "economy",
            "remote.wal.gc.interval.ms": "10000",
        }
        if bucket.is_directory:
            # A directory costs nothing; what is shown is what S3 Express One Zone would ask for.
            return {
                **settings,
                "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
                "wherry.price.list": "s3-express",
            }
        return {**settings, **_RARE_OBJECTS, "remote.wal.storage.manager.class.name": "S3WalStorageManager"}

    def _tiering_settings(self) -> dict[str, str]:
        bucket = self.standard_bucket
        manager = "LocalTieredStorage" if bucket.is_directory else "S3RemoteStorageManager"
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": manager,
            "rsm.config.bucket": bucket.url,
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
            "rlmm.config.remote.log.metadata.topic.replication.factor": str(self.replication_factor),
            "remote.log.manager.task.interval.ms": "5000",
        }

    def _bucket(self, name: str) -> Bucket:
        if self.store is not None and self.store.startswith("s3://"):
            return Bucket(self.store, self.store)
        base = self.data / "buckets" if self.store is None else Path(self.store)
        return Bucket.of_directory(base / name)


_HEADING: Final = " Written by `wherry demo` at each start."


def _absolute(store: str | None) -> str | None:
    if store is None or store.startswith("s3://"):
        return store and store.rstrip("/")
    return str(Path(store).absolute())
