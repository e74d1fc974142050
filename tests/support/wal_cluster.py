"""Broker processes, each in a zone of its own with a bucket of its own, for topics replicated through them."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster_process import ClusterProcess
from tests.support.directories import files_under
from tests.support.patience import PATIENCE_S, until
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY

WAL_TOPIC = {"remote.wal.enable": "true"}
REPLICATION_BYTES = "broker_replication_bytes_total"


class WalCluster(ClusterProcess):
    """Buckets are directories unless `buckets` names others by node id."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        buckets: Mapping[int, Mapping[str, str]] | None = None,
        **options: object,
    ) -> None:
        self.bucket_directories = {
            node_id: directory / "buckets" / f"zone-{node_id}" for node_id in range(1, brokers + 1)
        }
        by_node = buckets or {
            node_id: {
                "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
                "rwsm.config.bucket": f"file://{place}",
            }
            for node_id, place in self.bucket_directories.items()
        }
        for place in self.bucket_directories.values():
            place.mkdir(parents=True, exist_ok=True)
        common = {
            "remote.wal.storage.system.enable": "true",
            "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": str(min(3, brokers)),
            "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "5",
            **(settings or {}),
        }
        super().__init__(directory, brokers=brokers, settings=common, settings_by_node=by_node, **options)  # type: ignore[arg-type]


def s3_bucket(bucket: str, url: str) -> dict[str, str]:
    """The settings of a broker whose bucket is in the S3 server at `url`, or behind what stands before it."""
    return {
        "remote.wal.storage.manager.class.name": "S3WalStorageManager",
        "rwsm.config.bucket": f"s3://{bucket}",
        "rwsm.config.endpoint.url": url,
        "rwsm.config.region": REGION,
        "rwsm.config.access.key": ACCESS_KEY,
        "rwsm.config.secret.key": SECRET_KEY,
        "rwsm.config.path.style": "true",
    }


def leaders(cluster: WalCluster, topic: str) -> dict[int, int]:
    """By partition; -1 where there is none."""
    known = cluster.admin().list_topics(timeout=PATIENCE_S).topics[topic].partitions
    return {number: partition.leader for number, partition in sorted(known.items())}


def bucket_requests(cluster: WalCluster, operation: str) -> int:
    """Requests that were done, over all brokers since their starts."""
    name, labels = "broker_objectstore_requests_total", {"operation": operation, "outcome": "ok"}
    return sum(int(broker.metric(name, **labels)) for broker in cluster.brokers)


def warnings_logged(text: str) -> list[str]:
    """Lines of a broker's log with the level warning or above, and tracebacks."""
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            if "Traceback" in line:
                found.append(line)
            continue
        if isinstance(event, dict) and event.get("level") not in ("info", "debug"):
            found.append(line)
    return found


def segment_files(cluster: WalCluster, topic: str, partition: int, node_id: int) -> dict[str, bytes]:
    """The segments of a replica, by name; one that is deleted meanwhile is none."""
    directory = cluster.nodes[node_id].data / f"{topic}-{partition}"
    found = {}
    for path in files_under(directory, ".log"):
        with contextlib.suppress(FileNotFoundError):
            found[path.name] = path.read_bytes()
    return found


def log_bytes(cluster: WalCluster, topic: str, partition: int, node_id: int) -> int:
    return sum(map(len, segment_files(cluster, topic, partition, node_id).values()))


def wait_until_equal(cluster: WalCluster, topic: str, partitions: int) -> None:
    """Until every replica of every partition has the same bytes in the same segments."""
    for partition in range(partitions):
        until(
            lambda number=partition: _is_equal(cluster, topic, number),  # type: ignore[misc]
            f"the replicas of {topic}-{partition} are equal",
            lambda number=partition: {node: log_bytes(cluster, topic, number, node) for node in cluster.node_ids},  # type: ignore[misc]
        )


def _is_equal(cluster: WalCluster, topic: str, partition: int) -> bool:
    first, *others = (segment_files(cluster, topic, partition, node) for node in cluster.node_ids)
    return bool(first) and all(files == first for files in others)


def received_bytes(cluster: WalCluster, topic: str) -> dict[str, int]:
    """What followers received of a topic, by the path it took, over all brokers; paths without bytes are left out."""
    totals = {
        path: sum(int(broker.metric(REPLICATION_BYTES, topic=topic, path=path)) for broker in cluster.brokers)
        for path in ("fetch", "fallback", "wal")
    }
    return {path: total for path, total in totals.items() if total}
