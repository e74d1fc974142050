from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.wal.follow.follower_term import FollowerTerm


def agreed(leader_epoch: int = 3, log_end: int = 10) -> FollowerTerm:
    term = FollowerTerm()
    term.begin(leader_epoch)
    assert term.fetch_answered(term.ticket, log_end, log_end, 0)
    return term


def test_nothing_is_appended_before_the_handshake() -> None:
    term = FollowerTerm()
    assert not term.may_append and not term.may_fetch
    term.begin(3)
    assert term.may_fetch and not term.may_append
    assert term.fetch_answered(term.ticket, 10, 10, 4)
    assert term.may_append
    assert (term.lineage.leader_epoch, term.lineage.leader_log_start_offset) == (3, 4)


def test_the_handshake_is_a_fetch_at_the_log_end() -> None:
    term = FollowerTerm()
    term.begin(3)
    assert term.fetch_answered(term.ticket, 8, 10, 0)
    assert not term.may_append


def test_37_once_agreed_answers_count_though_the_log_has_moved_on() -> None:
    term = agreed()
    assert term.fetch_answered(term.ticket, 8, 10, 2)
    assert term.may_append and term.lineage.leader_log_start_offset == 2


def test_a_new_epoch_asks_for_a_new_handshake() -> None:
    term = agreed()
    old = term.ticket
    term.begin(4)
    assert not term.may_append and not term.holds(old)
    assert not term.fetch_answered(old, 10, 10, 0)
    assert not term.may_append
    term.end()
    assert not term.may_fetch


def test_33_after_a_truncation_the_handshake_is_repeated() -> None:
    term = agreed()
    get = term.ticket
    term.truncated()
    assert not term.may_append and term.may_fetch
    assert not term.holds(get)
    assert term.fetch_answered(term.ticket, 5, 5, 0) and term.may_append


def test_h5_a_reset_excludes_appends_and_fetches() -> None:
    """Out of range; while the start is looked up the follower caught up, joined the ISR, and its 3 was acknowledged."""
    term = agreed(log_end=0)
    get, fetch = term.ticket, term.ticket
    term.begin_reset()
    assert not term.may_append and not term.may_fetch
    assert not term.holds(get)
    assert not term.fetch_answered(fetch, 0, 0, 2)
    assert not term.fetch_answered(term.ticket, 0, 0, 2)
    term.end_reset()
    assert term.may_fetch and not term.may_append
    assert not term.holds(get)
    assert term.fetch_answered(term.ticket, 2, 2, 2) and term.may_append


def test_h8_answers_die_with_epoch_and_generation() -> None:
    term = agreed()
    asked = term.lineage
    term.truncated()
    asked.answered(1, EpochEndOffset(1, 9), 3)  # a reply in flight
    assert term.fetch_answered(term.ticket, 5, 5, 0)
    assert term.lineage.unknown([1]) == {1}
