import pytest

from broker.common.errors import (
    ErrorCode,
    KafkaError,
    MessageTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RebalanceInProgressError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StorageFailure,
    UnknownTopicOrPartitionError,
)
from broker.coordinator.coordinator_errors import coordinator_error, stable_fetch_error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownTopicOrPartitionError("x"), ErrorCode.coordinator_not_available),
        (NotEnoughReplicasError("x"), ErrorCode.coordinator_not_available),
        (NotEnoughReplicasAfterAppendError("x"), ErrorCode.coordinator_not_available),
        (RequestTimedOutError("x"), ErrorCode.coordinator_not_available),
        (NotLeaderOrFollowerError("x"), ErrorCode.not_coordinator),
        (StorageFailure("x"), ErrorCode.not_coordinator),
        (MessageTooLargeError("x"), ErrorCode.unknown_server_error),
        (RecordListTooLargeError("x"), ErrorCode.unknown_server_error),
        (RebalanceInProgressError("x"), ErrorCode.rebalance_in_progress),
    ],
)
def test_45_errors_of_the_log_in_the_words_of_a_coordinator(error: KafkaError, code: ErrorCode) -> None:
    mapped = coordinator_error(error)
    assert (mapped.code, mapped.message) == (code, "x")


def test_a_stable_fetch_that_times_out_looks_for_the_coordinator() -> None:
    assert stable_fetch_error(RequestTimedOutError()).code is ErrorCode.not_coordinator
    assert stable_fetch_error(NotEnoughReplicasError()).code is ErrorCode.coordinator_not_available
