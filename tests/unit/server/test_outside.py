import dataclasses

import pytest

from broker.common.chance import Chance
from broker.common.clock import SystemClock
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.network.byte_stream import AsyncioNetwork
from broker.server.outside import Outside


def test_a_node_keeps_the_world_it_was_given() -> None:
    outside = Outside(SystemClock(), Chance(1), OsFileSystem(), InlineDiskExecutor(), AsyncioNetwork())
    with pytest.raises(dataclasses.FrozenInstanceError):
        outside.clock = SystemClock()  # type: ignore[misc]
