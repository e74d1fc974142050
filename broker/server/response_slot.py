"""The place of one response in the order of its connection's responses."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode

if TYPE_CHECKING:
    from broker.server.request_charge import RequestCharge

NOT_FILLED: Final[list[Buffer]] = []  # of all open slots; never changed


class ResponseSlotOwner(Protocol):
    """The connection: keeps its slots in the order of the requests and sends the filled prefix."""

    def on_slot_filled(self, slot: "ResponseSlot") -> None: ...
    def close(self, reason: str) -> None:
        """End the connection; `reason` is counted if it is one of the known ones, and logged."""

    def throttle(self, delay_ms: int) -> None: ...


class ResponseSlot:
    """Filled exactly once, now or later; what arrives after the connection has gone is dropped.

    `on_closed`, when set, is called once if the connection dies while the slot is still open: a parked operation
    or a task is cancelled there.
    """

    __slots__ = (
        "_owner",
        "buffers",
        "charge",
        "filled_at",
        "is_filled",
        "on_closed",
        "received_at",
        "returned_at",
        "route",
        "size_bytes",
        "started_at",
    )

    started_at: float  # the stopwatch's readings, for the phases of the request; set by who passes it on
    returned_at: float
    filled_at: float

    def __init__(
        self, owner: ResponseSlotOwner, route: Any = None, received_at: float = 0.0, size_bytes: int = 0
    ) -> None:
        self._owner = owner
        self.route = route  # what the dispatcher measures this request under
        self.received_at = received_at
        self.size_bytes = size_bytes  # of the request: the byte budget counts it until the response is sent
        self.is_filled = False
        self.charge: RequestCharge | None = None  # while there are quotas
        self.on_closed: Callable[[], object] | None = None
        self.buffers: list[Buffer] = NOT_FILLED

    def send(self, buffers: list[Buffer]) -> None:
        """A whole response, with its length; the buffers must not be touched again."""
        assert not self.is_filled, "a response slot is filled once"
        self.is_filled = True
        self.on_closed = None  # a parked fetch knows its slot: a circle would keep its answer until the next collection
        self.buffers = buffers
        self._owner.on_slot_filled(self)

    def count_error(self, error: int, by: int = 1) -> None:
        """Count errors told to the client; handlers of decoded requests are counted without."""
        if self.route is not None:
            self.route.metrics.count_error(ErrorCode(error).name.upper(), by)

    def throttle(self, delay_ms: int) -> None:
        """The connection reads nothing more until this is over and the answer has left (KIP-219)."""
        self._owner.throttle(delay_ms)

    def send_nothing(self) -> None:
        """The request has no response (Produce with acks=0)."""
        self.send([])

    def close_connection(self, reason: str) -> None:
        """The only way to report an error to a client that waits for no response."""
        self._owner.close(reason)
