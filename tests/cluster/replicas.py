"""The replicas of a topic, as their files say: identical batches, byte for byte."""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster_process import Cluster
from tests.support.patience import PATIENCE_S


def log_digest(partition_directory: Path) -> str:
    """Over the bytes of all segments in their order; where a segment ends is each replica's own affair."""
    digest = hashlib.sha256()
    size_bytes = 0
    for segment in sorted(partition_directory.glob("*.log")):
        content = segment.read_bytes()
        size_bytes += len(content)
        digest.update(content)
    return f"{size_bytes}:{digest.hexdigest()}"


def digests(cluster: Cluster, topic: str, partitions: int) -> dict[int, dict[int, str]]:
    """By partition and node id."""
    return {
        partition: {
            node_id: log_digest(cluster.nodes[node_id].data / f"{topic}-{partition}") for node_id in cluster.node_ids
        }
        for partition in range(partitions)
    }


def differing(found: Mapping[int, Mapping[int, str]]) -> list[str]:
    """A sentence for each partition whose replicas are not identical."""
    return [
        f"partition {partition}: " + ", ".join(f"node {node_id} {digest[:24]}" for node_id, digest in replicas.items())
        for partition, replicas in found.items()
        if len(set(replicas.values())) != 1
    ]


def wait_for_identical(cluster: Cluster, topic: str, partitions: int) -> tuple[dict[int, dict[int, str]], list[str]]:
    """The digests once the replicas are identical, or what differs in the end; nobody may be writing."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = digests(cluster, topic, partitions)
        problems = differing(found)
        if not problems or time.monotonic() > deadline:
            return found, problems
        time.sleep(0.5)
