"""Tasks with a name and an owner; a failure nobody expected halts the broker instead of being lost."""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import structlog

log = structlog.get_logger(__name__)

OnFailure = Callable[[str, BaseException], None]


def halt_on_failure(name: str, error: BaseException) -> None:
    """The default answer: tell the loop, whose exception handler ends the process while the replicas carry on."""
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": f"task {name} failed", "exception": error})


class BackgroundTasks:
    """The tasks of one owner: `async with` it, and when the owner leaves they are cancelled and awaited."""

    def __init__(self, owner: str, on_failure: OnFailure = halt_on_failure) -> None:
        self._owner = owner
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` as `<owner>:<name>`."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}:{name}")
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task_failed", task=task.get_name(), exc_info=error)
            self._on_failure(task.get_name(), error)

    async def cancel_all(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cancel_all()
