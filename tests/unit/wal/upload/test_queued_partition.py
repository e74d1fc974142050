"""What of a partition waits, and since when."""

from broker.wal.upload.partition_uploads import LeaderTerm, PartitionUploads
from broker.wal.upload.queued_partition import AGE_GRANULARITY_MS, AGES_MAX, QueuedPartition
from tests.unit.wal.wal_world import FOO, batch, make_slice


class Waiting:
    """A partition that is appended to, one offset at a time."""

    def __init__(self) -> None:
        self.uploads = PartitionUploads(FOO, LeaderTerm(1, 0), 0)
        self.it = QueuedPartition(self.uploads, 0)

    def append(self, now_ms: int) -> None:
        self.it.appended(self.it.log_end_offset + 1, 100, now_ms)

    def take(self, count: int) -> None:
        reservation = self.uploads.reserve(1, self.it.first_dirty_ms)
        start = reservation.start_offset
        assert self.uploads.fill(reservation, make_slice(batch(start, count, epoch=1), start=start, leader_epoch=1))
        self.it.taken()


def test_the_oldest_of_what_is_left_counts() -> None:
    waiting = Waiting()
    assert not waiting.it.is_dirty
    for index in range(6):
        waiting.append(1000 + AGE_GRANULARITY_MS * index)
    assert waiting.it.is_dirty
    assert waiting.it.pending_bytes == 600
    waiting.take(2)
    assert waiting.it.first_dirty_ms == 1000 + 2 * AGE_GRANULARITY_MS
    waiting.take(3)
    assert waiting.it.first_dirty_ms == 1000 + 5 * AGE_GRANULARITY_MS
    waiting.take(1)
    assert not waiting.it.is_dirty
    assert list(waiting.it.ages) == []


def test_appends_close_to_each_other_count_as_one() -> None:
    waiting = Waiting()
    for now_ms in (1000, 1009, 1010, 1019, 1020):
        waiting.append(now_ms)
    assert list(waiting.it.ages) == [(0, 1000), (2, 1010), (4, 1020)]
    waiting.take(1)
    assert waiting.it.first_dirty_ms == 1000


def test_ages_are_bounded() -> None:
    waiting = Waiting()
    for index in range(AGES_MAX + 50):
        waiting.append(1000 + AGE_GRANULARITY_MS * index)
    assert len(waiting.it.ages) == AGES_MAX
    assert waiting.it.ages[-1] == (AGES_MAX - 1, 1000 + AGE_GRANULARITY_MS * (AGES_MAX - 1))
