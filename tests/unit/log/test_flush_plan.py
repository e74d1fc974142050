"""FlushPlan: what it syncs, and what it says when files are gone."""

import pytest

from broker.common.errors import StorageFailure
from tests.unit.log.log_world import LogWorld


def test_a_plan_syncs_records_before_indexes_and_names_last() -> None:
    world = LogWorld()
    world.append()
    synced: list[str] = []
    count = world.disk.count
    world.disk.count = lambda operation, path: (  # type: ignore[method-assign]
        synced.append(path.name) if operation == "sync" else None,
        count(operation, path),
    )[1]
    plan = world.log.plan_flush()
    assert plan is not None
    plan.run()
    assert synced == [
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint.tmp",
        "t-0",
        "data",
        "t-0",
    ]


def test_a_deleted_log_is_a_storage_failure() -> None:
    world = LogWorld()
    world.append()
    plan = world.log.plan_flush()
    assert plan is not None
    world.disk.remove_tree(world.directory)
    with pytest.raises(StorageFailure, match="deleted"):
        plan.run()


def test_files_that_vanished_alone_do_not_matter() -> None:
    world = LogWorld()
    world.append()
    plan = world.log.plan_flush()
    assert plan is not None
    world.disk.remove(world.path(0, ".index"))
    plan.run()
    world.log.complete_flush(plan)
    assert world.log.unflushed_messages == 0
