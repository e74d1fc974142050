from broker.replication.replica_state import NEVER_MS, ReplicaState


def fetched(replica: ReplicaState, offset: int, *, leader_end: int, now_ms: int, is_mark_pinned: bool = False) -> None:
    replica.update_fetch_state(
        fetch_offset=offset,
        log_start_offset=0,
        leader_log_end_offset=leader_end,
        now_ms=now_ms,
        broker_epoch=12,
        is_mark_pinned=is_mark_pinned,
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
    assert (replica.log_end_offset, replica.mark_offset) == (7, 10)


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
        assert (replica.mark_offset, replica.broker_epoch) == (-1, -1)
        assert (replica.last_caught_up_time_ms, replica.mark_time_ms) == (caught_up_ms, NEVER_MS)


def test_who_was_never_caught_up_is_not_because_the_clock_has_just_begun() -> None:
    replica = ReplicaState(2)
    fetched(replica, 0, leader_end=10, now_ms=5)
    assert not replica.is_caught_up(10, 6, 30_000)


def test_a_pinned_mark_stays_until_it_is_reached() -> None:
    """Records come through a bucket 60 ms late and fetches every 5 ms: what was there a fetch ago never is."""
    replica = ReplicaState(2)
    for now_ms, offset, leader_end in ((100, 0, 10), (105, 0, 11), (110, 3, 12), (160, 9, 22)):
        fetched(replica, offset, leader_end=leader_end, now_ms=now_ms, is_mark_pinned=True)
        assert (replica.mark_offset, replica.mark_time_ms) == (10, 100)
        assert replica.last_caught_up_time_ms == NEVER_MS
    fetched(replica, 10, leader_end=23, now_ms=165, is_mark_pinned=True)
    assert replica.last_caught_up_time_ms == 100
    assert (replica.mark_offset, replica.mark_time_ms) == (23, 165)
    fetched(replica, 23, leader_end=23, now_ms=170, is_mark_pinned=True)
    assert replica.last_caught_up_time_ms == 170
    assert (replica.mark_offset, replica.mark_time_ms) == (23, 170)


def test_an_idle_fetch_counts_if_everything_was_there() -> None:
    for offset, caught_up_ms in ((10, 150), (9, NEVER_MS)):
        replica = ReplicaState(2)
        fetched(replica, offset, leader_end=10, now_ms=100)
        replica.note_idle(150)
        replica.note_idle(140)  # an older one says nothing new
        assert replica.last_caught_up_time_ms == caught_up_ms
