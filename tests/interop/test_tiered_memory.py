"""How much memory a broker takes while it copies a large segment to a bucket, and while it is read from there.

256 MiB in continuous integration; WHERRY_SEGMENT_MIB=1024 is the long form.  The bound is the same.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, until
from tests.support.s3_server import SeaweedServer
from tests.support.tier import (
    COPIED_BYTES,
    TIERED_TOPIC,
    VALUE_BYTES,
    BulkReader,
    BulkWriter,
    alter_topic,
    directory_tier,
    s3_tier,
)

pytestmark = pytest.mark.interop

TOPIC: Final = "large"
MIB: Final = 1 << 20
SEGMENT_BYTES: Final = int(os.environ.get("WHERRY_SEGMENT_MIB", "256")) * MIB
RISE_MAX: Final = 64 * MIB
CHUNKS_BYTES: Final = 16 * MIB  # what may be fetched beyond what is read: rounded to chunks, and one read ahead
LONG_S: Final = 300  # a quarter of a gigabyte is copied
READ_BYTES: Final = "broker_objectstore_bytes_total"
SETTINGS: Final = {
    "log.segment.bytes": str(1024 * MIB),
    "offsets.topic.replication.factor": "1",
    "remote.fetch.max.wait.ms": "20000",  # as long as it takes: what is given up is fetched twice
}


def status_bytes(pid: int, name: str) -> int:
    """VmRSS or VmHWM."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None, name
    return int(match[1]) * 1024


@contextmanager
def rises_little(broker: BrokerProcess, what: str) -> Iterator[None]:
    """The resident memory's peak within this is less than 64 MiB above what it was before."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak begins anew
    before = status_bytes(broker.pid, "VmRSS")
    yield
    rise = status_bytes(broker.pid, "VmHWM") - before
    print(f"{what}: from {before / MIB:.1f} MiB up by {rise / MIB:.1f} MiB")
    assert rise < RISE_MAX, f"{what}: from {before / MIB:.1f} MiB up by {rise / MIB:.1f} MiB"


@contextmanager
def running(kind: str, directory: Path) -> Iterator[BrokerProcess]:
    with ExitStack() as stack:
        if kind == "s3":
            server = stack.enter_context(SeaweedServer(directory / "s3", ["tier"]))
            settings = s3_tier("tier", server.url, brokers=1)
        else:
            settings = directory_tier(directory / "tier", brokers=1)
        yield stack.enter_context(BrokerProcess(directory / "broker", {**SETTINGS, **settings}))


def start_again(broker: BrokerProcess) -> None:
    broker.stop()
    broker.launch()
    broker.wait_until_ready()


def logs(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.data / f"{TOPIC}-0").glob("*.log"))


@pytest.mark.parametrize("kind", ["directory", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_large_segment_is_never_in_memory(tmp_path: Path, kind: str) -> None:
    with running(kind, tmp_path) as broker:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        config = {
            **TIERED_TOPIC,
            "segment.bytes": str(SEGMENT_BYTES),
            "remote.log.copy.disable": "true",
        }
        admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(PATIENCE_S)
        writer = BulkWriter(broker.bootstrap, TOPIC, 1)
        writer.write(SEGMENT_BYTES + 4 * MIB)
        writer.close()
        segment_bytes = logs(broker)[0].stat().st_size
        assert segment_bytes > 0.98 * SEGMENT_BYTES

        start_again(broker)  # nothing is left of what the producing took
        with rises_little(broker, f"copy to {kind}"):
            alter_topic(broker.bootstrap, TOPIC, {"remote.log.copy.disable": "false", "local.retention.bytes": "1"})
            until(lambda: broker.metric(COPIED_BYTES, topic=TOPIC) >= segment_bytes, "it is copied", patience_s=LONG_S)
        until(lambda: logs(broker)[0].name != f"{0:020}.log", "it has left the disk")
        start_again(broker)
        end = int(logs(broker)[0].stem)
        middle = end // 2
        reader = BulkReader(broker.bootstrap, TOPIC, {0: middle})
        with rises_little(broker, f"read from {kind}"):
            reader.read({0: end})
        reader.close()
        fetched = broker.metric(READ_BYTES, operation="get_range")
        remote_bytes = (end - middle) * VALUE_BYTES  # the reader may have got some more, from the disk
        print(f"fetched {fetched / MIB:.1f} MiB for {remote_bytes / MIB:.1f} MiB")
        assert remote_bytes <= fetched < remote_bytes + CHUNKS_BYTES
