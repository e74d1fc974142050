"""RemoteTaskContext: what the remote log tasks of a broker are given of the outside world."""

from dataclasses import dataclass

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_quota import RemoteQuota
from broker.tiering.remote_storage_manager import RemoteStorageManager


@dataclass(frozen=True, slots=True)
class RemoteTaskContext:
    """Shared by all tasks of one broker."""

    local_broker_id: int
    config: ConfigHolder[BrokerConfig]
    metadata: RemoteLogMetadataManager
    storage: RemoteStorageManager
    copy_quota: RemoteQuota
    stats: RemoteLogStats
    clock: Clock
    chance: Chance
