"""RuntimeWorld: a CoordinatorRuntime of CountingShards over logs in memory."""

from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.coordinator_runtime import CoordinatorRuntime
from broker.coordinator.snapshot_writer import LOG_BYTES_MAX
from tests.support.group_world import NODE
from tests.support.memory_partition_writer import MemoryLog, MemoryPartitionWriter
from tests.support.sim_loop import SimClock, SimLoop
from tests.unit.coordinator.counting_shard import CountingShard


class RuntimeWorld:
    def __init__(
        self,
        loop: SimLoop,
        topic: dict[str, str] | None = None,
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
        **settings: str,
    ) -> None:
        properties = {**NODE, **{name.replace("_", "."): value for name, value in settings.items()}}
        self.writer = MemoryPartitionWriter(TopicConfig(topic or {}))
        self.loads: list[float] = []
        self.runtime: CoordinatorRuntime[CountingShard] = CoordinatorRuntime(
            "topic",
            self.writer,
            SimClock(loop),
            ConfigHolder(BrokerConfig(properties)),
            CountingShard,
            self,
            log_bytes_max=log_bytes_max,
        )

    def partition_loaded(self, seconds: float) -> None:
        self.loads.append(seconds)

    @property
    def log(self) -> MemoryLog:
        return self.writer.log(0, "topic")

    @property
    def context(self) -> CoordinatorContext[CountingShard]:
        """Also while it is loading."""
        return self.runtime._contexts[0]

    @property
    def shard(self) -> CountingShard:
        return self.runtime.shard(0)
