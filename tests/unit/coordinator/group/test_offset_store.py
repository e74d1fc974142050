from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.offset_store import OffsetKey, OffsetStore

KEY = ("g", "t", 0)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0)


def test_45_uncommitted_changes_are_seen_by_those_who_ask_for_them() -> None:
    store = OffsetStore()
    store.on_committed(1)
    assert store.put(0, KEY, at(1)) is None
    assert store.put(1, KEY, at(2)) == at(1)
    assert store.put(2, KEY, None) == at(2)
    assert (store.latest(KEY), store.committed(KEY)) == (None, at(1))
    assert list(store.of_group("g")) == [] and list(store.committed_of_group("g")) == [("t", 0, at(1))]
    store.on_committed(2)
    assert store.committed(KEY) == at(2)
    store.on_committed(3)
    assert store.committed(KEY) is None
    assert (store._before, list(store._uncommitted)) == ({}, [])


def test_a_new_offset_is_not_there_before_it_is_committed() -> None:
    store = OffsetStore()
    store.put(0, KEY, at(1))
    assert list(store.committed_of_group("g")) == []
    store.on_committed(1)
    assert list(store.committed_of_group("g")) == [("t", 0, at(1))]


def test_counts_and_views() -> None:
    store = OffsetStore()
    for partition in (1, 0):
        store.put(partition, ("g", "t", partition), at(partition))
    store.put(2, ("g", "u", 0), at(7))
    store.put(3, ("h", "t", 5), at(8))
    store.put(4, ("h", "t", 5), at(9))
    assert store.count == 4
    store.on_committed(4)
    assert list(store.all_committed()) == [
        (("g", "t", 1), at(1)),
        (("g", "t", 0), at(0)),
        (("g", "u", 0), at(7)),
        (("h", "t", 5), at(8)),
    ]
    assert list(store.of_group("g")) == [("t", 1, at(1)), ("t", 0, at(0)), ("u", 0, at(7))]
    assert list(store.of_topic("t")) == [("g", 1), ("g", 0), ("h", 5)]
    assert store.put(5, ("h", "t", 5), None) == at(9)
    assert store.put(6, ("h", "t", 5), None) is None
    assert store.count == 3 and list(store.of_group("h")) == []


KEYS = [("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0)]
CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 9))), max_size=30)


@given(CHANGES, st.integers(0, 30))
def test_the_committed_view_is_the_state_at_the_high_watermark(
    changes: list[tuple[OffsetKey, int | None]], high_watermark: int
) -> None:
    store, committed, latest = OffsetStore(), dict[OffsetKey, int](), dict[OffsetKey, int]()
    for written_at, (key, value) in enumerate(changes):
        store.put(written_at, key, None if value is None else at(value))
        for view in (latest, committed) if written_at < high_watermark else (latest,):
            view.pop(key, None)
            if value is not None:
                view[key] = value
    store.on_committed(high_watermark)
    for key in KEYS:
        expected, seen = committed.get(key), store.committed(key)
        assert (None if seen is None else seen.offset) == expected
        seen = store.latest(key)
        assert (None if seen is None else seen.offset) == latest.get(key)
    assert store.count == len(latest)
    found = {("g", topic, partition): offset.offset for topic, partition, offset in store.committed_of_group("g")}
    assert found == {key: value for key, value in committed.items() if key[0] == "g"}
