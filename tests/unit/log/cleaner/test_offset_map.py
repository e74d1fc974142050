"""OffsetMap: the newest offset of each key, in bounded memory."""

import tracemalloc

from broker.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap, entries_in


def test_the_newest_offset_of_each_key() -> None:
    found = OffsetMap(10)
    for offset, key in enumerate([b"a", b"b", b"a", b""]):
        assert found.put(key, offset)
    assert [found.newest_offset(key) for key in (b"a", b"b", b"", b"c")] == [2, 1, 3, -1]
    assert (len(found), found.latest_offset, found.utilization) == (3, 3, 0.3)
    found.reach(9)
    found.reach(5)
    assert found.latest_offset == 9


def test_a_full_map_refuses_new_keys_alone() -> None:
    found = OffsetMap(2)
    assert found.put(b"a", 0)
    assert found.put(b"b", 1)
    assert not found.put(b"c", 2)
    assert found.latest_offset == 1
    assert found.put(b"a", 3)
    assert (found.newest_offset(b"a"), found.utilization) == (3, 1.0)


def test_long_keys_are_told_apart_too() -> None:
    found = OffsetMap(10)
    for offset, length in enumerate((14, 15, 16, 17, 1000)):
        assert found.put(b"k" * length, offset)
    assert [found.newest_offset(b"k" * length) for length in (14, 15, 16, 17, 1000, 999)] == [0, 1, 2, 3, 4, -1]


def test_the_buffer_has_room_for_at_least_one() -> None:
    assert entries_in(ENTRY_BYTES * 10, 0.5) == 5
    assert entries_in(0, 0.9) == entries_in(ENTRY_BYTES, 0.1) == 1
    assert entries_in(128 << 20, 0.9) > 600_000


def test_a_key_takes_no_more_memory_than_is_said() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = OffsetMap(50_000)
        worst = 0.0
        for number in range(50_000):
            found.put(b"a key of more than sixteen bytes %d" % number, 10**9 + number)
            if number > 40_000 and number % 1000 == 0:
                worst = max(worst, (tracemalloc.get_traced_memory()[0] - before) / number)
    finally:
        tracemalloc.stop()
    assert 64 < worst <= ENTRY_BYTES


def test_memory_is_given_back_in_steps() -> None:
    found = OffsetMap(1000)
    for number in range(1000):
        found.put(b"%d" % number, number)
    assert sum(1 for _ in found.give_back()) > 100
