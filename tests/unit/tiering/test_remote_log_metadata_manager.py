"""The port, as its simplest implementation has it."""

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager

from .memory_remote_log_metadata_manager import MemoryRemoteLogMetadataManager
from .segment_world import FINISHED, PARTITION, segment, update


def test_it_is_only_an_interface() -> None:
    with pytest.raises(TypeError, match="abstract"):
        RemoteLogMetadataManager()  # type: ignore[abstract]


async def test_a_life_of_a_partition() -> None:
    manager: RemoteLogMetadataManager = MemoryRemoteLogMetadataManager()
    async with manager.running():
        assert not manager.is_ready(PARTITION)
        with pytest.raises(ReplicaNotAvailableError):
            await manager.highest_offset_for_epoch(PARTITION, 0)
        manager.on_partition_leadership_changes([PARTITION], [])
        manager.on_partition_leadership_changes([], [PARTITION])
        assert manager.is_ready(PARTITION)
        await manager.add_remote_log_segment_metadata(segment(1, 0, 9))
        await manager.update_remote_log_segment_metadata(update(1, FINISHED))
        assert await manager.highest_offset_for_epoch(PARTITION, 0) == 9
        assert await manager.remote_log_size(PARTITION, 0) == 100
        found = await manager.remote_log_segment_metadata(PARTITION, 0, 5)
        assert await manager.list_remote_log_segments(PARTITION) == [found]
        assert await manager.list_remote_log_segments(PARTITION, 1) == []
        manager.on_stop_partitions([PARTITION])
        assert not manager.is_ready(PARTITION)
