"""Outside: the world of a node, which tests replace."""

from dataclasses import dataclass

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.disk import DiskExecutor
from broker.common.file_system import FileSystem
from broker.network.byte_stream import Network


@dataclass(frozen=True, slots=True)
class Outside:
    """The ports of one node; whoever needs one of them alone is given that one."""

    clock: Clock
    chance: Chance
    file_system: FileSystem
    disk: DiskExecutor
    network: Network
