import dataclasses
from pathlib import Path

import pytest

from .task_world import TaskWorld, told


def test_nobody_changes_it(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            world.context.local_broker_id = 2  # type: ignore[misc]

    told(tmp_path, story)
