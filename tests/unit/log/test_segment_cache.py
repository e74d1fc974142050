"""SegmentCache: the bounds hold, the oldest goes first."""

from broker.log.segment_cache import SegmentCache


class FakeSegment:
    def __init__(self, memory_bytes: int = 0) -> None:
        self.memory_bytes = memory_bytes
        self.unloads = 0

    def unload(self) -> None:
        self.unloads += 1


def test_the_least_recently_used_is_unloaded() -> None:
    cache = SegmentCache(segments_max=2)
    a, b, c = FakeSegment(), FakeSegment(), FakeSegment()
    cache.touch(a)
    cache.touch(b)
    cache.touch(a)
    cache.touch(c)
    assert (a.unloads, b.unloads, c.unloads) == (0, 1, 0)
    assert len(cache) == 2


def test_index_memory_is_bounded_but_the_newest_stays() -> None:
    cache = SegmentCache(index_bytes_max=100)
    a, b = FakeSegment(60), FakeSegment(30)
    cache.touch(a)
    cache.touch(b)
    assert cache.index_bytes == 90
    b.memory_bytes = 500
    cache.touch(b)
    assert (a.unloads, b.unloads) == (1, 0)
    assert cache.index_bytes == 500


def test_forget() -> None:
    cache = SegmentCache()
    a = FakeSegment(60)
    cache.touch(a)
    cache.forget(a)
    cache.forget(a)
    assert (len(cache), cache.index_bytes, a.unloads) == (0, 0, 0)
