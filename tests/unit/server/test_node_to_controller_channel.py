import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode, RequestTimedOutError
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.controller_finder import ControllerFinder, Endpoint
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import CONTROLLER, FakeController, finder_with_leader, response_of


def unregister(broker_id: int) -> Any:
    return RequestSchema.of(ApiKey.UNREGISTER_BROKER, 0).UnregisterBrokerRequest(broker_id=broker_id)


def answer(error: ErrorCode = ErrorCode.none, message: str | None = None) -> Any:
    from broker.protocol.durations import NO_THROTTLE

    return response_of(ApiKey.UNREGISTER_BROKER, 0, throttle_time=NO_THROTTLE, error_code=error, error_message=message)


def channel_to(controller: FakeController, finder: ControllerFinder) -> NodeToControllerChannel:
    return NodeToControllerChannel("test", finder, controller.connect, request_timeout_ms=1_000)


def test_requests_are_answered_in_order_one_at_a_time() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        in_flight: list[int] = []

        async def slow(request: Any) -> Any:
            in_flight.append(request.broker_id)
            assert len(in_flight) == 1
            await asyncio.sleep(0.1)
            in_flight.clear()
            return answer(message=str(request.broker_id))

        controller.answers[ApiKey.UNREGISTER_BROKER] = slow
        async with channel_to(controller, finder_with_leader()).running() as channel:
            answers = await asyncio.gather(*(channel.send(unregister(broker)) for broker in (1, 2, 3)))
        assert [each.error_message for each in answers] == ["1", "2", "3"]
        assert controller.connections == 1
        assert loop.time() == pytest.approx(0.3)

    simulate(story)


def test_a_request_waits_for_a_leader_and_is_repeated_on_the_next() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        old, new = Endpoint("old", 1), Endpoint("new", 2)
        finder = ControllerFinder([old])

        def reply(request: Any) -> Any:
            at = controller.asked[-1][0]
            return answer() if at == new else answer(ErrorCode.not_controller)

        controller.answers[ApiKey.UNREGISTER_BROKER] = reply
        async with channel_to(controller, finder).running() as channel:
            sent = asyncio.ensure_future(channel.send(unregister(1)))
            await asyncio.sleep(1)
            assert not sent.done() and controller.asked == []
            finder.observe(1, 1, {1: old})
            await asyncio.sleep(1)
            assert not sent.done()
            assert {endpoint for endpoint, _ in controller.asked} == {old}
            finder.observe(2, 2, {2: new})
            assert (await sent).error_code == ErrorCode.none
        assert controller.asked[-1][0] == new

    simulate(story)


def test_a_lost_connection_is_made_again() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        failures: list[Any] = [ConnectionResetError("gone"), TimeoutError("slow")]
        controller.answers[ApiKey.UNREGISTER_BROKER] = lambda _: failures.pop(0) if failures else answer()
        async with channel_to(controller, finder_with_leader()).running() as channel:
            assert (await channel.send(unregister(1), timeout_ms=5_000)).error_code == ErrorCode.none
        assert (controller.connections, len(controller.asked)) == (3, 3)
        assert loop.time() == pytest.approx(0.1)  # two pauses of 50 ms

    simulate(story)


def test_the_time_out_bounds_queueing_and_retries_and_frees_the_queue() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        controller.unreachable.add(CONTROLLER)
        controller.answers[ApiKey.UNREGISTER_BROKER] = lambda _: answer()
        async with channel_to(controller, finder_with_leader()).running() as channel:
            with pytest.raises(RequestTimedOutError, match="within 300 ms"):
                await channel.send(unregister(1), timeout_ms=300)
            assert loop.time() == pytest.approx(0.3)
            controller.unreachable.clear()
            assert (await channel.send(unregister(2), timeout_ms=300)).error_code == ErrorCode.none
            assert channel.queue_size == 0
        assert [request.broker_id for _, request in controller.asked] == [2]

    simulate(story)


def test_what_waits_for_the_controller_is_counted() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()

        async def slow(_: Any) -> Any:
            await asyncio.sleep(0.1)
            return answer()

        controller.answers[ApiKey.UNREGISTER_BROKER] = slow
        async with channel_to(controller, finder_with_leader()).running() as channel:
            sent = asyncio.gather(*(channel.send(unregister(broker)) for broker in (1, 2, 3)))
            sizes = []
            for _ in range(4):
                await asyncio.sleep(0.05)
                sizes.append(channel.queue_size)
                await asyncio.sleep(0.05)
            await sent
        assert sizes == [3, 2, 1, 0]

    simulate(story)


def test_an_answer_that_never_comes_is_given_up_after_the_request_time_out() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        silent = [True]

        async def reply(request: Any) -> Any:
            if silent.pop() if silent else False:
                await asyncio.sleep(3600)
            return answer()

        controller.answers[ApiKey.UNREGISTER_BROKER] = reply
        async with channel_to(controller, finder_with_leader()).running() as channel:
            assert (await channel.send(unregister(1))).error_code == ErrorCode.none
        assert loop.time() == pytest.approx(1.05)

    simulate(story)


def test_what_changes_the_controller_can_be_another_answer() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        errors = [ErrorCode.stale_broker_epoch, ErrorCode.none]
        controller.answers[ApiKey.UNREGISTER_BROKER] = lambda _: answer(errors.pop(0))
        async with channel_to(controller, finder_with_leader()).running() as channel:
            sent = await channel.send(
                unregister(1), changes_controller=lambda response: response.error_code == ErrorCode.stale_broker_epoch
            )
        assert sent.error_code == ErrorCode.none
        assert controller.connections == 2

    simulate(story)


def test_leaving_cancels_who_waits() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        async with channel_to(controller, ControllerFinder([CONTROLLER])).running() as channel:
            sent = asyncio.ensure_future(channel.send(unregister(1)))
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await sent

    simulate(story)
