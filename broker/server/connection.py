"""One client's connection: requests in, responses out in order, memory bounded in both directions.

No task per connection and none per request: the event loop calls in with bytes, complete requests go to the
dispatcher at once, and a response is sent when every one before it is.

A request other than Produce starts only when all earlier ones of its connection are answered, as Apache Kafka mutes a
channel; Produce may follow open Produce requests, up to a bound.  What cannot start yet is held, and the socket is no
longer read until it can.

A request takes the budget (queued.max.request.bytes) by the memory it got, which grows with the bytes that arrive: a
client that announces a large one and sends little of it holds 128 KiB, and while others wait it has to keep a pace.
Only large requests wait for the budget.  Small ones never do: they are bounded by OPEN_REQUESTS_MAX of
LARGE_REQUEST_BYTES, 3.2 MB of each connection.
"""

import asyncio
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

import structlog

from broker.common.buffers import Buffer
from broker.metrics.request_metrics import MALFORMED, TOO_LARGE, UNSUPPORTED
from broker.protocol.errors import MalformedFrameError
from broker.protocol.frames import Frame
from broker.server.large_request import LargeRequest
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

if TYPE_CHECKING:
    from broker.server.socket_server import ListenerEndpoint, SocketServer

log = structlog.get_logger(__name__)

LARGE_REQUEST_BYTES: Final = 32 * 1024  # from here on a request gets a buffer of its own, which the kernel fills
OPEN_REQUESTS_MAX: Final = (
    100  # the Java producer keeps 5, librdkafka pipelines thousands: the rest waits in its socket
)
WRITE_BUFFER_BYTES_HIGH: Final = 1 << 20  # a reader slower than this gets no further answers until it has read

_LENGTH: Final = Struct(">i")
_LENGTH_SIZE: Final = _LENGTH.size


class ServerConnection(asyncio.BufferedProtocol):
    """Made by the SocketServer for each accepted socket; gone when `connection_lost` returns."""

    __slots__ = (
        "_counted_bytes",
        "_held",
        "_is_blocked",
        "_is_closed",
        "_is_parsing",
        "_is_reading_paused",
        "_is_throttled",
        "_is_write_paused",
        "_large",
        "_open_bytes",
        "_received_at",
        "_server",
        "_slots",
        "_taken_at",
        "_transport",
        "_unsent_bytes",
        "context",
        "endpoint",
        "last_active_at",
    )

    _transport: asyncio.Transport
    context: RequestContext

    def __init__(self, server: "SocketServer", endpoint: "ListenerEndpoint") -> None:
        self._server = server
        self.endpoint = endpoint
        self.last_active_at = 0.0
        self._received_at = 0.0
        self._slots: deque[ResponseSlot] = deque()  # in the order of the requests; none of the first is filled
        self._open_bytes = 0  # of their requests
        self._counted_bytes = 0  # what the budget has counted of those
        self._held = b""  # received but not started: an incomplete request, or one that must wait, and what follows it
        self._large: LargeRequest | None = None  # the one that is being received, or is whole and waits for its turn
        self._is_parsing = False
        self._is_blocked = False  # a complete request waits for its turn
        self._is_reading_paused = False
        self._is_write_paused = False
        self._is_throttled = False
        self._unsent_bytes = 0
        self._taken_at = 0.0  # when the client has last taken something of what does not fit the socket
        self._is_closed = False

    # The event loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)
        self.last_active_at = self._server.now()
        refusal = self._server.admit(self)
        if refusal is not None:
            self._is_closed = True
            log.info("connection_refused", listener=self.endpoint.listener_name, reason=refusal)
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._server.forget(self)
        self._server.byte_budget.stop_waiting(self._go_on_soon)
        self._count_unsent(0)
        self._held = b""
        if self._large is not None:
            self._server.byte_budget.release(self._large.memory_bytes)
            self._large = None
        self._give_up_requests()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large.rest()
        return self._server.receive_buffer.after(self._held)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_closed:
            return
        self.last_active_at = self.context.received_at = self._server.now()
        self._received_at = self._server.stopwatch()
        if self._large is not None:
            self._large.filled_bytes += nbytes
            if self._large.is_full:
                self._go_on_with_large(self._large)
            return
        size = nbytes + len(self._held)
        self._held = b""
        self._parse(self._server.receive_buffer.view, size, is_owned=False)

    def eof_received(self) -> None:
        """A half-closed connection is closed, as Apache Kafka does: None lets the transport close itself."""

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._taken_at = self._server.now()
        self._count_unsent(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._count_unsent(0)
        self.last_active_at = self._server.now()
        self._go_on_soon()

    def _count_unsent(self, size_bytes: int) -> None:
        """Count an answer from the moment it does not fit the socket until it has been taken."""
        budget = self._server.answer_budget
        budget.release(self._unsent_bytes)
        budget.acquire(size_bytes)
        self._unsent_bytes = size_bytes

    # Requests in.

    def _parse(self, view: memoryview, end: int, is_owned: bool) -> None:
        """Start every complete request that may start; keep the rest."""
        position = 0
        size_max = self._server.request_bytes_max
        self._is_parsing = True
        while end - position >= _LENGTH_SIZE:
            (size,) = _LENGTH.unpack_from(view, position)
            if not 0 <= size <= size_max:
                self._refuse(TOO_LARGE if size > 0 else MALFORMED, f"a request of {size} bytes, of at most {size_max}")
                break
            start = position + _LENGTH_SIZE
            if start + size > end:
                if size > LARGE_REQUEST_BYTES:
                    position = self._begin_large(view, start, end, size)
                break
            if not self._start(view[start : start + size], is_owned, is_counted=False):
                self._block()
                break
            position = start + size
        self._is_parsing = False
        if self._is_closed:
            return
        if position < end:
            self._held = bytes(view[position:end])
        self._flush()
        self._count_open()

    def _start(self, request: memoryview, is_owned: bool, is_counted: bool) -> bool:
        """Hand a complete request to its handler; False when it has to wait, or the connection is being closed.

        `is_counted` says that the budget knows of its bytes already.
        """
        server = self._server
        try:
            frame = Frame(request, is_owned)
        except MalformedFrameError as error:
            self._refuse(MALFORMED, str(error))
            return False
        route = server.dispatcher.route(frame)
        if route is None:
            self._refuse(UNSUPPORTED, f"api key {frame.api_key} version {frame.version} is not offered")
            return False
        slots = self._slots
        if slots and not route.is_pipelined:
            self._flush()  # what was answered within this read needs no turn of its own
        if slots and not (route.is_pipelined and slots[-1].route.is_pipelined and len(slots) < OPEN_REQUESTS_MAX):
            return False
        if self._is_write_paused or self._is_throttled:
            return False
        size_bytes = len(request)
        if size_bytes > LARGE_REQUEST_BYTES and not is_counted and server.byte_budget.is_exhausted:
            return False
        if not route.has_schemas and not server.dispatcher.load_schemas(route, self._go_on_soon):
            return False
        self.endpoint.frames.value += 1
        slot = ResponseSlot(self, route, self._received_at, size_bytes)
        slots.append(slot)
        self._open_bytes += size_bytes
        server.dispatcher.start(route, frame, self.context, slot)
        return not self._is_closed

    def _begin_large(self, view: memoryview, start: int, end: int, size: int) -> int:
        """Give a large request memory of its own, if there is budget; returns up to where the bytes were taken.

        It takes none while it could not start: who reads no answers, or waits for one, does not hold what others need.
        """
        server = self._server
        self._flush()
        is_behind_another = bool(self._slots) and not self._slots[-1].route.is_pipelined
        if is_behind_another or self._is_write_paused or server.byte_budget.is_exhausted:
            self._block()
            return start - _LENGTH_SIZE
        self._large = LargeRequest(size, view[start:end], server.request_buffers.lend)
        server.byte_budget.acquire(self._large.memory_bytes)
        return end

    def _go_on_with_large(self, large: LargeRequest) -> None:
        """Its memory is full: it is whole, or needs more."""
        budget = self._server.byte_budget
        if large.is_whole:
            self._start_large(large)
            self._flush()
        elif budget.is_exhausted and not budget.may_overdraw(self._go_on_soon):
            self._block()
        else:
            budget.acquire(large.grow())

    def _start_large(self, large: LargeRequest) -> None:
        self._is_parsing = True
        is_started = self._start(large.buffer, is_owned=True, is_counted=True)
        self._is_parsing = False
        if is_started:
            self._counted_bytes += large.memory_bytes
            self._large = None
        elif not self._is_closed:
            self._block()

    def _block(self) -> None:
        """Read no further until the request that waits can start."""
        if self._is_closed:
            return
        self._is_blocked = True
        if not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = True
            self._transport.pause_reading()
        if self._server.byte_budget.is_exhausted:
            self._server.byte_budget.wait(self._go_on_soon)

    def _go_on_soon(self) -> None:
        if self._is_blocked and not self._is_closed:
            self._server.run_soon(self)

    def go_on(self) -> None:
        """Send what is answered and start what had to wait.  The server calls this in a turn of its own."""
        if self._is_closed:
            return
        self._flush()
        if not self._is_blocked or self._is_closed or self._is_throttled:
            return
        self._is_blocked = False
        if self._large is not None and self._large.is_full:
            self._go_on_with_large(self._large)
        elif self._held:
            held = memoryview(bytearray(self._held))
            self._held = b""
            self._parse(held, len(held), is_owned=True)
        if self._is_reading_paused and not self._is_blocked and not self._is_closed:
            self._is_reading_paused = False
            self.last_active_at = self._server.now()  # it could not send before
            if self._large is not None:
                self._large.begin_pace()
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def throttle(self, delay_ms: int) -> None:
        """Start and read nothing for so long; what has been started before goes on."""
        if self._is_closed:
            return
        self._is_throttled = True
        self._block()
        self._server.throttle(self, delay_ms)

    def end_throttle(self) -> None:
        self._is_throttled = False
        self._go_on_soon()

    # Responses out.

    def on_slot_filled(self, slot: ResponseSlot) -> None:
        slot.filled_at = self._server.stopwatch()
        if self._is_parsing or self._is_closed or self._slots[0] is not slot:
            return  # sent at the end of this read, or after those before it
        if len(self._slots) > 1:
            self._server.run_soon(self)  # its neighbours are probably filled in this turn, too: one write for all
        else:
            self._flush()

    def _flush(self) -> None:
        slots = self._slots
        if not slots or not slots[0].is_filled or self._is_closed:
            return
        sent_at = self._server.stopwatch()
        answered_bytes = 0
        buffers: list[Buffer] = []
        while slots and slots[0].is_filled:
            slot = slots.popleft()
            buffers += slot.buffers
            answered_bytes += slot.size_bytes
            slot.route.metrics.observe(slot.received_at, slot.started_at, slot.returned_at, slot.filled_at, sent_at)
        if buffers and not self._transport.is_closing():
            self._transport.writelines(buffers)
        self._open_bytes -= answered_bytes
        if not self._is_parsing:
            self._count_open()
        if self._is_blocked:
            self._server.run_soon(self)

    def _count_open(self) -> None:
        """Tell the budget what requests that were started or answered have changed."""
        more = self._open_bytes - self._counted_bytes
        self._counted_bytes = self._open_bytes
        budget = self._server.byte_budget
        if more > 0:
            budget.acquire(more)
        elif more < 0:
            budget.release(-more)
            budget.end_overdraft(self._go_on_soon)

    # Ends.

    def _refuse(self, reason: str, detail: str) -> None:
        log.info("request_refused", reason=reason, detail=detail, **self.identity())
        self.close(reason)

    def close(self, reason: str) -> None:
        """Close after what is written has left; open requests are given up."""
        if self._is_closed:
            return
        self._flush()
        self._end(reason)
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, whatever is still to be sent."""
        if not self._is_closed:
            self._end(reason)
        self._transport.abort()

    def _end(self, reason: str) -> None:
        self._is_closed = True
        self._server.byte_budget.stop_waiting(self._go_on_soon)
        self._server.metrics.count_closed(reason)
        log.debug("connection_closed", reason=reason, **self.identity())
        self._give_up_requests()

    def _give_up_requests(self) -> None:
        slots, self._slots = self._slots, deque()
        self._open_bytes = 0
        self._count_open()
        for slot in slots:
            if not slot.is_filled and slot.on_closed is not None:
                slot.on_closed()

    @property
    def has_open_requests(self) -> bool:
        """Whether it is our turn: to answer, or to let a throttled client go on."""
        return bool(self._slots) or self._is_throttled

    def has_stalled(self, silent_since: float, *, do_others_wait: bool) -> bool:
        """Whether the client keeps memory of ours and does not do its part; asked about at every sweep.

        Its part is to send on what it has begun, in some pace if others wait for memory, and to read its answers if it
        sends more.
        """
        self._note_taken()
        large = self._large
        if large is not None and self._is_write_paused and self._taken_at < silent_since:
            return True
        if self._is_reading_paused:
            return False
        if large is not None and large.is_slow() and do_others_wait:
            return True
        return (large is not None or bool(self._held)) and self.last_active_at < silent_since

    def _note_taken(self) -> None:
        """Whether a slow reader has taken anything since the last sweep."""
        if self._is_write_paused:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes < self._unsent_bytes:
                self._taken_at = self._server.now()
                self._count_unsent(unsent_bytes)

    def identity(self) -> dict[str, str]:
        """For log lines."""
        return {"listener": self.endpoint.listener_name, "connection": self.context.connection_id}

    def addresses(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The peer's address and ours."""
        return _address(self._transport, "peername"), _address(self._transport, "sockname")

    def set_socket_options(self) -> None:
        """Answers are whole when they are written: nothing is gained by waiting for more (Nagle)."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int]:
    address = transport.get_extra_info(name) or ("", 0)
    return str(address[0]).removeprefix("::ffff:"), int(address[1])  # one client, through a socket of both families
