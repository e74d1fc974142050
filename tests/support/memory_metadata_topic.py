"""MetadataTopic in memory: what is appended is there at once, and readers are told when the test says so.

Everything is read from its beginning on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from broker.common.metadata_topic import MetadataRecord, MetadataTopicError, OnMetadata


class MemoryMetadataTopic:
    """`fail_appends` makes so many appends fail, `lose_answers` so many succeed without saying so; while it `is_mute`
    appends are not answered at all, and nothing is there."""

    def __init__(self, partition_count: int | None = 4, on_metadata: OnMetadata | None = None) -> None:
        self.partition_count = partition_count
        self.on_metadata = on_metadata
        self.on_replaced: Callable[[], None] | None = None
        self.logs: dict[int, list[MetadataRecord]] = {}
        self.now_ms = 1_000
        self.fail_appends = 0
        self.lose_answers = 0
        self.is_mute = False
        self.is_running = False
        self.appends: list[tuple[int, tuple[bytes, ...]]] = []
        self.read_again_of: list[int] = []
        self.unhurried: frozenset[int] = frozenset()
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}  # when reading began

    @property
    def lag(self) -> int:
        return sum(len(self.logs.get(each, ())) - position for each, position in self._positions.items())

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[int]":
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self.is_mute:
            return answer
        try:
            offset = self._append(partition, values)
        except MetadataTopicError as error:
            answer.set_exception(error)
        else:
            answer.set_result(offset)
        return answer

    def _append(self, partition: int, values: Sequence[bytes]) -> int:
        if self.partition_count is None:
            raise MetadataTopicError("the topic is not known yet")
        self.appends.append((partition, tuple(values)))
        if self.fail_appends > 0:
            self.fail_appends -= 1
            raise MetadataTopicError("refused")
        log = self.logs.setdefault(partition, [])
        for value in values:
            log.append(MetadataRecord(len(log), self.now_ms, value))
        if self.lose_answers > 0:
            self.lose_answers -= 1
            raise MetadataTopicError("no answer")
        return log[-1].offset

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        self.unhurried = frozenset(unhurried)
        self._ends = {each: self._ends.get(each, len(self.logs.get(each, ()))) for each in partitions}
        self._positions = {each: self._positions.get(each, 0) for each in partitions}

    def read_again(self, partition: int) -> None:
        self.read_again_of.append(partition)
        if partition in self._positions:
            self._begin(partition)

    def lose(self, partition: int, *, keep: int) -> None:
        """Only the first records are left, as after an unclean election; whoever reads it begins anew."""
        del self.logs[partition][keep:]
        if partition in self._positions:
            self._begin(partition)

    def replace(self) -> None:
        """Somebody has deleted it, and there is another one of its name, which is empty."""
        self.logs.clear()
        for partition in self._positions:
            self._begin(partition)
        assert self.on_replaced is not None
        self.on_replaced()

    def _begin(self, partition: int) -> None:
        self._positions[partition] = 0
        self._ends[partition] = len(self.logs.get(partition, ()))

    async def end_offset(self, partition: int) -> int:
        return len(self.logs.get(partition, ()))

    def position(self, partition: int) -> int | None:
        return self._positions.get(partition)

    def has_caught_up(self, partition: int) -> bool:
        return partition in self._positions and self._positions[partition] >= self._ends[partition]

    def deliver(self, *, at_most: int | None = None) -> None:
        """Tell what was appended since, partition by partition; of each the first ones only, if so wanted."""
        assert self.on_metadata is not None
        for partition, position in sorted(self._positions.items()):
            records = self.logs.get(partition, [])[position:][:at_most]
            if records:
                self._positions[partition] = position + len(records)
                self.on_metadata(partition, records)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MemoryMetadataTopic"]:
        self.is_running = True
        try:
            yield self
        finally:
            self.is_running = False
