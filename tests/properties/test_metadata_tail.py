"""An observer of the metadata log applies what was committed, whatever leaders came and went in between."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.server.metadata_tail import MetadataTail


@dataclass
class LeaderLog:
    """Batches of a leader as (base offset, record count, epoch, who wrote it)."""

    batches: list[tuple[int, int, int, str]]

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] + self.batches[-1][1] if self.batches else 0

    def add(self, count: int, epoch: int, writer: str) -> None:
        self.batches.append((self.end_offset, count, epoch, writer))

    def read(self, offset: int, batches_max: int) -> bytes:
        return b"".join(encoded(*batch) for batch in [each for each in self.batches if each[0] >= offset][:batches_max])

    def diverging(self, offset: int, epoch: int) -> tuple[int, int] | None:
        """What KafkaRaftClient answers to a follower whose log ends at `offset` in `epoch`."""
        known = [(base + count, own) for base, count, own, _ in self.batches if own <= epoch]
        end, last_epoch = max(known) if known else (0, 0)
        return None if (offset == 0 or last_epoch == epoch) and offset <= end else (last_epoch, end)


def encoded(base_offset: int, count: int, epoch: int, writer: str) -> bytes:
    builder = MemoryRecordsBuilder(base_offset, partition_leader_epoch=epoch)
    for _ in range(count):
        builder.append(0, None, writer.encode())
    return bytes(builder.build())


def follow(tail: MetadataTail, leader: LeaderLog, high_watermark: int, batches_max: int) -> list[tuple[int, int, int]]:
    """Fetch a number of batches once the logs meet; returns what was applied."""
    for _ in range(len(leader.batches) + 50):
        diverging = leader.diverging(tail.end_offset, tail.last_epoch)
        if diverging is None:
            break
        tail.truncate(*diverging)
    else:
        raise AssertionError("the logs never meet")
    tail.append(leader.read(tail.end_offset, batches_max))
    tail.advance_high_watermark(high_watermark)
    applied = []
    while (batch := tail.take_committed()) is not None:
        applied.append((batch.base_offset, batch.record_count, batch.partition_leader_epoch))
    return applied


terms = st.lists(
    st.tuples(
        st.lists(st.integers(1, 3), max_size=4),  # sizes of the batches written in the term
        st.integers(0, 3),  # whose log the new leader has: that of the leader before, or of an earlier one
        st.integers(0, 5),  # how much of its uncommitted end
        st.integers(0, 3),  # how many batches get committed in the term
        st.integers(-1, 4),  # how many batches the observer gets in the term; -1 when it does not hear of it
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=100)
@given(terms)
def test_what_is_applied_is_the_committed_log(history: list[tuple[list[int], int, int, int, int]]) -> None:
    tail = MetadataTail()
    logs: list[list[tuple[int, int, int, str]]] = [[]]
    committed: list[tuple[int, int, int, str]] = []
    applied: list[tuple[int, int, int]] = []
    for epoch, (sizes, back, kept, commits, heard) in enumerate(history, start=1):
        electable = [log for log in logs if log[: len(committed)] == committed]
        base = electable[-1 - min(back, len(electable) - 1)]
        leader = LeaderLog(base[: len(committed) + kept])
        for size in sizes:
            leader.add(size, epoch, f"leader-{epoch}")
        logs.append(leader.batches)
        if sizes:  # a leader commits earlier terms together with something of its own
            committed = leader.batches[: max(len(committed), len(leader.batches) - commits)]
        if heard >= 0:
            high_watermark = LeaderLog(committed).end_offset if sizes else -1
            applied += follow(tail, leader, high_watermark, heard)
        assert applied == [batch[:3] for batch in committed][: len(applied)]
    leader = LeaderLog(list(committed))
    leader.add(1, len(history) + 1, "last")
    applied += follow(tail, leader, leader.end_offset, 999)
    assert applied == [batch[:3] for batch in leader.batches]
    assert (tail.end_offset, tail.high_watermark) == (leader.end_offset, leader.end_offset)
