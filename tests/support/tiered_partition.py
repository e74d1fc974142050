"""Logs of which remote storage has a part, as far as `broker.log` and `broker.replication` know of it."""

from pathlib import Path

from broker.log.log_segment import TimestampAndOffset
from broker.log.unified_log import UnifiedLog
from broker.replication.partition import Partition
from tests.support.builders import batch
from tests.support.replica_requests import RequestWorld
from tests.support.scripted_remote_log import ScriptedRemoteLog

TIERED_BROKER = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "LocalTieredStorage",
    "rsm.config.bucket": "file:///var/tiered",
}
TIERED_TOPIC = {"remote.storage.enable": "true"}


def tier(log: UnifiedLog, next_offset: int) -> None:
    """All below `next_offset` was copied, and has left this disk."""
    log.flush()  # what the device lacks stays on the disk
    log.update_highest_remote_offset(next_offset - 1)
    log.maybe_increment_local_log_start_offset(next_offset, "test")


class TieredWorld(RequestWorld):
    """One broker with topic "t" in leader epoch 0: a batch and a segment for each of the `timestamps`."""

    def __init__(self, directory: Path, *timestamps: int, properties: dict[str, str] | None = None) -> None:
        self.remote = ScriptedRemoteLog()
        super().__init__(directory, {**TIERED_BROKER, **(properties or {})}, remote_log=self.remote)
        self.create_tiered_topic("t", *timestamps)

    def create_tiered_topic(self, name: str, *timestamps: int) -> Partition:
        self.create_topic(name, configs=TIERED_TOPIC)
        partition = self.partition(name)
        for index, timestamp in enumerate(timestamps):
            if index:
                partition.log.roll()
            self.append(batch(f"{index}", timestamp=timestamp), topic=name)
        return partition

    def answer(self, found: TimestampAndOffset | None = None, *, question: int = -1) -> None:
        """Remote storage answers the newest question, unless another is named."""
        self.remote.questions[question].answer.set_result(found)
