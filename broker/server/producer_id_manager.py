"""Ids for idempotent producers, from blocks that the controller hands out (Kafka's RPCProducerIdManager).

A block is used by one broker only and never again, not even after a crash: ids are unique over the cluster's life.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from broker.common.errors import CoordinatorLoadInProgressError, ErrorCode
from broker.common.identifiers import BrokerId
from broker.common.tasks import BackgroundTasks
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.node_to_controller_channel import NodeToControllerChannel

log = structlog.get_logger(__name__)

PREFETCH_AT: Final = 0.9  # of a block used: time to ask for the next
RETRY_BACKOFF_MS: Final = 50
ALLOCATE_PRODUCER_IDS_VERSION: Final = 0
WAIT_FOR_BLOCK_MS: Final = 1_000


class ProducerIdManager:
    """Hands out ids one by one; the next block is asked for before the current one ends."""

    def __init__(
        self,
        channel: NodeToControllerChannel,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        *,
        wait_ms: int = WAIT_FOR_BLOCK_MS,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._wait_ms = wait_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._current = range(0)
        self._next_id = 0
        self._following: range | None = None
        self._request: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks("producer-ids")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ProducerIdManager"]:
        async with self._tasks:
            yield self

    async def generate_producer_id(self) -> int:
        """A producer id nobody else has.

        Raises CoordinatorLoadInProgressError, which clients retry, when no block arrives within a second.
        """
        producer_id = self._take()
        if producer_id is not None:
            return producer_id
        request = self._ensure_requested()
        await asyncio.wait({request}, timeout=self._wait_ms / 1000)
        producer_id = self._take()
        if producer_id is None:
            raise CoordinatorLoadInProgressError("no block of producer ids from the controller yet")
        return producer_id

    def _take(self) -> int | None:
        if self._next_id >= self._current.stop and self._following is not None:
            self._current, self._following = self._following, None
            self._next_id = self._current.start
        if self._next_id >= self._current.stop:
            return None
        producer_id = self._next_id
        self._next_id += 1
        if self._following is None and self._next_id - self._current.start >= PREFETCH_AT * len(self._current):
            self._ensure_requested()
        return producer_id

    def _ensure_requested(self) -> "asyncio.Task[None]":
        if self._request is None or self._request.done():
            self._request = self._tasks.start("next-block", self._request_block())
        return self._request

    async def _request_block(self) -> None:
        """Ask until the controller gives a block; a stale epoch means that our registration is on its way."""
        while True:
            schema = RequestSchema.of(ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_PRODUCER_IDS_VERSION)
            request = schema.AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            response = await self._channel.send(request)
            if response.error_code == ErrorCode.none:
                start, count = int(response.producer_id_start), int(response.producer_id_len)
                self._following = range(start, start + count)
                log.info("producer_id_block", first=start, count=count)
                return
            log.info("producer_id_block_refused", error=response.error_code.name)
            await asyncio.sleep(self._retry_backoff_ms / 1000)
