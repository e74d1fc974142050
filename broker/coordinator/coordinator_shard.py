"""CoordinatorShard: the state machine of one partition of an internal topic, and the log it writes to."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from broker.common.errors import KafkaError
from broker.coordinator.coordinator_timer import CoordinatorTimer

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class SnapshotChunk(NamedTuple, Generic[R]):
    """Some records of a snapshot; `is_replayed` as for `ShardLog.append`."""

    records: Sequence[R]
    is_replayed: bool


class ShardLog(Protocol[R_contra]):
    """What a shard sees of its partition."""

    timer: CoordinatorTimer

    @property
    def last_written_offset(self) -> int:
        """The log end offset after the shard's last append."""

    @property
    def loaded_offset(self) -> int:
        """The log end offset when the shard was loaded: what an earlier leader has acknowledged lies below."""

    def append(self, records: Sequence[R_contra], *, is_replayed: bool = True) -> int:
        """Append the records as one batch, replay them into the shard, and return the offset after the last.

        Raising a KafkaError, already in the words for a group's client, means that nothing was appended and nothing
        has changed.  `is_replayed` False: the caller changes the state itself.
        """

    def append_split(self, records: Sequence[R_contra], *, is_replayed: bool = True) -> int:
        """As `append`, in as many batches as the log's largest message asks for; not atomic."""

    def when_committed(self, end_offset: int, on_committed: Callable[[KafkaError | None], None]) -> None:
        """Call back once the high watermark has passed everything below `end_offset`, which may be now.

        With an error: REQUEST_TIMED_OUT after offsets.commit.timeout.ms (what was written stays), or NOT_COORDINATOR.
        """

    async def wait_committed(self, end_offset: int) -> None:
        """`when_committed` as a coroutine."""


class CoordinatorShard(Protocol[R]):
    """The state that the records of one partition add up to.

    Only its `CoordinatorContext` calls these.  The state before `on_loaded` is that of the log, no more.
    """

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value as they are stored."""

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The inverse; None for a kind of record that this version does not know."""

    def replay(self, offset: int, producer_id: int, record: R) -> None:
        """Apply the record at `offset`.  A producer id other than -1: it belongs to that producer's transaction."""

    def replay_end_transaction_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Apply or drop what the producer's transaction has written."""

    def on_committed(self, offset: int) -> None:
        """Everything below `offset` is committed."""

    def on_loaded(self) -> None:
        """The log has been replayed to its end; timers may be set."""

    def on_unloaded(self) -> None:
        """The shard is gone: answer whoever waits.  Timers are cancelled already, and nothing can be appended."""

    def snapshot(self, keep: Callable[[int], None]) -> Iterator[SnapshotChunk[R]]:
        """Records that add up to the current state.

        Each chunk is the state at the moment it is taken, and changes may happen between two.  `keep(offset)`: the
        log from `offset` on is still needed in spite of the snapshot.
        """
