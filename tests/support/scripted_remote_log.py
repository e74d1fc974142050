"""Remote storage as `broker.replication` sees it, which answers what and when a test says."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from broker.common.identifiers import TopicPartition
from broker.log.log_segment import TimestampAndOffset
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteFetch, RemoteLogState, RemoteRecords


class OffsetQuestion(NamedTuple):
    partition: TopicPartition
    timestamp: int
    starting_offset: int
    answer: "asyncio.Future[TimestampAndOffset | None]"


class StateQuestion(NamedTuple):
    partition: TopicPartition
    epoch: int
    offset: int
    answer: "asyncio.Future[RemoteLogState]"


class ScriptedRemoteLog:
    """Keeps what it was asked; `refusal` is raised at the next question instead.  `states` answers questions for the
    state before an offset at once, while it is there, and `offsets` those for offsets of timestamps."""

    def __init__(self) -> None:
        self.is_fetch_quota_exceeded = False
        self.fetches: list[tuple[RemoteFetch, asyncio.Future[RemoteRecords]]] = []
        self.questions: list[OffsetQuestion] = []
        self.state_questions: list[StateQuestion] = []
        self.states: Callable[[Partition, int, int], RemoteLogState] | None = None
        self.offsets: Callable[[int, int], TimestampAndOffset | None] | None = None
        self.refusal: Exception | None = None

    def fetch(self, fetch: RemoteFetch) -> "asyncio.Future[RemoteRecords]":
        self._refuse()
        records: asyncio.Future[RemoteRecords] = asyncio.get_running_loop().create_future()
        self.fetches.append((fetch, records))
        return records

    def find_offset(
        self, partition: Partition, timestamp: int, starting_offset: int
    ) -> "asyncio.Future[TimestampAndOffset | None]":
        self._refuse()
        answer: asyncio.Future[TimestampAndOffset | None] = asyncio.get_running_loop().create_future()
        self.questions.append(OffsetQuestion(partition.topic_partition, timestamp, starting_offset, answer))
        if self.offsets is not None:
            answer.set_result(self.offsets(timestamp, starting_offset))
        return answer

    async def state_before(self, partition: Partition, epoch: int, offset: int) -> RemoteLogState:
        self._refuse()
        answer: asyncio.Future[RemoteLogState] = asyncio.get_running_loop().create_future()
        self.state_questions.append(StateQuestion(partition.topic_partition, epoch, offset, answer))
        return await answer if self.states is None else self.states(partition, epoch, offset)

    def asked(self) -> list[tuple[str, int, int]]:
        """Topic, timestamp and starting offset of each question about offsets."""
        return [(each.partition.topic, each.timestamp, each.starting_offset) for each in self.questions]

    def _refuse(self) -> None:
        refusal, self.refusal = self.refusal, None
        if refusal is not None:
            raise refusal
