from broker.wal.follower_term import FollowerTicket
from broker.wal.slice_gets import FAILING_BUCKET_GETS, SliceGet, SliceGets, WantedSlice
from broker.wal.wal_entry import WalEntry

from .wal_world import BUCKET, OTHER_BUCKET, entry


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
) -> WantedSlice:
    wanted = entry(position, position, key=key, bucket=bucket, position=position, size=size)
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
    gets = gets_of(wish(0), wish(100 + 64 * 1024), wish(201 + 128 * 1024), wish(key="other"))
    assert shape(gets.next()) == ("k", 0, 200 + 64 * 1024, 2)
    assert shape(gets.next()) == ("k", 201 + 128 * 1024, 301 + 128 * 1024, 1)  # wanted before the other
    assert shape(gets.next()) == ("other", 0, 100, 1)


def test_objects_come_in_the_order_in_which_they_were_wanted() -> None:
    gets = gets_of(wish(key="a"), wish(key="b"), wish(100, key="a"), wish(key="c"))
    assert [shape(gets.next()) for _ in range(4)] == [("a", 0, 200, 2), ("b", 0, 100, 1), ("c", 0, 100, 1), None]


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
    begun = [gets.next() for _ in range(8)]
    keys = [get.object_range.object_key for get in begun if get is not None]
    assert keys[:FAILING_BUCKET_GETS] == [f"dead{number}" for number in range(4)]
    assert keys[FAILING_BUCKET_GETS:] == [f"alive{number}" for number in range(4)]
    again = begun[0]
    assert again is not None and gets.unanswered(again) == 2
    answering = begun[1]
    assert answering is not None
    gets.answered(answering)
    assert not gets.is_failing(BUCKET)
    assert shape(gets.next()) == ("dead4", 0, 100, 1)


def test_what_waits_for_a_bucket_can_be_taken_back() -> None:
    first, second, other = wish(key="a"), wish(key="b"), wish(key="c", bucket=OTHER_BUCKET)
    gets = gets_of(first, other, second)
    assert gets.take_back(BUCKET) == [first, second]
    assert gets.take_back(BUCKET) == []
    assert shape(gets.next()) == ("c", 0, 100, 1)
    assert gets.next() is None
