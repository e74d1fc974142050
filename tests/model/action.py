"""One step of the world."""

from typing import NamedTuple

NO_REPLICA = -1


class Action(NamedTuple):
    """What happens, to which replica (or zone), and one more number: an object, an entry, an offset, ..."""

    kind: str
    replica: int = NO_REPLICA
    argument: int | tuple[int, ...] = 0

    @property
    def number(self) -> int:
        """The argument of the kinds whose argument is a number."""
        assert isinstance(self.argument, int)
        return self.argument
