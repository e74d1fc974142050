"""Which requests are offered, in which versions, and the function that answers each.

A handler says with a decorator what it handles; nothing registers itself globally.  A registry is built from a list
of modules, one for the listeners of the broker and one for those of the controller.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeVar

from broker.common.errors import KafkaError
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import Request

__all__ = [
    "ApiHandler",
    "ApiRegistry",
    "Frame",
    "handles",
    "handles_frames",
]

OnError = Callable[[Request, KafkaError], Any]
HandlerFunction = TypeVar("HandlerFunction", bound=Callable[..., Any])

_MARK: Final = "__api_handler__"
_REQUEST_PARAMETERS: Final = 2  # request, context
_FRAME_PARAMETERS: Final = 3  # frame, context, slot


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """One API: what is offered and who answers."""

    api_key: ApiKey
    versions: range
    function: Callable[..., Any]
    advertised_from: int
    takes_frames: bool
    is_coroutine: bool
    is_pipelined: bool
    accepts_unlisted_versions: bool
    is_forwarded: bool
    on_error: OnError | None

    @property
    def service_types(self) -> tuple[type, ...]:
        """The types of the parameters that are injected, in order."""
        hints = typing.get_type_hints(self.function)
        skipped = _FRAME_PARAMETERS if self.takes_frames else _REQUEST_PARAMETERS
        names = list(inspect.signature(self.function).parameters)[skipped:]
        return tuple(typing.get_origin(hints[name]) or hints[name] for name in names)

    @property
    def documentation(self) -> str:
        return inspect.getdoc(self.function) or ""


def handles(
    api_key: ApiKey,
    *,
    versions: range,
    on_error: OnError | None = None,
    is_forwarded: bool = False,
) -> Callable[[HandlerFunction], HandlerFunction]:
    """The decorated function answers decoded requests: `(request, context, *services) -> response entity or None`.

    It may be a coroutine, or return a Future when it has to wait, which is cancelled if the connection closes.  It
    may return bytes: a response that is encoded already, header included, as the controller's answers to forwarded
    requests are.  Services are injected by the annotated types.
    A KafkaError becomes the answer that `on_error` builds, or one in which every error field carries its code.
    `is_forwarded`: the controller does the work, so the versions told to clients are also bounded by its own.
    """
    return _marking(
        lambda function: ApiHandler(
            api_key=api_key,
            versions=versions,
            function=function,
            advertised_from=versions.start,
            takes_frames=False,
            is_coroutine=inspect.iscoroutinefunction(function),
            is_pipelined=False,
            accepts_unlisted_versions=False,
            is_forwarded=is_forwarded,
            on_error=on_error,
        )
    )


def handles_frames(
    api_key: ApiKey,
    *,
    versions: range,
    advertised_from: int | None = None,
    accepts_unlisted_versions: bool = False,
    on_error: OnError | None = None,
) -> Callable[[HandlerFunction], HandlerFunction]:
    """The decorated function answers raw frames: `(frame, context, slot, *services) -> None`, now or later.

    The hot path: no kio, no task, no future.  `advertised_from` below the first version is told to clients but closes
    the connection when used (KIP-896: librdkafka before 2.11.1 wants to see Produce from 0).
    """
    return _marking(
        lambda function: ApiHandler(
            api_key=api_key,
            versions=versions,
            function=function,
            advertised_from=versions.start if advertised_from is None else advertised_from,
            takes_frames=True,
            is_coroutine=False,
            # Kafka mutes a channel while a request is open; we let Produce follow Produce, so that the wait for
            # replication does not stop a pipelining producer.  Order per partition is kept: appends are synchronous.
            is_pipelined=api_key is ApiKey.PRODUCE,
            accepts_unlisted_versions=accepts_unlisted_versions,
            is_forwarded=False,
            on_error=on_error,
        )
    )


def _marking(make: Callable[[HandlerFunction], ApiHandler]) -> Callable[[HandlerFunction], HandlerFunction]:
    def decorate(function: HandlerFunction) -> HandlerFunction:
        setattr(function, _MARK, make(function))
        return function

    return decorate


class ApiRegistry:
    """The APIs of one kind of listener, by key."""

    def __init__(self, handlers: Iterable[ApiHandler]) -> None:
        self._handlers: dict[int, ApiHandler] = {}
        for handler in sorted(handlers, key=lambda each: each.api_key):
            other = self._handlers.setdefault(handler.api_key, handler)
            assert other is handler, f"{handler.api_key.title} has two handlers"

    @classmethod
    def from_modules(cls, modules: Iterable[ModuleType]) -> "ApiRegistry":
        """All marked functions of these modules."""
        found = (getattr(value, _MARK, None) for module in modules for value in vars(module).values())
        return cls({handler.api_key: handler for handler in found if isinstance(handler, ApiHandler)}.values())

    @classmethod
    def from_package(cls, package: ModuleType) -> "ApiRegistry":
        """All marked functions of the modules a package imports."""
        prefix = package.__name__ + "."
        return cls.from_modules(
            value
            for value in vars(package).values()
            if isinstance(value, ModuleType) and value.__name__.startswith(prefix)
        )

    def get(self, api_key: int) -> ApiHandler | None:
        return self._handlers.get(api_key)

    def find(self, api_key: int, version: int) -> ApiHandler | None:
        """The handler of exactly this version, or one that judges versions itself."""
        handler = self._handlers.get(api_key)
        if handler is None or not (version in handler.versions or handler.accepts_unlisted_versions):
            return None
        return handler

    def __iter__(self) -> Iterator[ApiHandler]:
        return iter(self._handlers.values())

    def __len__(self) -> int:
        return len(self._handlers)
