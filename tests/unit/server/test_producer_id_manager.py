import asyncio
from typing import Any

import pytest

from broker.common.errors import CoordinatorLoadInProgressError, ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.producer_id_manager import ProducerIdManager
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import FakeController, finder_with_leader, response_of


class Setup:
    def __init__(self, block_size: int = 1_000) -> None:
        self.block_size = block_size
        self.errors: list[ErrorCode] = []
        self.delay = 0.0
        self.next_start = 5_000
        self.controller = FakeController()
        self.controller.answers[ApiKey.ALLOCATE_PRODUCER_IDS] = self._allocate
        self.channel = NodeToControllerChannel(
            "producer-ids", finder_with_leader(), self.controller.connect, request_timeout_ms=60_000
        )
        self.manager = ProducerIdManager(self.channel, 1, lambda: 42)

    async def _allocate(self, request: Any) -> Any:
        assert (request.broker_id, request.broker_epoch) == (1, 42)
        await asyncio.sleep(self.delay)
        error = self.errors.pop(0) if self.errors else ErrorCode.none
        start = self.next_start
        if error == ErrorCode.none:
            self.next_start += self.block_size
        return response_of(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            throttle_time=NO_THROTTLE,
            error_code=error,
            producer_id_start=start,
            producer_id_len=self.block_size,
        )

    @property
    def asked(self) -> int:
        return len(self.controller.requests(ApiKey.ALLOCATE_PRODUCER_IDS))


def run(play: Any, setup: Setup) -> None:
    async def story(loop: SimLoop) -> None:
        async with setup.channel.running(), setup.manager.running():
            await play(loop)

    simulate(story)


def test_ids_are_consecutive_over_blocks_and_the_next_block_is_fetched_ahead() -> None:
    setup = Setup(block_size=10)

    async def play(loop: SimLoop) -> None:
        ids = [await setup.manager.generate_producer_id() for _ in range(8)]
        await asyncio.sleep(1)
        assert setup.asked == 1
        ids.append(await setup.manager.generate_producer_id())  # the ninth of ten
        await asyncio.sleep(1)
        assert setup.asked == 2
        setup.delay = 3600  # nothing waits for the controller now
        ids += [await setup.manager.generate_producer_id() for _ in range(8)]
        assert ids == list(range(5_000, 5_017))

    run(play, setup)


def test_many_who_wait_share_one_request_and_get_different_ids() -> None:
    setup = Setup()
    setup.delay = 0.5

    async def play(loop: SimLoop) -> None:
        ids = await asyncio.gather(*(setup.manager.generate_producer_id() for _ in range(20)))
        assert sorted(ids) == list(range(5_000, 5_020))
        assert setup.asked == 1

    run(play, setup)


def test_a_stale_epoch_is_repeated() -> None:
    setup = Setup()
    setup.errors = [ErrorCode.stale_broker_epoch, ErrorCode.stale_broker_epoch]

    async def play(loop: SimLoop) -> None:
        assert await setup.manager.generate_producer_id() == 5_000
        assert setup.asked == 3

    run(play, setup)


def test_clients_are_told_to_come_back_when_no_block_arrives() -> None:
    setup = Setup()
    setup.delay = 1.5

    async def play(loop: SimLoop) -> None:
        with pytest.raises(CoordinatorLoadInProgressError):
            await setup.manager.generate_producer_id()
        assert loop.time() == 1
        await asyncio.sleep(0.6)
        assert await setup.manager.generate_producer_id() == 5_000

    run(play, setup)
