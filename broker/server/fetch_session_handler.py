"""The asking half of a fetch session (KIP-227, Kafka's FetchSessionHandler): what need not be said again."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from broker.replication.leader_endpoint import FollowerFetch


class SessionRequest(NamedTuple):
    """What goes into one Fetch."""

    session_id: int
    session_epoch: int
    asked: Mapping[TopicPartition, FollowerFetch]
    forgotten: list[tuple[UUID, int]]


NO_SESSION: Final = (INVALID_SESSION_ID, INITIAL_EPOCH)


class FetchSessionHandler:
    """Remembers what the leader knows.  One request at a time: `build`, then one of `accepts`, `refused` or `lost`."""

    def __init__(self) -> None:
        self._session_id, self._epoch = NO_SESSION
        self._known: dict[TopicPartition, FollowerFetch] = {}
        self._names: dict[UUID, str] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything, or the one under way does."""
        return self._epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def build(self, wanted: dict[TopicPartition, FollowerFetch]) -> SessionRequest:
        """The request that has the leader serve exactly `wanted`.

        What has moved is found fastest at the end of `wanted`: of thousands of partitions only these are looked at one
        by one, and the rest is compared as a whole.
        """
        known = self._known
        if self.is_full:
            self._known = dict(wanted)
            self._names = _names(wanted)
            return SessionRequest(self._session_id, self._epoch, self._known, [])
        asked: dict[TopicPartition, FollowerFetch] = {}
        forgotten: list[tuple[UUID, int]] = []
        self._tell(reversed(_last_moved(wanted, known)), asked, forgotten)
        if known != wanted:  # something has gone, or has moved and stands elsewhere
            self._tell(wanted.items(), asked, forgotten)
            for topic_partition in [each for each in known if each not in wanted]:
                forgotten.append((known.pop(topic_partition).topic_id, topic_partition.partition))
            self._names = _names(wanted)
        return SessionRequest(self._session_id, self._epoch, asked, forgotten)

    def _tell(
        self,
        requests: Iterable[tuple[TopicPartition, FollowerFetch]],
        asked: dict[TopicPartition, FollowerFetch],
        forgotten: list[tuple[UUID, int]],
    ) -> None:
        """From now on the leader knows these; what it did not know goes into `asked`."""
        known = self._known
        for topic_partition, request in requests:
            before = known.get(topic_partition)
            if before is request:
                continue
            known[topic_partition] = request
            if before != request:
                asked[topic_partition] = request
                self._names[request.topic_id] = topic_partition.topic
                if before is not None and before.topic_id != request.topic_id:  # deleted and made again
                    forgotten.append((before.topic_id, topic_partition.partition))

    def names(self) -> Mapping[UUID, str]:
        """The topics of the request under way."""
        return self._names

    def accepts(self, session_id: int, answered: Collection[TopicPartition | None]) -> bool:
        """Take an answer without an error; False when it does not fit the request and must not be used.

        `answered` holds None for a partition of a topic that was not asked for.
        """
        is_fitting = self._known.keys() == set(answered) if self.is_full else self._known.keys() >= set(answered)
        if not is_fitting:
            self._session_id, self._epoch = NO_SESSION if self.is_full else (self._session_id, INITIAL_EPOCH)
        elif session_id == INVALID_SESSION_ID:
            self._session_id, self._epoch = NO_SESSION
        elif self.is_full:
            self._session_id, self._epoch = session_id, next_epoch(INITIAL_EPOCH)
        else:
            self._epoch = next_epoch(self._epoch)
        return is_fitting

    def refused(self, error: ErrorCode) -> None:
        """The request was refused as a whole: the next one is full, and closes the session if there is one."""
        if error is ErrorCode.fetch_session_id_not_found:
            self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH

    def lost(self) -> None:
        """There was no answer: what the leader knows is not known."""
        self._epoch = INITIAL_EPOCH


def _last_moved(
    wanted: dict[TopicPartition, FollowerFetch], known: Mapping[TopicPartition, FollowerFetch]
) -> list[tuple[TopicPartition, FollowerFetch]]:
    """From the end of `wanted`, up to the first that is the very object it was."""
    moved = []
    for topic_partition, request in reversed(wanted.items()):
        if known.get(topic_partition) is request:
            break
        moved.append((topic_partition, request))
    return moved


def _names(wanted: Mapping[TopicPartition, FollowerFetch]) -> dict[UUID, str]:
    return {request.topic_id: topic_partition.topic for topic_partition, request in wanted.items()}
