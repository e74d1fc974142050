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

    def read(self, offset: int) -> bytes:
        return b"".join(encoded(*batch) for batch in self.batches if batch[0] >= offset)

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


def follow(tail: MetadataTail, leader: LeaderLog, high_watermark: int) -> list[tuple[int, int, int]]:
    """Fetch until the leader has nothing new; returns what was applied."""
    for _ in range(len(leader.batches) + 50):
        diverging = leader.diverging(tail.end_offset, tail.last_epoch)
        if diverging is None:
            break
        tail.truncate(*diverging)
    else:
        raise AssertionError("the logs never meet")
    tail.append(leader.read(tail.end_offset))
    tail.advance_high_watermark(high_watermark)
    applied = []
    while (batch := tail.take_committed()) is not None:
        applied.append((batch.base_offset, batch.record_count, batch.partition_leader_epoch))
    return applied


terms = st.lists(
    st.tuples(
        st.lists(st.integers(1, 3), max_size=4),  # sizes of the batches written in the term
        st.integers(0, 5),  # how many of the uncommitted batches before it the new leader has
        st.integers(0, 5),  # how many of the batches it ends with get committed
        st.booleans(),  # whether the observer hears of this term at all
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(terms)
def test_what_is_applied_is_the_committed_log(history: list[tuple[list[int], int, int, bool]]) -> None:
    tail = MetadataTail()
    committed: list[tuple[int, int, int, str]] = []
    uncommitted: list[tuple[int, int, int, str]] = []
    applied: list[tuple[int, int, int]] = []
    for epoch, (sizes, kept, commits, heard) in enumerate(history, start=1):
        leader = LeaderLog(committed + uncommitted[:kept])
        for size in sizes:
            leader.add(size, epoch, f"leader-{epoch}")
        count = min(len(committed) + commits, len(leader.batches))
        committed, uncommitted = leader.batches[:count], leader.batches[count:]
        if heard:
            high_watermark = LeaderLog(committed).end_offset
            applied += follow(tail, leader, high_watermark)
            assert applied == [batch[:3] for batch in committed]
            assert tail.end_offset == leader.end_offset
            assert tail.high_watermark == high_watermark
