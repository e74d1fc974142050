"""The fetch sessions of this broker, bounded and sharded as Kafka bounds them (FetchSessionCache)."""

from typing import Final

from broker.common.chance import Chance
from broker.replication.fetch_session import (
    INVALID_SESSION_ID,
    SESSION_EPOCH_MAX,
    FetchSession,
    SessionKey,
)

SHARD_COUNT: Final = 8
SESSION_ID_RANGE: Final = SESSION_EPOCH_MAX // SHARD_COUNT
EVICTION_MS: Final = 120_000  # FetchSessionCache: a session this old may go, and an unused one does (KIP-227)


class FetchSessionCacheShard:
    """An eighth of the sessions; ids of a shard come from its own range."""

    def __init__(self, number: int, slots: int, chance: Chance) -> None:
        self._first_id = max(number * SESSION_ID_RANGE, 1)
        self._end_id = (number + 1) * SESSION_ID_RANGE
        self._slots = slots
        self._chance = chance
        self._sessions: dict[int, FetchSession] = {}  # by last use: the one used longest ago comes first
        self._evictable_by_all: dict[FetchSession, None] = {}
        self._evictable_by_privileged: dict[FetchSession, None] = {}
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def try_create(self, *, replica_id: int, size: int, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """A new session for `size` partitions, or None when nobody less valuable can be evicted."""
        if len(self._sessions) >= self._slots and not self._try_evict(SessionKey(replica_id >= 0, size, 0), now_ms):
            return None
        session = FetchSession(self._new_id(), replica_id=replica_id, uses_topic_ids=uses_topic_ids, created_ms=now_ms)
        self._sessions[session.id] = session
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """The session was used: it is the last to be evicted for age, and its size counts anew."""
        self._sessions.pop(session.id)
        self._sessions[session.id] = session
        session.last_used_ms = now_ms
        self.partition_count += len(session) - session.cached_size
        session.cached_size = len(session)
        is_old = now_ms - session.created_ms > EVICTION_MS
        if is_old:
            self._evictable_by_all[session] = None
        if is_old or not session.is_privileged:
            self._evictable_by_privileged[session] = None

    def remove(self, session: FetchSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._evictable_by_all.pop(session, None)
            self._evictable_by_privileged.pop(session, None)
            self.partition_count -= session.cached_size
            session.close()

    def _try_evict(self, key: SessionKey, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            self._evict(oldest)
            return True
        candidates = self._evictable_by_privileged if key.is_privileged else self._evictable_by_all
        least = min(candidates, key=lambda session: session.session_key, default=None)
        if least is None or key < least.session_key:
            return False
        self._evict(least)
        return True

    def _evict(self, session: FetchSession) -> None:
        self.remove(session)
        self.evictions += 1

    def _new_id(self) -> int:
        while True:
            session_id = self._first_id + self._chance.below(self._end_id - self._first_id)
            if session_id != INVALID_SESSION_ID and session_id not in self._sessions:
                return session_id


class FetchSessionCache:
    """`slots` is max.incremental.fetch.session.cache.slots; creation goes round the shards."""

    def __init__(self, slots: int, chance: Chance) -> None:
        self.shards = [FetchSessionCacheShard(number, slots // SHARD_COUNT, chance) for number in range(SHARD_COUNT)]
        self._created = 0

    def shard_of(self, session_id: int) -> FetchSessionCacheShard:
        return self.shards[min(max(session_id, 0) // SESSION_ID_RANGE, SHARD_COUNT - 1)]

    def get(self, session_id: int) -> FetchSession | None:
        return self.shard_of(session_id).get(session_id)

    def try_create(self, *, replica_id: int, size: int, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """The caller adds the partitions and touches it then."""
        shard = self.shards[self._created % SHARD_COUNT]
        self._created += 1
        return shard.try_create(replica_id=replica_id, size=size, uses_topic_ids=uses_topic_ids, now_ms=now_ms)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        self.shard_of(session.id).touch(session, now_ms)

    def remove(self, session: FetchSession) -> None:
        self.shard_of(session.id).remove(session)

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    @property
    def partition_count(self) -> int:
        return sum(shard.partition_count for shard in self.shards)

    @property
    def evictions(self) -> int:
        return sum(shard.evictions for shard in self.shards)
