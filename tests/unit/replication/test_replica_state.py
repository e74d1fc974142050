from broker.replication.replica_state import NEVER_MS, ReplicaState


def fetched(replica: ReplicaState, offset: int, *, leader_end: int, now_ms: int) -> None:
    replica.update_fetch_state(
        fetch_offset=offset, log_start_offset=0, leader_log_end_offset=leader_end, now_ms=now_ms, broker_epoch=12
    )


def test_a_fetch_at_the_end_is_caught_up_now() -> None:
    replica = ReplicaState(2)
    fetched(replica, 10, leader_end=10, now_ms=100)
    assert (replica.log_end_offset, replica.last_caught_up_time_ms, replica.broker_epoch) == (10, 100, 12)


def test_a_fetch_of_what_was_there_before_was_caught_up_then() -> None:
    replica = ReplicaState(2)
    fetched(replica, 0, leader_end=10, now_ms=100)
    assert replica.last_caught_up_time_ms == NEVER_MS
    fetched(replica, 10, leader_end=20, now_ms=200)
    assert replica.last_caught_up_time_ms == 100
    fetched(replica, 19, leader_end=30, now_ms=300)
    assert replica.last_caught_up_time_ms == 100


def test_the_end_offset_may_go_back() -> None:
    replica = ReplicaState(2)
    fetched(replica, 10, leader_end=10, now_ms=100)
    fetched(replica, 7, leader_end=10, now_ms=200)
    assert (replica.log_end_offset, replica.last_fetch_leader_log_end_offset) == (7, 10)


def test_being_caught_up_is_having_everything_or_having_had_it_recently() -> None:
    replica = ReplicaState(2)
    fetched(replica, 10, leader_end=10, now_ms=100)
    assert replica.is_caught_up(10, 1_000_000, 30)
    assert replica.is_caught_up(11, 130, 30)
    assert not replica.is_caught_up(11, 131, 30)


def test_a_new_epoch_knows_nothing_but_gives_the_isr_its_time() -> None:
    for is_in_sync, caught_up_ms in ((True, 500), (False, NEVER_MS)):
        replica = ReplicaState(2)
        fetched(replica, 10, leader_end=10, now_ms=100)
        replica.reset(now_ms=500, is_in_sync=is_in_sync)
        assert (replica.log_end_offset, replica.log_start_offset) == (-1, -1)
        assert (replica.last_fetch_leader_log_end_offset, replica.broker_epoch) == (-1, -1)
        assert (replica.last_caught_up_time_ms, replica.last_fetch_time_ms) == (caught_up_ms, NEVER_MS)


def test_who_was_never_caught_up_is_not_because_the_clock_has_just_begun() -> None:
    replica = ReplicaState(2)
    fetched(replica, 0, leader_end=10, now_ms=5)
    assert not replica.is_caught_up(10, 6, 30_000)
