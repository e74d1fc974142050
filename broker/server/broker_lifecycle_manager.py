"""Registers this broker, keeps it alive in the controller's eyes, and takes it out of the cluster in order (KIP-631).

A broker serves while it is unfenced.  The controller fences one it does not hear from; the broker, which cannot hear
that either, then fences itself: two brokers that both believe they lead are what acknowledged records get lost by.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from broker.common.errors import ErrorCode, RequestTimedOutError
from broker.common.identifiers import NO_EPOCH, Offset
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.value_types import Listener
from broker.metadata.broker_registration import SecurityProtocol, VersionRange
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.broker_identity import BrokerIdentity
from broker.server.broker_state import BrokerState, LifecycleEvent, next_state
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.supported_features import SUPPORTED_FEATURES, feature_advice

log = structlog.get_logger(__name__)

REGISTRATION_VERSION: Final = 4
HEARTBEAT_VERSION: Final = 1
STARTING_INTERVAL_MS: Final = 10  # a start is waiting for each of these heartbeats
UNFENCING_INTERVAL_MS: Final = 50
SHUTDOWN_INTERVAL_MS: Final = 50
BACKOFF_MIN_MS: Final = 100
# The session of the process before us is what is waited for most: Kafka's back-off, a whole session at most, would
# sleep for seconds after it has ended.
REGISTRATION_BACKOFF_MAX_MS: Final = 1_000
FEATURES_WAIT_MS: Final = 2_000  # for the metadata log to tell which features we lack, before a start is given up


class BrokerStartError(Exception):
    """This broker cannot join the cluster; the message says what an operator does about it."""


class BrokerReplacedError(Exception):
    """The controller knows another registration for our id, or none: this process must not serve any longer."""


class BrokerLifecycleManager:
    """One task: first registration, then heartbeats, each telling what the broker wants and hearing what it may.

    `highest_metadata_offset` gives the last offset of the metadata log this broker has applied, `finalized_features`
    the levels the cluster runs at as far as they are known.
    """

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        config: ConfigHolder[BrokerConfig],
        channel: NodeToControllerChannel,
        highest_metadata_offset: Callable[[], Offset],
        features: Mapping[str, VersionRange] = SUPPORTED_FEATURES,
        finalized_features: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._identity = identity
        self._config = config
        self._channel = channel
        self._highest_metadata_offset = highest_metadata_offset
        self._features = features
        self._finalized_features = finalized_features
        self._tasks = BackgroundTasks("broker-lifecycle", on_failure=lambda _, error: self._end(error))
        self._wake = asyncio.Event()
        self._registered = _Milestone()
        self._caught_up = _Milestone()
        self._unfenced = _Milestone()
        self._shutdown_granted = _Milestone()
        self._wants_fence = True
        self._wants_registration = False
        self._has_lease = False
        self._lease_timer: asyncio.TimerHandle | None = None
        self._lease_ends_at = 0.0
        self._failures_in_row = 0
        self.failed_heartbeat_count = 0
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_EPOCH

    @asynccontextmanager
    async def running(self) -> AsyncIterator["BrokerLifecycleManager"]:
        """On leaving, heartbeats end and the broker counts as fenced."""
        try:
            yield self
        finally:
            await self._tasks.cancel_all()
            self._set_lease(False)
            self._move(LifecycleEvent.STOPPED)

    @property
    def is_fenced(self) -> bool:
        """Whether this broker must refuse to lead: by the controller's word, or for not having heard it in time."""
        # The timer may be late: a process that was stopped serves its sockets first when it goes on.
        return not self._has_lease or asyncio.get_running_loop().time() >= self._lease_ends_at

    @property
    def is_running(self) -> bool:
        return self.state is BrokerState.RUNNING

    async def start(self, listeners: Sequence[Listener], previous_broker_epoch: int = NO_EPOCH) -> int:
        """Register, and return the epoch of the registration; heartbeats go on from there until the end.

        `listeners` are those clients and brokers can dial, with real ports.  `previous_broker_epoch` comes from the
        clean marker of the log directory, -1 without one.  Raises BrokerStartError.
        """
        self._move(LifecycleEvent.STARTED)
        self._tasks.start("heartbeat", self._live(self._registration(listeners, previous_broker_epoch)))
        await self._registered.wait()
        return self.broker_epoch

    def register_again(self) -> None:
        """Register once more as the same process, before the next heartbeat: the epoch stays."""
        self._wants_registration = True
        self._wake.set()

    async def wait_until_caught_up(self) -> None:
        """Until the controller says that our metadata has reached our own registration."""
        await self._caught_up.wait()

    def set_ready_to_unfence(self) -> None:
        """Logs are loaded and listeners open: ask the controller to unfence us."""
        self._wants_fence = False
        self._wake.set()

    async def wait_until_unfenced(self) -> None:
        await self._unfenced.wait()

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Let the controller move leaderships away; True when it has.

        False when the time was not enough, or at once with `controlled.shutdown.enable=false`.
        After True no heartbeat is sent any more, for each would fence us once more in the metadata log.
        """
        self._move(LifecycleEvent.SHUTDOWN_REQUESTED)
        if self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return True
        self._wake.set()
        if not self._config.current.controlled_shutdown_enable:
            self._move(LifecycleEvent.SHUTDOWN_GRANTED)
            return False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._shutdown_granted.wait()
        except TimeoutError:
            log.warning("controlled_shutdown_timed_out", timeout_ms=timeout_ms)
        except BrokerReplacedError:
            log.warning("controlled_shutdown_needless", reason="the controller no longer knows this broker")
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._move(LifecycleEvent.SHUTDOWN_GRANTED)
            return False
        return True

    async def _live(self, registration: Any) -> None:
        try:
            await self._register(registration)
            while self.state is not BrokerState.SHUTTING_DOWN:
                if self._wants_registration:
                    await self._amend(registration)
                pause_ms = await self._heartbeat()
                await self._pause(pause_ms)
        except (BrokerStartError, BrokerReplacedError) as error:  # expected, and said in one sentence
            log.error("broker_left_the_cluster", reason=str(error))
            self._end(error)

    async def _register(self, request: Any) -> None:
        loop = asyncio.get_running_loop()
        config = self._config.current
        deadline = loop.time() + config.initial_broker_registration_timeout_ms / 1000
        backoff_ms = BACKOFF_MIN_MS
        reason = "no controller answered"
        while True:
            remaining_ms = int((deadline - loop.time()) * 1000)
            if remaining_ms <= 0:
                raise BrokerStartError(
                    f"broker {self._identity.node_id} could not register within "
                    f"{config.initial_broker_registration_timeout_ms} ms: {reason}"
                )
            try:
                response = await self._channel.send(request, timeout_ms=remaining_ms)
            except RequestTimedOutError:
                continue
            if response.error_code == ErrorCode.none:
                self.broker_epoch = int(response.broker_epoch)
                log.info("broker_registered", broker_epoch=self.broker_epoch)
                self._registered.reach()
                return
            if response.error_code == ErrorCode.unsupported_version:
                raise BrokerStartError(feature_advice(await self._known_features()))
            reason = self._registration_refused(response.error_code)
            log.warning("broker_registration_refused", error=response.error_code.name, retry_in_ms=backoff_ms)
            await asyncio.sleep(min(backoff_ms, max(remaining_ms, 1)) / 1000)
            backoff_ms = min(backoff_ms * 2, REGISTRATION_BACKOFF_MAX_MS)

    async def _amend(self, request: Any) -> None:
        """The same registration again, tried once: heartbeats must not wait, and whoever asked for it will again."""
        self._wants_registration = False
        timeout_ms = self._config.current.broker_session_timeout_ms // 2
        try:
            response = await self._channel.send(request, timeout_ms=timeout_ms)
        except RequestTimedOutError:
            self._wants_registration = True
            return
        if response.error_code != ErrorCode.none:
            log.warning("broker_registration_refused", error=response.error_code.name)
        else:
            self.broker_epoch = int(response.broker_epoch)
            log.info("broker_registered_again", broker_epoch=self.broker_epoch)

    async def _known_features(self) -> Mapping[str, int]:
        for _ in range(FEATURES_WAIT_MS // BACKOFF_MIN_MS):
            if finalized := self._finalized_features():
                return finalized
            await asyncio.sleep(BACKOFF_MIN_MS / 1000)
        return {}

    def _registration_refused(self, error: ErrorCode) -> str:
        """Why it is worth trying again; BrokerStartError when it is not."""
        identity = self._identity
        if error == ErrorCode.inconsistent_cluster_id:
            raise BrokerStartError(
                f"the controller belongs to another cluster than {identity.cluster_id}, which meta.properties names"
            )
        if error == ErrorCode.invalid_registration:
            raise BrokerStartError(
                f"the controller refuses the registration of broker {identity.node_id}: is its directory id "
                f"{identity.directory_id} a copy of another broker's meta.properties?"
            )
        if error == ErrorCode.duplicate_broker_registration:
            return f"another process with node.id={identity.node_id} is alive"
        return f"the controller answered {error.name}"

    def _registration(self, listeners: Sequence[Listener], previous_broker_epoch: int) -> Any:
        identity = self._identity
        schema = RequestSchema.of(ApiKey.BROKER_REGISTRATION, REGISTRATION_VERSION)
        return schema.BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=tuple(
                schema.Listener(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=int(SecurityProtocol[listener.security_protocol]),
                )
                for listener in listeners
            ),
            features=tuple(
                schema.Feature(
                    name=name,
                    min_supported_version=levels.minimum,
                    max_supported_version=levels.maximum,
                )
                for name, levels in self._features.items()
            ),
            rack=identity.rack,
            is_migrating_zk_broker=False,
            log_dirs=(identity.directory_id,),
            previous_broker_epoch=previous_broker_epoch,
        )

    async def _heartbeat(self) -> int:
        """One heartbeat; returns the milliseconds until the next."""
        config = self._config.current
        sent_at = asyncio.get_running_loop().time()
        wants_shutdown = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = RequestSchema.of(ApiKey.BROKER_HEARTBEAT, HEARTBEAT_VERSION).BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._highest_metadata_offset(),
            want_fence=self._wants_fence,
            want_shut_down=wants_shutdown,
        )
        try:
            response = await self._channel.send(request, timeout_ms=config.broker_session_timeout_ms)
        except RequestTimedOutError:
            return self._heartbeat_failed("no answer")
        if response.error_code == ErrorCode.stale_broker_epoch:
            raise BrokerReplacedError(
                f"broker {self._identity.node_id} with epoch {self.broker_epoch} is no longer registered: "
                "another process took its place, or it was unregistered"
            )
        if response.error_code != ErrorCode.none:
            return self._heartbeat_failed(response.error_code.name)
        self._failures_in_row = 0
        return self._heartbeat_succeeded(response, sent_at, wants_shutdown)

    def _heartbeat_failed(self, reason: str) -> int:
        session_ms = self._config.current.broker_session_timeout_ms
        backoff_ms = min(BACKOFF_MIN_MS << min(self._failures_in_row, 16), session_ms)
        if self._failures_in_row == 0:
            log.warning("heartbeat_failed", reason=reason)
        self._failures_in_row += 1
        self.failed_heartbeat_count += 1
        return backoff_ms

    def _heartbeat_succeeded(self, response: Any, sent_at: float, wants_shutdown: bool) -> int:
        if self.state is BrokerState.SHUTTING_DOWN:
            return 0
        if response.is_fenced:
            self._set_lease(False)
        else:
            self._renew_lease(sent_at)
        if self.state is BrokerState.STARTING and response.is_caught_up:
            self._move(LifecycleEvent.CAUGHT_UP)
            self._caught_up.reach()
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self._move(LifecycleEvent.UNFENCED)
            self._unfenced.reach()
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if wants_shutdown and response.should_shut_down:
                self._move(LifecycleEvent.SHUTDOWN_GRANTED)
                self._shutdown_granted.reach()
                return 0
            return SHUTDOWN_INTERVAL_MS
        if self.state is BrokerState.STARTING:
            return STARTING_INTERVAL_MS
        if response.is_fenced and not self._wants_fence:
            return UNFENCING_INTERVAL_MS
        return self._config.current.broker_heartbeat_interval_ms

    def _renew_lease(self, sent_at: float) -> None:
        """We are unfenced for one session from the moment the controller can have taken as our last sign of life."""
        loop = asyncio.get_running_loop()
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        self._lease_ends_at = ends_at = sent_at + self._config.current.broker_session_timeout_ms / 1000
        self._lease_timer = loop.call_at(ends_at, self._lease_expired)
        self._set_lease(ends_at > loop.time())

    def _lease_expired(self) -> None:
        log.error("broker_fenced_itself", reason="no heartbeat was answered for a whole session")
        self._set_lease(False)

    def _set_lease(self, has_lease: bool) -> None:
        if not has_lease and self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None
        if has_lease == self._has_lease:
            return
        self._has_lease = has_lease
        log.info("broker_unfenced" if has_lease else "broker_fenced", broker_epoch=self.broker_epoch)

    def _move(self, event: LifecycleEvent) -> None:
        was, self.state = self.state, next_state(self.state, event)
        if was is not self.state:
            log.info("broker_state", was=was.name.lower(), now=self.state.name.lower())

    async def _pause(self, pause_ms: int) -> None:
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _end(self, error: BaseException) -> None:
        """Whoever waits for a milestone hears of it; when nobody does, the loop's handler ends the broker."""
        self._set_lease(False)
        milestones = (self._registered, self._caught_up, self._unfenced, self._shutdown_granted)
        is_heard = [milestone.fail(error) for milestone in milestones]
        if not any(is_heard):
            asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})


class _Milestone:
    """A point in the life that is reached once, or never, with the reason."""

    def __init__(self) -> None:
        self._is_reached = False
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_reached:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def reach(self) -> None:
        self._is_reached = True
        self._finish(None)

    def fail(self, error: BaseException) -> bool:
        """Whether somebody was waiting."""
        if self._is_reached:
            return False
        self._error = error
        return self._finish(error)

    def _finish(self, error: BaseException | None) -> bool:
        waiters, self._waiters = self._waiters, []
        open_waiters = [waiter for waiter in waiters if not waiter.done()]
        for waiter in open_waiters:
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        return bool(open_waiters)
