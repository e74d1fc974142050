import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.errors import ErrorCode
from broker.config.value_types import Listener
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.server.broker_lifecycle_manager import BrokerLifecycleManager, BrokerReplacedError, BrokerStartError
from broker.server.broker_state import BrokerState
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CLUSTER_ID,
    CONTROLLER,
    DIRECTORIES,
    IDENTITY,
    FakeController,
    config_holder,
    finder_with_leader,
    response_of,
)

LISTENERS = (Listener("PLAINTEXT", "broker-1", 9092, "PLAINTEXT"), Listener("OUTSIDE", "example", 443, "SASL_SSL"))
NONE = ErrorCode.none


class Setup:
    """A controller that registers, unfences whoever is caught up and asks, and grants shutdowns at the third beat."""

    def __init__(self, **properties: str) -> None:
        self.controller = FakeController()
        self.controller.answers[ApiKey.BROKER_REGISTRATION] = self._register
        self.controller.answers[ApiKey.BROKER_HEARTBEAT] = self._beat
        self.registration_errors: list[ErrorCode] = []
        self.beat_error = NONE
        self.is_silent = False
        self.is_deaf = False  # to registrations alone
        self.finalized: dict[str, int] = {}
        self.metadata_offset = 10
        self.shutdown_beats = 0
        self.beat_times: list[float] = []
        self.channel = NodeToControllerChannel(
            "heartbeat", finder_with_leader(), self.controller.connect, request_timeout_ms=4_500
        )
        self.config = config_holder(**properties)
        self.lifecycle = BrokerLifecycleManager(
            identity=IDENTITY,
            config=self.config,
            channel=self.channel,
            highest_metadata_offset=lambda: self.metadata_offset,
            finalized_features=lambda: self.finalized,
        )
        self.logged: list[Any] = []

    @property
    def fencing(self) -> list[bool]:
        """Whether it was fenced or unfenced, each time that changed."""
        changes = {"broker_fenced": True, "broker_unfenced": False}
        return [changes[entry["event"]] for entry in self.logged if entry["event"] in changes]

    async def _register(self, request: Any) -> Any:
        if self.is_deaf:
            await asyncio.sleep(3600)
        error = self.registration_errors.pop(0) if self.registration_errors else NONE
        epoch = 42 if error == NONE else -1
        return response_of(
            ApiKey.BROKER_REGISTRATION, 4, throttle_time=NO_THROTTLE, error_code=error, broker_epoch=epoch
        )

    async def _beat(self, request: Any) -> Any:
        if self.is_silent:
            await asyncio.sleep(3600)
        self.beat_times.append(asyncio.get_running_loop().time())
        caught_up = request.current_metadata_offset >= 20
        self.shutdown_beats += request.want_shut_down
        return response_of(
            ApiKey.BROKER_HEARTBEAT,
            1,
            throttle_time=NO_THROTTLE,
            error_code=self.beat_error,
            is_caught_up=caught_up,
            is_fenced=request.want_fence or not caught_up,
            should_shut_down=self.shutdown_beats >= 3,
        )

    async def run(self) -> None:
        """To RUNNING."""
        await self.lifecycle.start(LISTENERS, 7)
        self.metadata_offset = 20
        await self.lifecycle.wait_until_caught_up()
        self.lifecycle.set_ready_to_unfence()
        await self.lifecycle.wait_until_unfenced()

    @property
    def beats(self) -> list[Any]:
        return self.controller.requests(ApiKey.BROKER_HEARTBEAT)


def story_of(play: Callable[[SimLoop, Setup], Any], **properties: str) -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup(**properties)
        with capture_logs() as setup.logged:
            async with setup.channel.running(), setup.lifecycle.running():
                await play(loop, setup)

    simulate(story)


def test_from_start_to_unfenced() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        lifecycle = setup.lifecycle
        assert await lifecycle.start(LISTENERS, 7) == 42
        assert (lifecycle.state, lifecycle.broker_epoch, lifecycle.is_fenced) == (BrokerState.STARTING, 42, True)
        await asyncio.sleep(0.1)
        assert 9 <= len(setup.beats) <= 11  # every 10 ms while starting
        setup.metadata_offset = 20
        await lifecycle.wait_until_caught_up()
        assert lifecycle.state is BrokerState.RECOVERY
        await asyncio.sleep(30)  # logs are recovered: still fenced, and alive in the controller's eyes
        assert all(beat.want_fence for beat in setup.beats)
        assert lifecycle.is_fenced
        lifecycle.set_ready_to_unfence()
        before = loop.time()
        await lifecycle.wait_until_unfenced()
        assert loop.time() == before  # at once
        assert (lifecycle.state, lifecycle.is_fenced, setup.fencing) == (BrokerState.RUNNING, False, [False])
        beat = setup.beats[-1]
        assert (beat.broker_id, beat.broker_epoch, beat.current_metadata_offset) == (1, 42, 20)
        assert (beat.want_fence, beat.want_shut_down) == (False, False)
        await asyncio.sleep(20)
        assert setup.beat_times[-1] - setup.beat_times[-2] == pytest.approx(2.0)

    story_of(play)


def test_the_registration_tells_everything() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.lifecycle.start(LISTENERS, 7)
        (request,) = setup.controller.requests(ApiKey.BROKER_REGISTRATION)
        assert (request.broker_id, request.cluster_id, request.incarnation_id) == (1, CLUSTER_ID, UUID(int=77))
        assert [(each.name, each.host, each.port, each.security_protocol) for each in request.listeners] == [
            ("PLAINTEXT", "broker-1", 9092, 0),
            ("OUTSIDE", "example", 443, 3),
        ]
        features = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        assert features == {"metadata.version": (7, 29), "kraft.version": (0, 1)}
        assert (request.log_dirs, request.previous_broker_epoch) == ((DIRECTORIES[1],), 7)
        assert (request.rack, request.is_migrating_zk_broker) == (None, False)

    story_of(play)


def test_a_twin_that_is_alive_is_waited_for_with_back_off() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.registration_errors = [ErrorCode.duplicate_broker_registration] * 7
        await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8 + 1 + 1 + 1)

    story_of(play)


def test_a_twin_that_stays_ends_the_start() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.registration_errors = [ErrorCode.duplicate_broker_registration] * 999
        with pytest.raises(BrokerStartError, match=r"within 60000 ms: another process with node\.id=1 is alive"):
            await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(60, abs=0.01)

    story_of(play)


def test_no_controller_ends_the_start_in_time() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.controller.unreachable.add(CONTROLLER)
        with pytest.raises(BrokerStartError, match="no controller answered"):
            await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(60, abs=0.1)

    story_of(play)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ErrorCode.inconsistent_cluster_id, f"another cluster than {CLUSTER_ID}"),
        (ErrorCode.invalid_registration, "copy of another broker's"),
    ],
)
def test_what_cannot_get_better_ends_the_start_at_once(error: ErrorCode, text: str) -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.registration_errors = [error]
        with pytest.raises(BrokerStartError, match=text):
            await setup.lifecycle.start(LISTENERS)
        with pytest.raises(BrokerStartError):
            await setup.lifecycle.wait_until_caught_up()
        assert loop.time() == 0

    story_of(play)


def test_features_we_lack_are_named_once_the_log_tells_them() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.registration_errors = [ErrorCode.unsupported_version]
        loop.call_later(0.35, setup.finalized.update, {"group.version": 1})
        with pytest.raises(BrokerStartError, match=r"group\.version=1 \(this broker: 0\).*--feature transaction"):
            await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(0.4)

    story_of(play)


def test_features_nobody_tells_are_not_waited_for_forever() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.registration_errors = [ErrorCode.unsupported_version]
        with pytest.raises(BrokerStartError, match=r"ask with kafka-features\.sh describe"):
            await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(2)

    story_of(play)


def test_20_the_same_process_registers_again_without_a_break() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        await asyncio.sleep(3)
        setup.lifecycle.register_again()
        await asyncio.sleep(5)
        first, again = setup.controller.requests(ApiKey.BROKER_REGISTRATION)
        assert again == first
        assert setup.lifecycle.broker_epoch == 42
        assert setup.fencing == [False]

    story_of(play)


def test_a_registration_that_is_not_answered_does_not_stop_the_heartbeats() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        setup.registration_errors = [ErrorCode.unknown_server_error]
        setup.lifecycle.register_again()
        await asyncio.sleep(1)
        beats = len(setup.beats)
        await asyncio.sleep(20)
        assert len(setup.beats) == beats + 10
        assert len(setup.controller.requests(ApiKey.BROKER_REGISTRATION)) == 2
        setup.is_deaf = True
        setup.lifecycle.register_again()
        await asyncio.sleep(5)
        setup.is_deaf = False
        await asyncio.sleep(5)
        assert len(setup.controller.requests(ApiKey.BROKER_REGISTRATION)) == 4
        assert setup.fencing == [False]

    story_of(play)


def test_a_broker_that_is_cut_off_fences_itself_after_a_session_and_comes_back() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        await asyncio.sleep(5)
        last_beat = setup.beat_times[-1]
        setup.is_silent = True
        await asyncio.sleep(last_beat + 8.99 - loop.time())
        assert not setup.lifecycle.is_fenced
        await asyncio.sleep(0.02)
        assert setup.lifecycle.is_fenced
        assert setup.lifecycle.state is BrokerState.RUNNING
        setup.is_silent = False
        await asyncio.sleep(20)
        assert not setup.lifecycle.is_fenced
        assert setup.fencing == [False, True, False]

    story_of(play)


def test_an_answer_that_was_long_on_its_way_gives_no_full_session() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        beat = setup._beat

        async def slow(request: Any) -> Any:
            await asyncio.sleep(4)
            return await beat(request)

        setup.controller.answers[ApiKey.BROKER_HEARTBEAT] = slow
        await asyncio.sleep(2 + 4 + 0.1)  # the next beat is sent after 2 s and answered after 6 s
        setup.is_silent = True
        await asyncio.sleep(4.8)
        assert not setup.lifecycle.is_fenced
        await asyncio.sleep(0.2)
        assert setup.lifecycle.is_fenced  # 9 s after it was sent, 5 s after it was answered

    story_of(play)


def test_a_process_that_was_stopped_for_a_session_is_fenced_before_its_timer_runs() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        loop.advance(8.9)  # the loop serves the sockets first when it goes on
        assert not setup.lifecycle.is_fenced
        loop.advance(0.1)
        assert setup.lifecycle.is_fenced
        await asyncio.sleep(0.1)
        assert not setup.lifecycle.is_fenced  # the next heartbeat was answered

    story_of(play)


def test_a_broker_fenced_by_the_controller_asks_to_be_unfenced_soon() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        setup.metadata_offset = 0  # the fake fences who is behind
        await asyncio.sleep(2.01)
        assert setup.lifecycle.is_fenced
        setup.metadata_offset = 20
        await asyncio.sleep(0.1)
        assert not setup.lifecycle.is_fenced

    story_of(play)


def test_a_replaced_broker_stops_serving_and_ends() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        async with setup.channel.running(), setup.lifecycle.running():
            await setup.run()
            setup.beat_error = ErrorCode.stale_broker_epoch
            await asyncio.sleep(5)
            assert setup.lifecycle.is_fenced
        (failure,) = loop.failures
        assert isinstance(failure["exception"], BrokerReplacedError)
        assert "epoch 42 is no longer registered" in str(failure["exception"])
        loop.failures.clear()

    simulate(story)


def test_other_errors_are_repeated_with_back_off() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        setup.beat_error = ErrorCode.unknown_server_error
        count = len(setup.beat_times)
        await asyncio.sleep(2.0 + 0.1 + 0.2 + 0.4 + 0.01)
        assert len(setup.beat_times) - count == setup.lifecycle.failed_heartbeat_count == 4
        setup.beat_error = NONE
        await asyncio.sleep(1)
        assert not setup.lifecycle.is_fenced

    story_of(play)


def test_a_controlled_shutdown_ends_with_the_controllers_word() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        before = loop.time()
        assert await setup.lifecycle.controlled_shutdown(10_000)
        assert loop.time() - before == pytest.approx(0.1)  # three beats, 50 ms apart
        assert setup.lifecycle.state is BrokerState.SHUTTING_DOWN
        count = len(setup.beats)
        assert [beat.want_shut_down for beat in setup.beats[-4:]] == [False, True, True, True]
        await asyncio.sleep(30)
        assert len(setup.beats) == count  # each further one would fence us once more

    story_of(play)


def test_without_controlled_shutdown_the_broker_just_leaves() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.config.update(setup.config.current.with_overrides({"controlled.shutdown.enable": "false"}))
        await setup.run()
        count = len(setup.beats)
        assert not await setup.lifecycle.controlled_shutdown(10_000)
        assert setup.lifecycle.state is BrokerState.SHUTTING_DOWN
        await asyncio.sleep(5)
        assert len(setup.beats) == count

    story_of(play)


def test_a_controlled_shutdown_is_bounded() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        setup.is_silent = True
        before = loop.time()
        assert not await setup.lifecycle.controlled_shutdown(3_000)
        assert loop.time() - before == pytest.approx(3)
        assert setup.lifecycle.state is BrokerState.SHUTTING_DOWN

    story_of(play)


def test_a_broker_that_never_ran_has_nothing_to_hand_over() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.lifecycle.start(LISTENERS)
        assert await setup.lifecycle.controlled_shutdown(10_000)
        assert loop.time() == 0

    story_of(play)


def test_leaving_fences() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        with capture_logs() as setup.logged:
            async with setup.channel.running():
                async with setup.lifecycle.running():
                    await setup.run()
                assert setup.fencing == [False, True]
                assert setup.lifecycle.state is BrokerState.SHUTTING_DOWN

    simulate(story)


def test_the_time_for_a_registration_is_a_setting() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        setup.controller.unreachable.add(CONTROLLER)
        with pytest.raises(BrokerStartError, match="no controller answered"):
            await setup.lifecycle.start(LISTENERS)
        assert loop.time() == pytest.approx(5, abs=0.1)

    story_of(play, initial__broker__registration__timeout__ms="5000")


def test_heartbeats_and_sessions_have_the_times_of_the_settings() -> None:
    async def play(loop: SimLoop, setup: Setup) -> None:
        await setup.run()
        await asyncio.sleep(3)
        *_, before, last = setup.beat_times
        assert last - before == pytest.approx(0.5)
        setup.is_silent = True
        await asyncio.sleep(1.9)
        assert not setup.lifecycle.is_fenced
        await asyncio.sleep(1.2)
        assert setup.lifecycle.is_fenced

    story_of(play, broker__heartbeat__interval__ms="500", broker__session__timeout__ms="3000")
