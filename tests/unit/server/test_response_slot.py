import pytest

from broker.server.response_slot import ResponseSlot


class Owner:
    def __init__(self) -> None:
        self.filled: list[ResponseSlot] = []
        self.closed: list[str] = []
        self.throttled: list[int] = []

    def on_slot_filled(self, slot: ResponseSlot) -> None:
        self.filled.append(slot)

    def close(self, reason: str) -> None:
        self.closed.append(reason)

    def throttle(self, delay_ms: int) -> None:
        self.throttled.append(delay_ms)


def test_a_slot_tells_its_owner_when_it_is_filled() -> None:
    owner = Owner()
    slot = ResponseSlot(owner)
    assert not slot.is_filled
    slot.send([b"answer"])
    assert (slot.is_filled, slot.buffers, owner.filled) == (True, [b"answer"], [slot])


def test_nothing_is_an_answer_too() -> None:
    owner = Owner()
    slot = ResponseSlot(owner)
    slot.send_nothing()
    assert (slot.is_filled, slot.buffers, owner.filled) == (True, [], [slot])


def test_a_slot_is_filled_once() -> None:
    slot = ResponseSlot(Owner())
    slot.send([b"answer"])
    with pytest.raises(AssertionError):
        slot.send_nothing()


def test_the_connection_can_be_closed_instead() -> None:
    owner = Owner()
    ResponseSlot(owner).close_connection("acks=0")
    assert owner.closed == ["acks=0"]


def test_errors_of_a_slot_without_a_route_are_not_counted_anywhere() -> None:
    ResponseSlot(Owner()).count_error(3)


def test_a_delay_is_the_owners() -> None:
    owner = Owner()
    ResponseSlot(owner).throttle(700)
    assert owner.throttled == [700]


def test_a_filled_slot_knows_nobody_to_cancel() -> None:
    """What is parked knows its slot as well: the two would keep each other, and the answer, in memory."""
    slot = ResponseSlot(Owner())
    slot.on_closed = lambda: None
    slot.send([b"answer"])
    assert slot.on_closed is None
