"""Observations: values that are seen one after the other, summed up for whoever measures."""

from collections.abc import Callable


class Observations:
    """How many values were seen, their sum, the largest, and where else they go (`sink`: a histogram once there is
    one).  Values are not negative."""

    __slots__ = ("count", "maximum", "sink", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0
        self.sink: Callable[[float], None] | None = None

    def observe(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)
        if self.sink is not None:
            self.sink(value)
