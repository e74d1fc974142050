"""Completions that wait until the change that caused them is whole (Kafka's ActionQueue)."""

import asyncio
from collections.abc import Callable


class ActionQueue:
    """Runs each action once, after the caller's state change and at the latest in the next turn of the event loop.

    An append may satisfy a hundred parked requests; their answers are read and sent when all partitions of the turn
    are appended, never in the middle of one partition's change.
    """

    __slots__ = ("_actions", "_is_scheduled")

    def __init__(self) -> None:
        self._actions: list[Callable[[], object]] = []
        self._is_scheduled = False

    def add(self, action: Callable[[], object]) -> None:
        self._actions.append(action)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def run(self) -> None:
        """Run what has been added until now, and what that adds."""
        while self._actions:
            actions, self._actions = self._actions, []
            for action in actions:
                action()

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self.run()
