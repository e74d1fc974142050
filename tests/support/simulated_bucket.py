"""A leader whose followers take records from a bucket: the leader is real, bucket and followers are simulated.

A record is at a follower a fixed time after the leader has appended it, and the follower's next fetch says so: nothing
else is left of the path through the bucket.  Time is that of the loop.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.common.errors import ErrorCode
from broker.replication.fetch_manager import FetchAnswer
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from tests.support.builders import ReplicaWorld
from tests.support.recording_leader_wal import RecordingLeaderWal


class BucketWorld(ReplicaWorld):
    """Broker 1, leading through a bucket.  The controller agrees to every ISR a moment after it was proposed."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(directory, properties)
        self.replicas.context.alter_partition_manager = self
        self.proposed: list[tuple[int, ...]] = []
        self.wals: dict[int, RecordingLeaderWal] = {}
        self.register_brokers(1, 2, 3)

    @property  # type: ignore[override]
    def now_ms(self) -> int:
        return 1_000_000 + round(self._loop.time() * 1000)

    @now_ms.setter
    def now_ms(self, value: int) -> None: ...

    def lead(self, **topic: Any) -> None:
        """A topic `t` led here, all of its partitions through the bucket."""
        topic.setdefault("replicas", (1, 2, 3))
        partitions = topic.setdefault("partitions", 1)
        self.create_topic("t", **topic)
        for index in range(partitions):
            self.wals[index] = self.partition("t", index).leader_wal = RecordingLeaderWal()

    # As the AlterPartitionManager

    def submit(self, partition: Any, proposal: Any, on_complete: Any) -> None:
        isr = tuple(member.broker_id for member in proposal.isr)
        self.proposed.append(isr)

        def agree() -> None:
            self.place(isr=isr)

        self._loop.call_later(0.005, agree)


class BucketFollower:
    """Another broker that follows partitions of `t` with a session, as KIP-1176's follower does."""

    def __init__(
        self,
        world: BucketWorld,
        broker_id: int,
        *,
        pipeline_s: float = 0.06,
        partitions: Sequence[int] = (0,),
        has_session: bool = True,
        max_wait_ms: int = 500,
    ) -> None:
        self.world = world
        self.broker_id = broker_id
        self.pipeline_s = pipeline_s
        self.has_session = has_session
        self.params = FetchParams(17, broker_id, 10 + broker_id, max_wait_ms)
        self.leader_epoch = 0
        self.is_bucket_open = True
        self.ends = dict.fromkeys(partitions, 0)
        self.high_watermarks = dict.fromkeys(partitions, -1)
        self.answered: list[tuple[float, list[FetchPartitionResult]]] = []
        self._arriving = dict.fromkeys(partitions, 0)
        self._told: dict[int, tuple[int, int]] = {}  # what the session knows of the request
        self._session: tuple[int, int] = (0, 0)  # id, and the next epoch
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    # The bucket

    def look(self) -> None:
        """What the leader has by now is on its way."""
        for index in self.ends:
            end_offset = self.world.partition("t", index).log.log_end_offset
            if self.is_bucket_open and end_offset > self._arriving[index]:
                self._arriving[index] = end_offset
                self._loop.call_later(self.pipeline_s, self._append, index, end_offset)

    def _append(self, index: int, end_offset: int) -> None:
        self.ends[index] = max(self.ends[index], end_offset)

    # Fetches

    def start(self) -> None:
        self._task = self._loop.create_task(self._follow())

    async def stop(self) -> None:
        assert self._task is not None
        if self._task.done():
            await self._task  # it has failed
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            await self.fetch()
            now = self._loop.time()
            assert len(self.answered) < 100 or self.answered[-100][0] < now, "a loop of fetches that takes no time"

    async def fetch(self) -> list[FetchPartitionResult]:
        """One fetch; what its answer tells."""
        answer = await self.start_fetch()
        if answer.error is not ErrorCode.none:
            self._session, self._told = (0, 0), {}
            return []
        self._session = (answer.session_id, self._session[1] + 1) if self.has_session else (0, 0)
        self.answered.append((self._loop.time(), list(answer.results)))
        for result in answer.results:
            index = result.partition
            if result.error is ErrorCode.none and result.diverging_epoch is None:
                self.high_watermarks[index] = min(result.high_watermark, self.ends[index])
                if result.size_bytes:
                    self._append(index, self.world.partition("t", index).log.log_end_offset)
        return list(answer.results)

    def fetch_later(self) -> "asyncio.Task[list[FetchPartitionResult]]":
        """As `fetch`; the request is on its way at the next turn of the loop."""
        return self._loop.create_task(self.fetch())

    def start_fetch(self) -> "asyncio.Future[FetchAnswer]":
        """What of the request has changed goes into it; all without a session."""
        session_id, epoch = self._session
        requests = []
        for index, offset in self.ends.items():
            if not self.has_session or epoch == 0 or self._told.get(index) != (offset, self.leader_epoch):
                self._told[index] = (offset, self.leader_epoch)
                requests.append(
                    FetchPartition(
                        "t", index, offset, 1 << 20, current_leader_epoch=self.leader_epoch, log_start_offset=0
                    )
                )
        context = self.world.sessions.new_context(
            session_id=session_id,
            session_epoch=epoch if self.has_session else -1,
            replica_id=self.broker_id,
            uses_topic_ids=False,
            partitions=requests,
            forgotten=(),
        )
        answered: asyncio.Future[FetchAnswer] = self._loop.create_future()
        if context.source is None:
            answered.set_result(context.answer(()))
        else:

            def on_complete(results: Sequence[FetchPartitionResult]) -> None:
                answer = context.answer(results)
                self.world.replicas.count_bytes_out(answer.results, self.broker_id)
                if not answered.done():
                    answered.set_result(answer)

            self.world.replicas.fetch(self.params, context.source, on_complete)
        return answered

    # What became of it

    def fetches_between(self, start_s: float, end_s: float) -> int:
        return sum(start_s <= at < end_s for at, _ in self.answered)

    @property
    def records_bytes(self) -> int:
        return sum(result.size_bytes for _, results in self.answered for result in results)
