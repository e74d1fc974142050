import asyncio

from broker.common.errors import ErrorCode, KafkaError, NotCoordinatorError
from broker.coordinator.deferred_replies import DeferredReplies
from tests.support.sim_loop import SimLoop, simulate


def test_replies_leave_in_order_as_the_high_watermark_passes_them() -> None:
    async def story(loop: SimLoop) -> None:
        replies, told = DeferredReplies(), []
        for end_offset in (3, 5, 5):
            replies.add(end_offset, 1000, lambda error, end=end_offset: told.append((end, error)))
        assert len(replies) == 3
        replies.commit(2)
        assert told == []
        replies.commit(4)
        assert told == [(3, None)]
        replies.commit(5)
        assert told == [(3, None), (5, None), (5, None)]
        replies.commit(1)
        assert replies.committed_offset == 5

    simulate(story)


def test_what_is_committed_already_is_told_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        replies, told = DeferredReplies(), []
        replies.commit(5)
        replies.add(5, 1000, told.append)
        assert told == [None] and len(replies) == 0

    simulate(story)


def test_a_reply_times_out_once() -> None:
    async def story(loop: SimLoop) -> None:
        replies = DeferredReplies()
        told: list[KafkaError | None] = []
        replies.add(1, 1000, told.append)
        await asyncio.sleep(2)
        assert [error and error.code for error in told] == [ErrorCode.request_timed_out]
        assert len(replies) == 0
        replies.commit(1)
        assert len(told) == 1

    simulate(story)


def test_expired_replies_do_not_pile_up_while_nothing_is_committed() -> None:
    async def story(loop: SimLoop) -> None:
        replies = DeferredReplies()
        told: list[KafkaError | None] = []
        for end_offset in range(1, 101):
            replies.add(end_offset, 1000, told.append)
            await asyncio.sleep(0.5)
        assert len(replies._waiting) <= 3 and len(told) == 99
        replies.commit(100)
        assert told[99:] == [None]

    simulate(story)


def test_all_fail_together() -> None:
    async def story(loop: SimLoop) -> None:
        replies = DeferredReplies()
        told: list[KafkaError | None] = []
        replies.add(1, 1000, told.append)
        replies.add(2, 1000, told.append)
        replies.fail_all(NotCoordinatorError("gone"))
        await asyncio.sleep(2)
        assert [error and error.code for error in told] == [ErrorCode.not_coordinator] * 2

    simulate(story)


def test_a_reply_may_wait_for_more() -> None:
    async def story(loop: SimLoop) -> None:
        replies, told = DeferredReplies(), []
        replies.add(1, 1000, lambda _: replies.add(2, 1000, lambda _: told.append("second")))
        replies.commit(1)
        assert told == []
        replies.commit(2)
        assert told == ["second"]

    simulate(story)
