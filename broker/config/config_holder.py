"""ConfigHolder: the current config of something whose config may change while it runs."""

from collections.abc import Callable
from typing import Generic, TypeVar

from broker.config.setting import Config

C = TypeVar("C", bound=Config)


class ConfigHolder(Generic[C]):
    """Whoever must see dynamic changes holds this and reads `current` each time; a change is one assignment."""

    def __init__(self, config: C) -> None:
        self.current = config
        self._listeners: list[Callable[[C, C], None]] = []

    def on_change(self, listener: Callable[[C, C], None]) -> None:
        """Call `listener(old, new)` after each change; it must not fail."""
        self._listeners.append(listener)

    def update(self, config: C) -> None:
        previous, self.current = self.current, config
        for listener in self._listeners:
            listener(previous, config)
