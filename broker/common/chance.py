"""Every random choice of the broker, from one seeded source: a run can be told by its seed."""

import random
from collections.abc import MutableSequence
from uuid import UUID

from broker.common.identifiers import RESERVED_UUID_COUNT, uuid_to_text


class Chance:
    """Random numbers and ids; pass `seed` to repeat a run."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed if seed is not None else random.SystemRandom().getrandbits(64)
        self._random = random.Random(self.seed)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._random.random()

    def below(self, bound: int) -> int:
        """An integer in [0, bound)."""
        return self._random.randrange(bound)

    def shuffle(self, items: MutableSequence[int]) -> None:
        self._random.shuffle(items)

    def uuid(self) -> UUID:
        """A random uuid that Kafka accepts as a topic, directory or cluster id: not reserved, not starting with '-'."""
        while True:
            value = UUID(int=self._random.getrandbits(128), version=4)
            if value.int >= RESERVED_UUID_COUNT and not uuid_to_text(value).startswith("-"):
                return value
