"""From a frame to its handler and back: find, call, time, and turn errors into codes.  The only place that does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from kio.serial.errors import SerialError

from broker.common.buffers import Buffer
from broker.common.disk import DiskExecutor
from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError, UnsupportedVersionError
from broker.common.tasks import BackgroundTasks
from broker.metrics.request_metrics import FAILED, MALFORMED, REFUSED_SILENTLY, UNSUPPORTED, RequestMetrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_counts import error_counts
from broker.protocol.error_responses import error_response
from broker.protocol.errors import ProtocolError
from broker.protocol.frames import Frame
from broker.protocol.requests import (
    Request,
    decode_request,
    encode_response,
    has_request_header_tags,
    load_schemas,
)
from broker.server.api_registry import ApiHandler, ApiRegistry
from broker.server.quota_managers import QuotaManagers
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

log = structlog.get_logger(__name__)

_LENGTH_SIZE: Final = 4


class Route:
    """One API at one version, with everything looked up that can be."""

    __slots__ = (
        "api_key",
        "call",
        "handler",
        "has_header_tags",
        "has_schemas",
        "is_pipelined",
        "metrics",
        "services",
        "takes_frames",
        "version",
    )

    def __init__(
        self, handler: ApiHandler, version: int, services: tuple[object, ...], metrics: RequestMetrics
    ) -> None:
        self.handler = handler
        self.api_key = handler.api_key
        self.version = version
        self.call: Callable[..., Any] = handler.function
        self.services = services
        self.is_pipelined = handler.is_pipelined
        self.takes_frames = handler.takes_frames
        # Only frame handlers look at it; asking for all the others would import every schema at the start.
        self.has_header_tags = (
            handler.takes_frames and version in handler.versions and has_request_header_tags(handler.api_key, version)
        )
        self.has_schemas = handler.takes_frames  # those read by hand need none
        self.metrics = metrics.route(handler.api_key.title, version)


class Dispatcher:
    """Calls the handlers of one registry with the services they ask for by type.

    A missing or ambiguous service is a TypeError at construction: a broker that starts can answer.  The registry
    itself is a service, too.  `quotas` bind the clients of these APIs; without any, nobody is bound.
    """

    def __init__(
        self,
        registry: ApiRegistry,
        services: Iterable[object],
        metrics: RequestMetrics,
        disk: DiskExecutor | None = None,
        quotas: QuotaManagers | None = None,
    ) -> None:
        """Schemas are loaded in a thread of `disk`, or without one in the loop."""
        self.registry = registry
        self.metrics = metrics
        self._stopwatch = metrics.stopwatch
        self._quotas = quotas
        self._disk = disk
        self._loading: dict[Route, list[Callable[[], None]]] = {}  # and whom to call then
        self._tasks = BackgroundTasks("request")
        available = [*services, registry]
        self._services = {handler.api_key: _services_of(handler, available) for handler in registry}
        self._routes: dict[tuple[int, int], Route] = {
            (handler.api_key, version): Route(handler, version, self._services[handler.api_key], metrics)
            for handler in registry
            for version in handler.versions
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Dispatcher"]:
        """On leaving, handlers that still wait are cancelled; their clients see the connection close."""
        try:
            yield self
        finally:
            await self._tasks.cancel_all()

    def route(self, frame: Frame) -> Route | None:
        """Who answers this frame; None for what is not offered, which closes the connection as Apache Kafka does."""
        route = self._routes.get((frame.api_key, frame.version))
        if route is None:
            handler = self.registry.find(frame.api_key, frame.version)
            if handler is not None:  # it judges versions itself; not kept, the version is the client's to choose
                route = Route(handler, handler.versions[-1], self._services[handler.api_key], self.metrics)
                route.has_header_tags = False
        return route

    def load_schemas(self, route: Route, on_loaded: Callable[[], None]) -> bool:
        """Whether requests of this route may start now; if not, `on_loaded` is called when they may.

        The first request waits for its schemas, and only it does: loading them in the loop would stop all clients.
        """
        if self._disk is None:
            route.has_schemas = True
            return True
        waiting = self._loading.get(route)
        if waiting is None:
            waiting = self._loading[route] = []
            loading = self._disk.submit(load_schemas, route.api_key, route.version)
            loading.add_done_callback(lambda loaded: self._on_loaded(route, loaded))
        waiting.append(on_loaded)
        return False

    def _on_loaded(self, route: Route, loaded: "asyncio.Future[None]") -> None:
        error = None if loaded.cancelled() else loaded.exception()
        if error is not None:
            log.warning("schemas_not_loaded", api=route.api_key.title, version=route.version, exc_info=error)
        route.has_schemas = True  # what went wrong is seen again, and answered, when the request is read
        for on_loaded in self._loading.pop(route):
            on_loaded()

    def start(self, route: Route, frame: Frame, context: RequestContext, slot: ResponseSlot) -> None:
        """Begin a request.  The slot is filled now or later, or its connection is closed."""
        slot.route = route
        slot.started_at = self._stopwatch()
        quotas = self._quotas
        if quotas is not None and quotas.is_configured:
            slot.charge = quotas.charge_of(frame, context, slot)
        try:
            if route.takes_frames:
                if route.has_header_tags:
                    frame.skip_header_tags()
                route.call(frame, context, slot, *route.services)
            else:
                self._start_decoded(route, decode_request(frame.buffer), context, slot)
        except ProtocolError as error:
            _refuse(slot, frame, error)
        except Exception as error:  # a defect answers one request and harms no other
            self._fail_frame(route, frame, slot, error)
        slot.returned_at = self._stopwatch()

    def _start_decoded(self, route: Route, request: Request, context: RequestContext, slot: ResponseSlot) -> None:
        name = f"{route.api_key.name.lower()}:{context.connection_id}"
        if route.handler.is_coroutine:
            work = self._answer_later(route, request, slot, lambda: self._measured_call(route, request, context, slot))
            slot.on_closed = self._tasks.start(name, work).cancel
            return
        try:
            entity = route.call(request, context, *route.services)
        except Exception as error:
            entity = self._error_entity(route.handler, request, error)
        if isinstance(entity, asyncio.Future):  # it waits, and whoever fills it is not at work for this request
            self._tasks.start(name, self._answer_later(route, request, slot, lambda: entity))
            slot.on_closed = entity.cancel
            return
        self._answer(route.handler, request, entity, slot)

    @staticmethod
    def _measured_call(route: Route, request: Request, context: RequestContext, slot: ResponseSlot) -> Awaitable[Any]:
        work = route.call(request, context, *route.services)
        return work if slot.charge is None else slot.charge.measured(work)

    async def _answer_later(
        self, route: Route, request: Request, slot: ResponseSlot, begin: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            entity = await begin()
        except ProtocolError as error:  # the controller does not know this version of a forwarded request
            log.info("unsupported_request", api=request.api_key.title, version=request.version, error=str(error))
            slot.close_connection(UNSUPPORTED)
            return
        except Exception as error:
            entity = self._error_entity(route.handler, request, error)
        try:
            self._answer(route.handler, request, entity, slot)
        except Exception:
            log.exception("request_not_answered", api=request.api_key.title, version=request.version)
            slot.close_connection(FAILED)

    def _answer(self, handler: ApiHandler, request: Request, entity: Any, slot: ResponseSlot) -> None:
        if slot.charge is not None:
            entity = slot.charge.for_answer(request, entity)
        if entity is None:
            slot.send_nothing()
            return
        if isinstance(entity, bytes):  # the controller's response to a forwarded request, header included
            slot.send([len(entity).to_bytes(_LENGTH_SIZE, "big"), entity])
            return
        slot.send(self._encode(handler, request, entity))

    def _encode(self, handler: ApiHandler, request: Request, entity: Any) -> list[Buffer]:
        try:
            buffers = encode_response(request.api_key, request.version, request.correlation_id, entity)
        except (AssertionError, SerialError, TypeError, ValueError, AttributeError, KeyError) as error:
            entity = self._error_entity(handler, request, error)
            buffers = encode_response(request.api_key, request.version, request.correlation_id, entity)
        for code, count in error_counts(entity).items():
            self.metrics.count_error(request.api_key.title, ErrorCode(code).name.upper(), count)
        return buffers

    def _error_entity(self, handler: ApiHandler, request: Request, error: Exception) -> Any:
        """The answer to a request whose handler raised."""
        if not isinstance(error, KafkaError):
            self._report_unexpected(request.api_key, request.version, error)
            error = KafkaError("The server experienced an unexpected error when processing the request.")
        if handler.on_error is not None:
            try:
                return handler.on_error(request, error)
            except Exception as second:  # the error answer itself is broken: the generic one still says the code
                self._report_unexpected(request.api_key, request.version, second)
        return error_response(request, error.code, error.message)

    def _fail_frame(self, route: Route, frame: Frame, slot: ResponseSlot, error: Exception) -> None:
        """A handler of raw frames raised: decode the request after all, to answer with the error."""
        if slot.is_filled:
            self._report_unexpected(route.api_key, frame.version, error)
            return
        try:
            request = decode_request(frame.buffer)
        except ProtocolError as refusal:
            _refuse(slot, frame, refusal)
            return
        entity = self._error_entity(route.handler, request, error)
        if request.api_key is ApiKey.PRODUCE and request.body.acks == 0:
            slot.close_connection(REFUSED_SILENTLY)
        else:
            self._answer(route.handler, request, entity, slot)

    def _report_unexpected(self, api_key: ApiKey, version: int, error: Exception) -> None:
        self.metrics.unexpected_errors.labels(api_key.title).increment()
        log.error("request_failed", api=api_key.title, version=version, exc_info=error)

    async def dispatch_envelope(self, inner_frame: Buffer, context: RequestContext) -> bytes:
        """The response (header and body, no length) to a request that came inside an Envelope (KIP-590).

        UnsupportedVersionError for what is not offered here, InvalidRequestError for what cannot be forwarded or
        does not decode: the Envelope itself answers those.
        """
        try:
            request = decode_request(inner_frame)
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from error
        handler = self.registry.find(request.api_key, request.version)
        if handler is None:
            raise UnsupportedVersionError(f"{request.api_key.title} {request.version} is not offered here")
        if handler.takes_frames or request.api_key is ApiKey.ENVELOPE:
            raise InvalidRequestError(f"{request.api_key.title} cannot be forwarded")
        try:
            entity = handler.function(request, context, *self._services[handler.api_key])
            if isinstance(entity, Awaitable):
                entity = await entity
        except Exception as error:
            entity = self._error_entity(handler, request, error)
        return b"".join(self._encode(handler, request, entity))[_LENGTH_SIZE:]


def _refuse(slot: ResponseSlot, frame: Frame, error: ProtocolError) -> None:
    log.info("malformed_request", api_key=frame.api_key, version=frame.version, error=str(error))
    slot.close_connection(MALFORMED)


def _services_of(handler: ApiHandler, available: list[object]) -> tuple[object, ...]:
    services = []
    for wanted in handler.service_types:
        exact = [service for service in available if type(service) is wanted]
        found = exact or [service for service in available if isinstance(service, wanted)]
        if len(found) != 1:
            problem = "no service" if not found else f"{len(found)} services"
            raise TypeError(f"{handler.function.__qualname__} wants a {wanted.__qualname__}: {problem} of that type")
        services.append(found[0])
    return tuple(services)
