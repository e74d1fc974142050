"""RequestCharge: what one request costs its client in quotas, and how long the client then has to be quiet."""

import dataclasses
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds, to_milliseconds
from broker.protocol.requests import Request, decode_response, encode_response

if TYPE_CHECKING:
    from broker.server.quota_managers import QuotaManagers
    from broker.server.response_slot import ResponseSlot

_LENGTH_SIZE: Final = 4
_PERCENT: Final = 100
BYTES_MAX: Final = 0x7FFFFFFF

EXEMPT: Final = frozenset({ApiKey.WRITE_TXN_MARKERS})  # what brokers ask each other; fetches of followers are, too


class RequestCharge:
    """Made only while there are quotas.  A delay is put on the connection, which reads nothing more until it is over.

    The answer leaves at once and tells the delay (KIP-219).
    """

    __slots__ = ("_body_bytes", "_client_id", "_quotas", "_slot", "_user", "step_seconds")

    def __init__(
        self, quotas: "QuotaManagers", slot: "ResponseSlot", user: str, client_id: str, body_bytes: int
    ) -> None:
        self._quotas = quotas
        self._slot = slot
        self._user = user
        self._client_id = client_id
        self._body_bytes = body_bytes
        self.step_seconds: float | None = None  # of a coroutine, which `measured` knows better than anybody

    # Each of these is asked once, when the answer is known.

    def for_produce(self, *, has_answer: bool) -> int:
        """The delay in milliseconds of a Produce, whose records are appended whatever it is."""
        produce = self._quotas.produce.record(self._user, self._client_id, self._body_bytes)
        return self._throttle(produce_ms=produce, request_ms=self._record_time() if has_answer else 0)

    def for_fetch(self, answer_bytes: int) -> int:
        """The delay of a consumer's Fetch; with one, the records must not be sent, and do not count."""
        fetches = self._quotas.fetch
        request_ms = self._record_time()
        fetch_ms = fetches.record(self._user, self._client_id, answer_bytes)
        if fetch_ms or request_ms:
            fetches.take_back(self._user, self._client_id, answer_bytes)
        return self._throttle(fetch_ms=fetch_ms, request_ms=request_ms)

    def fetch_bytes_max(self) -> int:
        """More than this cannot be fetched at once: it would be over the quota for ever."""
        return int(min(self._quotas.fetch.window_value_max(self._user, self._client_id), BYTES_MAX))

    def for_answer(self, request: Request, answer: Any) -> Any:
        """The answer of any other request, with its delay in it.

        The controller's answer to a forwarded request tells a delay of the controller's: the longer one counts.
        """
        if request.api_key in EXEMPT:
            self.exempt()
            return answer
        entity, told_ms = answer, 0
        if isinstance(answer, bytes):
            entity = decode_response(request.api_key, request.version, answer)[1]
            told_ms = to_milliseconds(getattr(entity, "throttle_time", NO_THROTTLE))
        delay_ms = self._throttle(request_ms=self._record_time(), controller_ms=told_ms)
        if delay_ms == told_ms or not hasattr(entity, "throttle_time"):
            return answer
        entity = dataclasses.replace(entity, throttle_time=milliseconds(delay_ms))
        if not isinstance(answer, bytes):
            return entity
        buffers = encode_response(request.api_key, request.version, request.correlation_id, entity)
        return b"".join(buffers)[_LENGTH_SIZE:]

    def exempt(self) -> None:
        """A request of another broker's: its time is counted, and nobody pays."""
        self._quotas.exempt_seconds += self._seconds()

    def _record_time(self) -> int:
        return self._quotas.request.record(self._user, self._client_id, self._seconds() * _PERCENT)

    def _seconds(self) -> float:
        """How long the event loop has worked for the request."""
        if self.step_seconds is not None:
            return self.step_seconds
        slot = self._slot
        returned_at: float | None = getattr(slot, "returned_at", None)  # not set: its handler is still at work
        return (self._quotas.stopwatch() if returned_at is None else returned_at) - slot.started_at

    def _throttle(self, *, request_ms: int, produce_ms: int = 0, fetch_ms: int = 0, controller_ms: int = 0) -> int:
        delay_ms = max(request_ms, produce_ms, fetch_ms, controller_ms)
        if delay_ms:
            if produce_ms > request_ms:
                self._quotas.produce.count_delay(delay_ms)
            elif fetch_ms > request_ms:
                self._quotas.fetch.count_delay(delay_ms)
            else:
                self._quotas.request.count_delay(delay_ms)
            self._slot.throttle(delay_ms)
        return delay_ms

    @coroutine
    def measured(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Await `work`, adding up what its steps take of the event loop between its waits."""
        self.step_seconds = 0.0
        stopwatch = self._quotas.stopwatch
        step: Callable[[Any], Any] = work.send
        given: Any = None
        while True:
            began_at = stopwatch()
            try:
                waits_for = step(given)
            except StopIteration as end:
                return end.value
            finally:
                self.step_seconds += stopwatch() - began_at
            try:
                given = yield waits_for
                step = work.send
            except BaseException as error:  # a cancellation is the coroutine's to handle
                given, step = error, work.throw
