import asyncio
from typing import Any

import pytest
import structlog

from broker.common.tasks import BackgroundTasks


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise ValueError("unexpected")


async def test_tasks_bear_the_name_of_their_owner() -> None:
    async with BackgroundTasks("log-manager") as tasks:
        assert tasks.start("retention", forever()).get_name() == "log-manager:retention"
        assert len(tasks) == 1


async def test_when_the_owner_leaves_its_tasks_are_gone() -> None:
    async with BackgroundTasks("owner") as tasks:
        task = tasks.start("work", forever())
    assert task.cancelled()
    assert len(tasks) == 0


async def test_a_finished_task_is_forgotten() -> None:
    async with BackgroundTasks("owner") as tasks:
        await tasks.start("work", asyncio.sleep(0))
        await asyncio.sleep(0)
        assert len(tasks) == 0


async def test_a_failure_reaches_the_owner_and_the_log() -> None:
    failures = []
    with structlog.testing.capture_logs() as events:
        async with BackgroundTasks("owner", lambda name, error: failures.append((name, str(error)))) as tasks:
            task = tasks.start("work", failing())
            with pytest.raises(ValueError, match="unexpected"):
                await task
            await asyncio.sleep(0)
    assert failures == [("owner:work", "unexpected")]
    assert [(event["event"], event["task"]) for event in events] == [("task_failed", "owner:work")]


async def test_by_default_the_loops_handler_is_told() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    with structlog.testing.capture_logs():
        async with BackgroundTasks("owner") as tasks:
            with pytest.raises(ValueError, match="unexpected"):
                await tasks.start("work", failing())
            await asyncio.sleep(0)
    assert [context["message"] for context in told] == ["task owner:work failed"]
