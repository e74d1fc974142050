from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.leader_endpoint import FollowerFetch
from broker.server.fetch_session_handler import FetchSessionHandler

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ID_A, ID_B, ID_NEW = UUID(int=1001), UUID(int=1002), UUID(int=1003)


def fetch(offset: int, topic_id: UUID = ID_A) -> FollowerFetch:
    return FollowerFetch(topic_id, offset, 0, 0, 0, 100)


def opened(**wanted: FollowerFetch) -> FetchSessionHandler:
    """With a session 7 that knows a-0 at 1 and b-3 at 2."""
    handler = FetchSessionHandler()
    handler.build({A: fetch(1), B: fetch(2, ID_B)})
    assert handler.accepts(7, [A, B])
    return handler


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    handler = FetchSessionHandler()
    request = handler.build({A: fetch(1), B: fetch(2, ID_B)})
    assert (request.session_id, request.session_epoch, request.forgotten) == (0, 0, [])
    assert list(request.asked) == [A, B]
    assert handler.names() == {ID_A: "a", ID_B: "b"}


def test_the_next_request_names_what_changed_came_and_went() -> None:
    handler = opened()
    other = TopicPartition("a", 1)
    request = handler.build({A: fetch(5), other: fetch(0)})
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert request.asked == {A: fetch(5), other: fetch(0)}
    assert request.forgotten == [(ID_B, 3)]
    assert handler.accepts(7, [A])
    request = handler.build({A: fetch(5), other: fetch(0)})
    assert (request.session_epoch, request.asked, request.forgotten) == (2, {}, [])


def test_a_topic_that_was_made_again_is_forgotten_and_asked_for() -> None:
    request = opened().build({A: fetch(0, ID_NEW), B: fetch(2, ID_B)})
    assert request.asked == {A: fetch(0, ID_NEW)}
    assert request.forgotten == [(ID_A, 0)]


def test_without_a_session_every_request_is_full() -> None:
    handler = FetchSessionHandler()
    for _ in range(2):
        request = handler.build({A: fetch(1)})
        assert (request.session_id, request.session_epoch, list(request.asked)) == (0, 0, [A])
        assert handler.accepts(0, [A])


def test_a_leader_that_closes_the_session_is_asked_for_another() -> None:
    handler = opened()
    handler.build({A: fetch(1), B: fetch(2, ID_B)})
    assert handler.accepts(0, [A])
    request = handler.build({A: fetch(1)})
    assert (request.session_id, request.session_epoch) == (0, 0)


def test_a_full_answer_must_have_exactly_what_was_asked() -> None:
    for answered in ([A], [A, B, TopicPartition("a", 1)], [A, B, None]):
        handler = FetchSessionHandler()
        handler.build({A: fetch(1), B: fetch(2, ID_B)})
        assert not handler.accepts(7, answered)
        assert handler.build({A: fetch(1)})[:2] == (0, 0)


def test_an_incremental_answer_may_have_less_and_nothing_else() -> None:
    handler = opened()
    handler.build({A: fetch(1), B: fetch(2, ID_B)})
    assert handler.accepts(7, [])
    handler.build({A: fetch(1), B: fetch(2, ID_B)})
    assert not handler.accepts(7, [None])
    assert handler.build({A: fetch(1)})[:2] == (7, 0)  # closes the session it had


def test_errors_and_lost_answers_begin_anew() -> None:
    for error, session_id in (
        (ErrorCode.fetch_session_id_not_found, 0),
        (ErrorCode.invalid_fetch_session_epoch, 7),
        (ErrorCode.fetch_session_topic_id_error, 7),
    ):
        handler = opened()
        handler.build({A: fetch(1)})
        handler.refused(error)
        request = handler.build({A: fetch(1)})
        assert (request.session_id, request.session_epoch, list(request.asked)) == (session_id, 0, [A])
    handler = opened()
    handler.build({A: fetch(1)})
    handler.lost()
    assert handler.build({A: fetch(1)})[:2] == (7, 0)


def test_what_has_moved_is_told_wherever_it_stands() -> None:
    first, second, other = fetch(1), fetch(2, ID_B), TopicPartition("a", 1)
    handler = FetchSessionHandler()
    handler.build({A: first, B: second})
    assert handler.accepts(7, [A, B])
    request = handler.build({A: fetch(50), B: second})
    assert (request.asked, request.forgotten) == ({A: fetch(50)}, [])
    assert handler.accepts(7, [])
    request = handler.build({other: fetch(0), B: second})  # as many as before
    assert (request.asked, request.forgotten) == ({other: fetch(0)}, [(ID_A, 0)])
    assert handler.accepts(7, [other])
    request = handler.build({B: second, other: fetch(0)})
    assert (request.asked, request.forgotten) == ({}, [])


def test_of_many_partitions_only_those_that_moved_are_told() -> None:
    handler = FetchSessionHandler()
    wanted = {TopicPartition("a", index): fetch(0) for index in range(1000)}
    handler.build(wanted)
    assert handler.accepts(7, list(wanted))
    moved = TopicPartition("a", 500)
    del wanted[moved], wanted[TopicPartition("a", 501)]
    wanted[moved] = fetch(9)
    request = handler.build(wanted)
    assert (request.asked, request.forgotten) == ({moved: fetch(9)}, [(ID_A, 501)])
    assert handler.accepts(7, [moved])
    assert not handler.accepts(7, [TopicPartition("a", 501)])
