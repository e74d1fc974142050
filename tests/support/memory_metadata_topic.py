"""MetadataTopic in memory: what is appended is there at once, and readers are told when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from broker.wal.announce.metadata_topic import MetadataRecord, MetadataTopicError, OnMetadata


class MemoryMetadataTopic:
    """`fail_appends` makes so many appends fail, `lose_answers` so many succeed without saying so."""

    def __init__(self, partition_count: int | None = 4, on_metadata: OnMetadata | None = None) -> None:
        self.partition_count = partition_count
        self.on_metadata = on_metadata
        self.logs: dict[int, list[MetadataRecord]] = {}
        self.now_ms = 1_000
        self.fail_appends = 0
        self.lose_answers = 0
        self.appends: list[tuple[int, tuple[bytes, ...]]] = []
        self.read_again_of: list[int] = []
        self.unhurried: frozenset[int] = frozenset()
        self._positions: dict[int, int] = {}

    @property
    def lag(self) -> int:
        return sum(len(self.logs.get(each, ())) - position for each, position in self._positions.items())

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[None]":
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._append(partition, values)
        except MetadataTopicError as error:
            answer.set_exception(error)
        else:
            answer.set_result(None)
        return answer

    def _append(self, partition: int, values: Sequence[bytes]) -> None:
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

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        self.unhurried = frozenset(unhurried)
        self._positions = {each: self._positions.get(each, 0) for each in partitions}

    def read_again(self, partition: int) -> None:
        self.read_again_of.append(partition)
        if partition in self._positions:
            self._positions[partition] = 0

    async def end_offset(self, partition: int) -> int:
        return len(self.logs.get(partition, ()))

    def position(self, partition: int) -> int | None:
        return self._positions.get(partition)

    def deliver(self) -> None:
        """Tell what was appended since, partition by partition."""
        assert self.on_metadata is not None
        for partition, position in sorted(self._positions.items()):
            records = self.logs.get(partition, [])[position:]
            if records:
                self._positions[partition] = position + len(records)
                self.on_metadata(partition, records)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MemoryMetadataTopic"]:
        yield self
