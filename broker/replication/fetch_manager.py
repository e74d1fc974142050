"""Which kind of fetch a request is: full, sessionless, incremental, or wrong (Kafka's FetchManager)."""

from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

from broker.common.errors import NO_ERROR, ErrorCode
from broker.replication.fetch_params import FetchPartition, FetchPartitionResult
from broker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    FetchSession,
    PartitionKey,
    next_epoch,
)
from broker.replication.fetch_session_cache import FetchSessionCache
from broker.replication.fetch_source import FetchSource, RequestedPartitions


class FetchAnswer:
    """What goes into the response, once the partitions are read."""

    __slots__ = ("error", "results", "session_id")

    def __init__(self, error: ErrorCode, session_id: int, results: Sequence[FetchPartitionResult] = ()) -> None:
        self.error = error
        self.session_id = session_id
        self.results = results


class FetchContext(Protocol):
    """One fetch: `source` is what to read, None when the request is refused as a whole."""

    @property
    def source(self) -> FetchSource | None: ...

    def answer(self, results: Sequence[FetchPartitionResult]) -> FetchAnswer: ...

    def told(self, results: Sequence[FetchPartitionResult]) -> Sequence[FetchPartitionResult]:
        """The results that an answer now would tell; nothing changes (Kafka's getResponseSize adds them up)."""

    def throttled(self) -> FetchAnswer:
        """The answer to a client over its quota: nothing is told, and nothing counts as told."""


class SessionErrorContext:
    """The request does not fit the session; the session stays as it was."""

    source: FetchSource | None = None

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def answer(self, results: Sequence[FetchPartitionResult] = ()) -> FetchAnswer:
        return FetchAnswer(self._error, INVALID_SESSION_ID)

    def told(self, results: Sequence[FetchPartitionResult]) -> Sequence[FetchPartitionResult]:
        return ()

    def throttled(self) -> FetchAnswer:
        return self.answer()


class SessionlessContext:
    """Every partition of the request is answered, and nothing is remembered."""

    def __init__(self, partitions: Sequence[FetchPartition]) -> None:
        self.source: FetchSource | None = RequestedPartitions(partitions)

    def answer(self, results: Sequence[FetchPartitionResult]) -> FetchAnswer:
        return FetchAnswer(NO_ERROR, INVALID_SESSION_ID, results)

    def told(self, results: Sequence[FetchPartitionResult]) -> Sequence[FetchPartitionResult]:
        return results

    def throttled(self) -> FetchAnswer:
        return FetchAnswer(NO_ERROR, INVALID_SESSION_ID)


class FullContext:
    """Every partition of the request is answered, and a session is opened with them if the cache has room."""

    def __init__(
        self,
        partitions: Sequence[FetchPartition],
        *,
        cache: FetchSessionCache,
        replica_id: int,
        uses_topic_ids: bool,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.source: FetchSource | None = RequestedPartitions(partitions)
        self._cache = cache
        self._replica_id = replica_id
        self._uses_topic_ids = uses_topic_ids
        self._monotonic_ms = monotonic_ms

    def answer(self, results: Sequence[FetchPartitionResult]) -> FetchAnswer:
        now_ms = self._monotonic_ms()
        session = self._cache.try_create(
            replica_id=self._replica_id, size=len(results), uses_topic_ids=self._uses_topic_ids, now_ms=now_ms
        )
        if session is None:
            return FetchAnswer(NO_ERROR, INVALID_SESSION_ID, results)
        session.remember_told(results)
        self._cache.touch(session, now_ms)
        return FetchAnswer(NO_ERROR, session.id, results)

    def told(self, results: Sequence[FetchPartitionResult]) -> Sequence[FetchPartitionResult]:
        return results

    def throttled(self) -> FetchAnswer:
        return FetchAnswer(NO_ERROR, INVALID_SESSION_ID)


class IncrementalContext:
    """Only what is new about the session's partitions is answered."""

    def __init__(self, session: FetchSession, request_epoch: int) -> None:
        self.source: FetchSource | None = session
        self._session = session
        self._expected_epoch = next_epoch(request_epoch)

    def answer(self, results: Sequence[FetchPartitionResult]) -> FetchAnswer:
        answer = self.throttled()
        if answer.error is NO_ERROR:
            answer.results = self._session.select_told(results)
        return answer

    def told(self, results: Sequence[FetchPartitionResult]) -> Sequence[FetchPartitionResult]:
        return self._session.worth_telling(results)

    def throttled(self) -> FetchAnswer:
        if self._session.epoch != self._expected_epoch:  # another request used the session while this one was parked
            return FetchAnswer(ErrorCode.invalid_fetch_session_epoch, self._session.id)
        return FetchAnswer(NO_ERROR, self._session.id)


class FetchManager:
    """Finds, opens and closes sessions as a request's session id and epoch say."""

    def __init__(
        self,
        cache: FetchSessionCache,
        *,
        monotonic_ms: Callable[[], int],
        topic_name: Callable[[UUID], str | None],
    ) -> None:
        self.cache = cache
        self._monotonic_ms = monotonic_ms
        self._topic_name = topic_name

    def new_context(
        self,
        *,
        session_id: int,
        session_epoch: int,
        replica_id: int,
        uses_topic_ids: bool,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[PartitionKey],
    ) -> FetchContext:
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            session = self.cache.get(session_id) if session_id != INVALID_SESSION_ID else None
            if session is not None:
                self.cache.remove(session)
            if session_epoch == FINAL_EPOCH:
                return SessionlessContext(partitions)
            return FullContext(
                partitions,
                cache=self.cache,
                replica_id=replica_id,
                uses_topic_ids=uses_topic_ids,
                monotonic_ms=self._monotonic_ms,
            )
        return self._incremental(session_id, session_epoch, uses_topic_ids, partitions, forgotten)

    def _incremental(
        self,
        session_id: int,
        session_epoch: int,
        uses_topic_ids: bool,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[PartitionKey],
    ) -> FetchContext:
        session = self.cache.get(session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.fetch_session_id_not_found)
        if session.epoch != session_epoch:
            return SessionErrorContext(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            return SessionErrorContext(ErrorCode.fetch_session_topic_id_error)
        for asked in partitions:
            session.add(asked)
        session.forget(forgotten)
        if not len(session):
            self.cache.remove(session)
            return SessionlessContext(())
        for cached in session.unresolved():
            cached.topic = self._topic_name(cached.topic_id)
        session.epoch = next_epoch(session.epoch)
        self.cache.touch(session, self._monotonic_ms())
        return IncrementalContext(session, session_epoch)
