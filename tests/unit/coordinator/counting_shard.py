"""CountingShard: the smallest CoordinatorShard, for tests of what runs shards."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.common.identifiers import NO_PRODUCER_ID
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.coordinator_shard import SnapshotChunk


class Entry(NamedTuple):
    key: str
    value: str | None


class CountingShard:
    """Keeps the last value per key; a key beginning with `?` is of an unknown kind, one with `!` cannot be applied."""

    def __init__(self, context: CoordinatorContext["CountingShard"]) -> None:
        self.context = context
        self.state: dict[str, str] = {}
        self.pending: dict[int, list[Entry]] = {}
        self.committed_offset = 0
        self.events: list[str] = []
        self.keep_offset: int | None = None
        self.chunk_size = 2

    def encode(self, record: Entry) -> tuple[bytes, bytes | None]:
        return record.key.encode(), None if record.value is None else record.value.encode()

    def decode(self, key: bytes, value: bytes | None) -> Entry | None:
        if key.startswith(b"?"):
            return None
        return Entry(key.decode(), None if value is None else value.decode())

    def replay(self, offset: int, producer_id: int, record: Entry) -> None:
        if record.key.startswith("!"):
            raise RuntimeError(f"cannot apply {record.key}")
        if producer_id != NO_PRODUCER_ID:
            self.pending.setdefault(producer_id, []).append(record)
        elif record.value is None:
            self.state.pop(record.key, None)
        else:
            self.state[record.key] = record.value

    def replay_end_transaction_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        entries = self.pending.pop(producer_id, [])
        if is_commit:
            self.state.update({entry.key: entry.value for entry in entries if entry.value is not None})

    def on_committed(self, offset: int) -> None:
        self.committed_offset = offset

    def on_loaded(self) -> None:
        self.events.append("loaded")

    def on_unloaded(self) -> None:
        self.events.append("unloaded")

    def snapshot(self, keep: Callable[[int], None]) -> Iterator[SnapshotChunk[Entry]]:
        if self.keep_offset is not None:
            keep(self.keep_offset)
        keys = list(self.state)
        for index in range(0, len(keys), self.chunk_size):
            chunk = [Entry(key, self.state[key]) for key in keys[index : index + self.chunk_size] if key in self.state]
            yield SnapshotChunk(chunk, True)
