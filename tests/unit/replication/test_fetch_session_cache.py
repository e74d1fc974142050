import pytest

from broker.common.chance import Chance
from broker.replication.fetch_params import FetchPartition
from broker.replication.fetch_session import FetchSession
from broker.replication.fetch_session_cache import (
    EVICTION_MS,
    SESSION_ID_RANGE,
    SHARD_COUNT,
    FetchSessionCache,
    FetchSessionCacheShard,
)


def shard_of(slots: int) -> FetchSessionCacheShard:
    return FetchSessionCacheShard(0, slots, Chance(1))


def create(shard: FetchSessionCacheShard, size: int, *, replica_id: int = -1, now_ms: int = 0) -> FetchSession | None:
    session = shard.try_create(replica_id=replica_id, size=size, uses_topic_ids=False, now_ms=now_ms)
    if session is not None:
        for index in range(size):
            session.add(FetchPartition("t", index, 0, 1))
        shard.touch(session, now_ms)
    return session


def test_ids_come_from_the_shards_own_range_and_creation_goes_round() -> None:
    cache = FetchSessionCache(1000, Chance(3))
    for number in range(SHARD_COUNT * 2):
        session = cache.try_create(replica_id=-1, size=0, uses_topic_ids=True, now_ms=0)
        assert session is not None
        assert session.id // SESSION_ID_RANGE == number % SHARD_COUNT
        assert session.epoch == 1
        assert cache.get(session.id) is session
    assert len(cache) == 2 * SHARD_COUNT
    assert cache.get(2**31 - 1) is None
    assert cache.get(-5) is None


def test_young_consumer_sessions_are_not_evicted_for_consumers() -> None:
    shard = shard_of(1)
    assert create(shard, 1) is not None
    assert create(shard, 100) is None


def test_a_follower_takes_the_place_of_a_consumer() -> None:
    shard = shard_of(1)
    consumer = create(shard, 100)
    follower = create(shard, 1, replica_id=2)
    assert consumer is not None
    assert follower is not None
    assert shard.get(consumer.id) is None
    assert shard.evictions == 1
    assert create(shard, 50, replica_id=3) is None  # a young follower session stays


def test_an_unused_session_goes_first() -> None:
    shard = shard_of(2)
    old, used = create(shard, 10), create(shard, 1)
    assert old is not None
    assert used is not None
    shard.touch(used, EVICTION_MS + 1)
    assert create(shard, 1, now_ms=EVICTION_MS + 1) is not None
    assert shard.get(old.id) is None
    assert shard.get(used.id) is used


@pytest.mark.parametrize(("size", "is_created"), [(4, False), (5, False), (6, True)])
def test_an_old_session_yields_only_to_a_bigger_one(size: int, is_created: bool) -> None:
    shard = shard_of(2)
    small, big = create(shard, 5), create(shard, 9)
    assert small is not None
    assert big is not None
    now_ms = EVICTION_MS + 1
    shard.touch(small, now_ms)
    shard.touch(big, now_ms)
    assert (create(shard, size, now_ms=now_ms) is not None) == is_created
    assert (shard.get(small.id) is None) == is_created
    assert shard.get(big.id) is big


def test_the_number_of_partitions_is_that_of_the_last_use() -> None:
    shard = shard_of(5)
    session = create(shard, 3)
    assert session is not None
    session.add(FetchPartition("u", 0, 0, 1))
    assert shard.partition_count == 3
    shard.touch(session, 1)
    assert shard.partition_count == 4
    shard.remove(session)
    shard.remove(session)
    assert (shard.partition_count, len(shard), shard.evictions) == (0, 0, 0)


def test_no_slots_no_sessions() -> None:
    cache = FetchSessionCache(0, Chance(1))
    assert cache.try_create(replica_id=2, size=1, uses_topic_ids=False, now_ms=0) is None
    assert (len(cache), cache.partition_count, cache.evictions) == (0, 0, 0)
