from broker.wal.follow.follower_term import FollowerTicket
from broker.wal.follow.slice_gets import FAILING_BUCKET_GETS, SliceGet, SliceGets, WantedSlice
from broker.wal.objects.wal_entry import WalEntry
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, entry


class Receiver:
    """Wants everything but what it was told to forget."""

    def __init__(self) -> None:
        self.forgotten: set[WalEntry] = set()

    def wants(self, wanted: WantedSlice) -> bool:
        return wanted.entry not in self.forgotten

    def arrived(self, wanted: WantedSlice, data: memoryview) -> None: ...

    def came_wrong(self, wanted: WantedSlice, error: Exception) -> None: ...

    def gone(self, wanted: WantedSlice) -> None: ...

    def unreachable(self, wanted: WantedSlice, until_ms: int) -> None: ...


RECEIVER = Receiver()


def wish(
    position: int = 0,
    size: int = 100,
    *,
    key: str = "k",
    bucket: str = BUCKET,
    receiver: Receiver = RECEIVER,
    is_alone: bool = False,
    age: int = 0,
) -> WantedSlice:
    wanted = entry(position, position, key=key, bucket=bucket, position=position, size=size, timestamp=1000 - age)
    return WantedSlice(wanted, receiver, FollowerTicket(1, 1), is_alone)


def gets_of(*wishes: WantedSlice, gets_max: int = 16) -> SliceGets:
    gets = SliceGets(gets_max)
    for each in wishes:
        gets.add(each)
    return gets


def shape(get: SliceGet | None) -> tuple[str, int, int, int] | None:
    if get is None:
        return None
    asked = get.object_range
    return asked.object_key, asked.start, asked.end, len(get.wanted)


def test_56_slices_of_one_object_are_one_get_whoever_wants_them() -> None:
    gets = gets_of(*(wish(position, receiver=Receiver()) for position in range(0, 2000, 100)))
    assert shape(gets.next()) == ("k", 0, 2000, 20)
    assert gets.next() is None and not gets.has_waiting


def test_slices_far_apart_are_two_gets() -> None:
    gets = gets_of(wish(0), wish(100 + 64 * 1024), wish(201 + 128 * 1024), wish(key="other", age=-1))
    assert shape(gets.next()) == ("k", 0, 200 + 64 * 1024, 2)
    assert shape(gets.next()) == ("k", 201 + 128 * 1024, 301 + 128 * 1024, 1)  # it is the older object
    assert shape(gets.next()) == ("other", 0, 100, 1)


def test_of_one_bucket_the_oldest_object_comes_first() -> None:
    """A partition that is in few objects wants one far ahead; the others are about to want theirs of it."""
    gets = gets_of(wish(key="far"), wish(key="b", age=1), wish(key="a", age=2), wish(100, key="b", age=1))
    assert [shape(gets.next()) for _ in range(2)] == [("a", 0, 100, 1), ("b", 0, 200, 2)]
    gets.add(wish(200, key="far"))
    assert [shape(gets.next()) for _ in range(2)] == [("far", 0, 300, 2), None]


def test_buckets_take_turns() -> None:
    gets = gets_of(*(wish(key=f"a{number}", age=9) for number in range(3)), wish(key="b", bucket=OTHER_BUCKET))
    assert [get.object_range.object_key for get in iter(gets.next, None) if get] == ["a0", "b", "a1", "a2"]


def test_no_more_gets_than_may_be() -> None:
    gets = gets_of(*(wish(key=key) for key in "abc"), gets_max=2)
    first, second = gets.next(), gets.next()
    assert first is not None and second is not None
    assert gets.next() is None and gets.under_way_count == 2
    gets.answered(first)
    assert shape(gets.next()) == ("c", 0, 100, 1)


def test_a_get_under_way_is_not_repeated() -> None:
    gets = gets_of(wish(0), wish(200))
    get = gets.next()
    assert get is not None and get.size == 300
    within, same, beyond = wish(100), wish(0), wish(250)
    for each in (within, same, beyond):
        gets.add(each)
    assert get.wanted[2:] == [within, same]
    assert shape(gets.next()) == ("k", 250, 350, 1)
    gets.answered(get)
    gets.add(wish(0))
    assert shape(gets.next()) == ("k", 0, 100, 1)


def test_what_nobody_wants_any_more_is_not_asked_for() -> None:
    receiver = Receiver()
    first, second, other = wish(0, receiver=receiver), wish(100), wish(key="b", receiver=receiver)
    gets = gets_of(other, first, second)
    receiver.forgotten = {first.entry, other.entry}
    assert shape(gets.next()) == ("k", 100, 200, 1)
    assert not gets.has_waiting


def test_a_slice_that_came_wrong_is_asked_for_alone() -> None:
    alone = wish(100, is_alone=True)
    gets = gets_of(wish(0), alone, wish(200))
    assert shape(gets.next()) == ("k", 0, 300, 2)
    gets.add(wish(100, is_alone=True))
    get = gets.next()
    assert get is not None and get.wanted == [alone] and get.size == 100
    assert shape(gets.next()) == ("k", 100, 200, 1)


def test_a_bucket_that_does_not_answer_leaves_gets_to_the_others() -> None:
    gets = gets_of(wish(key="first"), gets_max=8)
    lost = gets.next()
    assert lost is not None
    assert gets.unanswered(lost) == 1 and gets.is_failing(BUCKET)
    for number in range(6):
        gets.add(wish(key=f"dead{number}"))
    for number in range(6):
        gets.add(wish(key=f"alive{number}", bucket=OTHER_BUCKET))
    begun = [get for _ in range(8) if (get := gets.next()) is not None]
    keys = [get.object_range.object_key for get in begun]
    assert [key for key in keys if "dead" in key] == [f"dead{number}" for number in range(FAILING_BUCKET_GETS)]
    assert [key for key in keys if "alive" in key] == [f"alive{number}" for number in range(4)]
    assert gets.unanswered(begun[0]) == 2
    gets.answered(begun[2])  # of the same bucket
    assert not gets.is_failing(BUCKET)
    assert shape(gets.next()) in (("dead4", 0, 100, 1), ("alive4", 0, 100, 1))
    assert gets.under_way_count == 7


def test_what_waits_for_a_bucket_can_be_taken_back() -> None:
    first, second, other = wish(key="a"), wish(key="b"), wish(key="c", bucket=OTHER_BUCKET)
    gets = gets_of(first, other, second)
    assert gets.take_back(BUCKET) == [first, second]
    assert gets.take_back(BUCKET) == []
    assert shape(gets.next()) == ("c", 0, 100, 1)
    assert gets.next() is None
