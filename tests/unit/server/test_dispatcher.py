import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.common.errors import (
    ErrorCode,
    InvalidGroupIdError,
    InvalidRequestError,
    NotCoordinatorError,
    UnsupportedVersionError,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.errors import UnsupportedApiError
from broker.protocol.frames import Frame
from broker.protocol.requests import Request, decode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from broker.server.api_registry import ApiRegistry, handles, handles_frames
from broker.server.dispatcher import Dispatcher
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from tests.support.socket_harness import dispatcher_of, handler_of, request, turns

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 40000, 9092, "connection")


class Outcome:
    """What the handlers of this test raise or return."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.answer: Any = "right"


class BetterOutcome(Outcome):
    pass


@handles(ApiKey.HEARTBEAT, versions=range(5))
def heartbeat(request: Request, context: RequestContext, outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    if outcome.answer != "right":
        return outcome.answer
    return request.schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


@handles(ApiKey.LIST_GROUPS, versions=range(6))
async def list_groups(request: Request, context: RequestContext, outcome: Outcome) -> Any:
    await asyncio.sleep(0)
    if outcome.error is not None:
        raise outcome.error
    if outcome.answer != "right":
        return outcome.answer
    return request.schema.ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=())


def leave_group_error(request: Request, error: Any) -> Any:
    return request.schema.LeaveGroupResponse(throttle_time=milliseconds(99), error_code=error.code, members=())


@handles(ApiKey.LEAVE_GROUP, versions=range(6), on_error=leave_group_error)
def leave_group(request: Request, context: RequestContext, outcome: Outcome) -> Any:
    assert outcome.error is not None
    raise outcome.error


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14))
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot, outcome: Outcome) -> None:
    if outcome.error is not None:
        raise outcome.error
    slot.send([bytes(frame.buffer[frame.body_position :])])


class Connection:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.closed: list[str] = []

    def on_slot_filled(self, slot: ResponseSlot) -> None:
        self.sent.append(slot.buffers)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


@pytest.fixture
def outcome() -> Outcome:
    return Outcome()


@pytest.fixture
def dispatcher(outcome: Outcome) -> Dispatcher:
    return dispatcher_of(heartbeat, list_groups, leave_group, produce, services=[outcome])


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured  # type: ignore[misc]


def start(dispatcher: Dispatcher, raw: bytes) -> Connection:
    connection = Connection()
    frame = Frame(memoryview(raw)[4:], is_owned=True)
    route = dispatcher.route(frame)
    assert route is not None
    dispatcher.start(route, frame, CONTEXT, ResponseSlot(connection))
    return connection


def heartbeat_request(version: int = 4) -> bytes:
    return request(ApiKey.HEARTBEAT, version, 7, group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def list_groups_request() -> bytes:
    return request(ApiKey.LIST_GROUPS, 3, 7)


def produce_request(acks: int = 1) -> bytes:
    schema = RequestSchema.of(ApiKey.PRODUCE, 9)
    partition = schema.PartitionProduceData(index=5, records=b"r")
    topic = schema.TopicProduceData(name="t", partition_data=(partition,))
    return request(ApiKey.PRODUCE, 9, 7, transactional_id=None, acks=acks, timeout=milliseconds(1), topic_data=(topic,))


def error_of(connection: Connection, api_key: ApiKey, version: int) -> ErrorCode:
    assert connection.closed == []
    ((sent,),) = connection.sent
    code: ErrorCode = decode_response(api_key, version, bytes(sent)[4:])[1].error_code
    return code


def errors_counted(dispatcher: Dispatcher, api: str, error: str) -> int:
    return int(dispatcher.metrics._errors.labels(api, error).value)


@pytest.mark.parametrize("version", range(5))
def test_a_plain_handler_answers_at_once(dispatcher: Dispatcher, version: int) -> None:
    assert error_of(start(dispatcher, heartbeat_request(version)), ApiKey.HEARTBEAT, version) == ErrorCode.none


async def test_a_plain_handler_may_answer_later(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = asyncio.get_running_loop().create_future()
    async with dispatcher.running():
        connection = start(dispatcher, heartbeat_request())
        await turns(3)
        assert connection.sent == []
        assert "request:heartbeat:connection" in {task.get_name() for task in asyncio.all_tasks()}
        schema = ResponseSchema.of(ApiKey.HEARTBEAT, 4)
        outcome.answer.set_result(
            schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.rebalance_in_progress)
        )
        await turns(3)
        assert error_of(connection, ApiKey.HEARTBEAT, 4) == ErrorCode.rebalance_in_progress


async def test_what_a_plain_handler_waits_for_fails(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = asyncio.get_running_loop().create_future()
    async with dispatcher.running():
        connection = start(dispatcher, heartbeat_request())
        outcome.answer.set_exception(NotCoordinatorError("no"))
        await turns(3)
        assert error_of(connection, ApiKey.HEARTBEAT, 4) == ErrorCode.not_coordinator


@pytest.mark.parametrize("turns_before", [0, 3])
async def test_what_a_plain_handler_waits_for_is_cancelled_with_the_connection(
    dispatcher: Dispatcher, outcome: Outcome, turns_before: int
) -> None:
    outcome.answer = asyncio.get_running_loop().create_future()
    async with dispatcher.running():
        frame = Frame(memoryview(heartbeat_request())[4:], is_owned=True)
        connection = Connection()
        slot = ResponseSlot(connection)
        route = dispatcher.route(frame)
        assert route is not None
        dispatcher.start(route, frame, CONTEXT, slot)
        await turns(turns_before)
        assert slot.on_closed is not None
        slot.on_closed()
        await turns(3)
        assert outcome.answer.cancelled()
        assert connection.sent == [] and len(dispatcher._tasks) == 0


async def test_what_a_plain_handler_waits_for_is_cancelled_at_a_stop(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = asyncio.get_running_loop().create_future()
    async with dispatcher.running():
        start(dispatcher, heartbeat_request())
        await turns(3)
    assert outcome.answer.cancelled()


async def test_a_coroutine_answers_as_a_named_task(dispatcher: Dispatcher) -> None:
    async with dispatcher.running():
        connection = start(dispatcher, list_groups_request())
        assert connection.sent == []
        assert "request:list_groups:connection" in {task.get_name() for task in asyncio.all_tasks()}
        await turns()
        assert error_of(connection, ApiKey.LIST_GROUPS, 3) == ErrorCode.none


def test_a_frame_handler_gets_the_body_behind_the_header_and_its_tags(dispatcher: Dispatcher) -> None:
    raw = produce_request()
    connection = start(dispatcher, raw)
    assert connection.sent == [[raw[4 + 10 + len(b"test") + 1 :]]]


def test_a_kafka_error_becomes_its_code(dispatcher: Dispatcher, outcome: Outcome, logs: list[Any]) -> None:
    outcome.error = NotCoordinatorError("not here")
    assert error_of(start(dispatcher, heartbeat_request()), ApiKey.HEARTBEAT, 4) == ErrorCode.not_coordinator
    assert errors_counted(dispatcher, "Heartbeat", "NOT_COORDINATOR") == 1
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == []


async def test_a_kafka_error_of_a_coroutine_becomes_its_code(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.error = InvalidGroupIdError()
    connection = start(dispatcher, list_groups_request())
    await turns()
    assert error_of(connection, ApiKey.LIST_GROUPS, 3) == ErrorCode.invalid_group_id


def test_a_defect_is_an_unknown_server_error_with_a_traceback(
    dispatcher: Dispatcher, outcome: Outcome, logs: list[Any]
) -> None:
    outcome.error = ZeroDivisionError("oops")
    assert error_of(start(dispatcher, heartbeat_request()), ApiKey.HEARTBEAT, 4) == ErrorCode.unknown_server_error
    assert dispatcher.metrics.unexpected_errors.labels("Heartbeat").value == 1
    (entry,) = [entry for entry in logs if entry["event"] == "request_failed"]
    assert entry["exc_info"] is outcome.error


@pytest.mark.parametrize("wrong", ["nonsense", 5, object()])
def test_an_answer_that_cannot_be_encoded_is_an_unknown_server_error(
    dispatcher: Dispatcher, outcome: Outcome, wrong: Any
) -> None:
    outcome.answer = wrong
    assert error_of(start(dispatcher, heartbeat_request()), ApiKey.HEARTBEAT, 4) == ErrorCode.unknown_server_error


async def test_the_same_for_a_coroutine(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = "nonsense"
    connection = start(dispatcher, list_groups_request())
    await turns()
    assert error_of(connection, ApiKey.LIST_GROUPS, 3) == ErrorCode.unknown_server_error


def test_a_handler_may_build_its_own_error_answer(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.error = NotCoordinatorError()
    connection = start(dispatcher, request(ApiKey.LEAVE_GROUP, 4, 7, group_id="g", members=()))
    ((sent,),) = connection.sent
    entity = decode_response(ApiKey.LEAVE_GROUP, 4, bytes(sent)[4:])[1]
    assert (entity.error_code, entity.throttle_time) == (ErrorCode.not_coordinator, milliseconds(99))


def test_an_answer_that_is_bytes_already_only_gets_its_length(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = b"\0\0\0\7forwarded"
    ((length, body),) = start(dispatcher, heartbeat_request()).sent
    assert (length, body) == (b"\0\0\0\x0d", outcome.answer)


def test_no_answer_is_sent_as_nothing(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.answer = None
    assert start(dispatcher, heartbeat_request()).sent == [[]]


def test_a_body_that_does_not_decode_closes_the_connection(dispatcher: Dispatcher) -> None:
    connection = start(dispatcher, heartbeat_request()[:20])
    assert (connection.closed, connection.sent) == (["malformed"], [])


def test_a_frame_handler_that_raises_answers_with_the_error(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.error = NotCoordinatorError()
    connection = start(dispatcher, produce_request())
    ((sent,),) = connection.sent
    entity = decode_response(ApiKey.PRODUCE, 9, bytes(sent)[4:])[1]
    (partition,) = entity.responses[0].partition_responses
    assert (partition.index, partition.error_code) == (5, ErrorCode.not_coordinator)


def test_a_frame_handler_that_raises_for_acks_0_closes_the_connection(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.error = NotCoordinatorError()
    connection = start(dispatcher, produce_request(acks=0))
    assert (connection.sent, connection.closed) == ([], ["refused_silently"])


async def test_a_version_the_controller_lacks_closes_the_connection(dispatcher: Dispatcher, outcome: Outcome) -> None:
    outcome.error = UnsupportedApiError(16, 3)
    connection = start(dispatcher, list_groups_request())
    await turns()
    assert (connection.sent, connection.closed) == ([], ["unsupported"])


async def test_handlers_that_wait_are_cancelled_when_the_dispatcher_leaves(dispatcher: Dispatcher) -> None:
    async with dispatcher.running():
        connection = start(dispatcher, list_groups_request())
    assert connection.sent == []


@pytest.mark.parametrize(("key", "version"), [(12, 5), (12, -1), (0, 2), (99, 0), (4, 0)])
def test_what_is_not_offered_has_no_route(dispatcher: Dispatcher, key: int, version: int) -> None:
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff"
    assert dispatcher.route(Frame(memoryview(header), is_owned=True)) is None


def test_a_missing_service_is_an_error_at_construction() -> None:
    with pytest.raises(TypeError, match="heartbeat wants a Outcome: no service"):
        dispatcher_of(heartbeat)


def test_two_services_of_one_type_are_an_error_at_construction() -> None:
    with pytest.raises(TypeError, match="2 services"):
        dispatcher_of(heartbeat, services=[Outcome(), Outcome()])


def test_a_service_is_found_by_its_exact_type_first_and_then_by_its_bases() -> None:
    better = BetterOutcome()
    better.error = NotCoordinatorError()
    only_better = dispatcher_of(heartbeat, services=[better])
    assert error_of(start(only_better, heartbeat_request()), ApiKey.HEARTBEAT, 4) == ErrorCode.not_coordinator
    both = dispatcher_of(heartbeat, services=[better, Outcome()])
    assert error_of(start(both, heartbeat_request()), ApiKey.HEARTBEAT, 4) == ErrorCode.none


def test_the_registry_is_a_service() -> None:
    seen: list[ApiRegistry] = []

    @handles(ApiKey.SYNC_GROUP, versions=range(1))
    def sync_group(request: Request, context: RequestContext, registry: ApiRegistry) -> Any:
        seen.append(registry)

    dispatcher = dispatcher_of(sync_group)
    assert dispatcher._services[ApiKey.SYNC_GROUP] == (dispatcher.registry,)
    assert handler_of(sync_group) is dispatcher.registry.get(ApiKey.SYNC_GROUP)


async def test_an_envelope_carries_a_request_and_its_response(dispatcher: Dispatcher, outcome: Outcome) -> None:
    for raw, key, version in (
        (heartbeat_request(), ApiKey.HEARTBEAT, 4),
        (list_groups_request(), ApiKey.LIST_GROUPS, 3),
    ):
        response = await dispatcher.dispatch_envelope(raw[4:], CONTEXT)
        correlation_id, entity = decode_response(key, version, response)
        assert (correlation_id, entity.error_code) == (7, ErrorCode.none)
    outcome.error = NotCoordinatorError()
    response = await dispatcher.dispatch_envelope(heartbeat_request()[4:], CONTEXT)
    assert decode_response(ApiKey.HEARTBEAT, 4, response)[1].error_code == ErrorCode.not_coordinator


async def test_an_envelope_with_what_cannot_be_forwarded(dispatcher: Dispatcher) -> None:
    with pytest.raises(InvalidRequestError):
        await dispatcher.dispatch_envelope(b"\0", CONTEXT)
    with pytest.raises(InvalidRequestError):
        await dispatcher.dispatch_envelope(produce_request()[4:], CONTEXT)
    with pytest.raises(UnsupportedVersionError):
        await dispatcher.dispatch_envelope(
            request(ApiKey.SYNC_GROUP, 0, 1, group_id="g", generation_id=1, member_id="m", assignments=())[4:], CONTEXT
        )
