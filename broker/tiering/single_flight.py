"""SingleFlight: what several want at once is fetched once."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from broker.common.errors import KafkaError
from broker.common.tasks import BackgroundTasks
from broker.tiering.errors import RemoteStorageError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Fetches under way, by what they fetch.

    One that has begun goes on when nobody waits for it any more: a client whose fetch has expired comes back for it.
    So there are never more than were asked for and have not ended, and each fetch has its own deadline.
    """

    def __init__(self, tasks: BackgroundTasks) -> None:
        """`tasks` are cancelled when their owner ends; whoever waits is told `RemoteStorageError` then."""
        self._tasks = tasks
        self._flights: dict[K, asyncio.Future[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._flights

    def __len__(self) -> int:
        return len(self._flights)

    async def run(self, key: K, fetch: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The result of the fetch under way for `key`, or else of `fetch`; its error for all who wait."""
        return await asyncio.shield(self._flights.get(key) or self.start(key, fetch))

    def start(self, key: K, fetch: Callable[[], Coroutine[Any, Any, V]]) -> "asyncio.Future[V]":
        """Begin without waiting; there is none under way for `key`."""
        assert key not in self._flights, key
        landing: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._flights[key] = landing

        def landed(_: object) -> None:
            del self._flights[key]
            if not landing.done():
                landing.set_exception(RemoteStorageError("remote storage is being closed"))
                landing.exception()  # nobody may wait for it

        self._tasks.start("fetch", self._fly(fetch, landing)).add_done_callback(landed)
        return landing

    async def _fly(self, fetch: Callable[[], Coroutine[Any, Any, V]], landing: "asyncio.Future[V]") -> None:
        try:
            landing.set_result(await fetch())
        except Exception as error:
            landing.set_exception(error)
            landing.exception()  # nobody may wait for it
            if not isinstance(error, KafkaError):
                raise
