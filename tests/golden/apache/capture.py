"""Make the trees of this directory anew: data directories as Apache Kafka leaves them, and what it then says of them.

    make java-tools KAFKA_VERSION=4.4.0
    .venv/bin/python -m tests.golden.apache.capture

`clean` is the directory after a controlled shutdown, `killed` the same cluster later, after kill -9: there the indexes
are as long as they may get, with zeros behind their entries.  `*.json` is what Apache Kafka answers once it has started
on the tree again.
"""

import json
import tarfile
import tempfile
import time
from pathlib import Path

from tests.support import java_tools
from tests.support.kafka_peer import KafkaPeer

from .cluster import GROUPS, Cluster
from .facts import describe

HERE = Path(__file__).parent
FEATURES = (
    "metadata.version=29",
    "group.version=0",
    "transaction.version=0",
    "eligible.leader.replicas.version=0",
    "share.version=0",
    "streams.version=0",
)
SETTINGS = {
    "log.index.size.max.bytes": "4096",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "2000000",
    "log.cleaner.io.buffer.size": "100000",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.max.timeout.ms": "900000",
}


def main() -> None:
    reason = java_tools.why_not_available()
    if reason is not None:
        raise SystemExit(reason)
    with (
        tempfile.TemporaryDirectory() as directory,
        KafkaPeer(Path(directory), SETTINGS, FEATURES, static_voters=True) as peer,
    ):
        cluster = Cluster(peer.bootstrap, peer.data, has_transactions=True)
        cluster.create_topics()
        cluster.fill(1)
        peer.stop()
        peer.start()  # a second leader epoch
        cluster.fill(2)
        cluster.trim(71)
        cluster.wait_for_the_cleaner()
        cluster.begin_transaction("left-open")
        peer.stop()
        keep(peer, "clean")
        cluster.abort_open_transactions()
        cluster.fill(3)
        cluster.begin_transaction("left-open-too")
        time.sleep(6)  # checkpoints of the high watermark are written every five seconds
        cluster.fill(4)
        peer.kill()
        keep(peer, "killed")


def keep(peer: KafkaPeer, name: str) -> None:
    """Pack the directory of a stopped peer, start it again, and write down what it says."""
    with tarfile.open(HERE / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(peer.data.rglob("*")):
            if path.is_file() and path.name != ".lock":
                archive.add(path, str(path.relative_to(peer.data)))
    peer.start()
    facts = {"apache_kafka": java_tools.VERSION, **describe(peer.port, GROUPS)}
    (HERE / f"{name}.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
