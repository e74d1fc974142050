"""A topic of the brokers' own that tells of objects in buckets, as its publishers and readers see it.

`__remote_wal_log_metadata` of KIP-1176 and `__remote_log_metadata` of KIP-405: ordinary replicated topics.  The
implementation speaks the wire protocol and is the server's; what is above it knows partitions, values and offsets only.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeAlias


class MetadataTopicError(Exception):
    """Not done, or not known to be done: the same may be asked again."""


class MetadataRecord(NamedTuple):
    """One record of the topic; `timestamp_ms` is its producer's."""

    offset: int
    timestamp_ms: int
    value: bytes


OnMetadata: TypeAlias = Callable[[int, Sequence[MetadataRecord]], None]
"""Told (partition, records) in the event loop, in order of offset; a record may come again.

Of KIP-1176's topic, what was there before reading began (or was asked for again) comes between what is new.
"""

OnReplaced: TypeAlias = Callable[[], None]
"""Told in the event loop: somebody has deleted the topic that was read, and there is another one of its name.  Offsets
begin at 0, and what is assigned is read from its beginning on."""


class MetadataTopic(Protocol):
    """Appends at least once and in order per partition; reads the partitions assigned."""

    @property
    def partition_count(self) -> int | None:
        """None until the topic is known; never changes after that."""

    @property
    def lag(self) -> int:
        """Records not yet read over all partitions assigned, as far as known."""

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[int]":
        """Queue the values behind all queued before, now; the future is done when they are acknowledged,
        with the offset of the last of them.

        What may linger waits a moment for others: nobody is in need of it.
        MetadataTopicError: they are not, or it is not known; whoever asks again sends the same values.  Cancelling
        the future takes them out of the queue, unless they are on their way.
        """

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        """What to read from now on; those no longer named are forgotten.

        Of the unhurried ones it is enough to hear twice a second.
        Where new partitions begin is each topic's own.  That of KIP-405 is read whole; that of KIP-1176 from where an
        earlier run was some seconds before its end; without one, or when there is little to read, from one retention
        ago, by timestamp.
        """

    def read_again(self, partition: int) -> None:
        """Tell this assigned partition once more, from the earliest record of use: of KIP-405's topic it is begun anew,
        of KIP-1176's what is told already is read beside what comes."""

    async def end_offset(self, partition: int) -> int:
        """Where the partition ends for a consumer, asked now.  MetadataTopicError."""

    def position(self, partition: int) -> int | None:
        """The next offset to be read, below which nothing is missing; None when the partition is not assigned or has
        not begun, or what has to be told again has not."""

    def has_caught_up(self, partition: int) -> bool:
        """Whether all has been told that was there when reading of the partition began, or began again."""

    def running(self) -> AbstractAsyncContextManager[object]:
        """The tasks of both halves, within this."""
