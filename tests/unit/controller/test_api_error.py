from broker.common.errors import ErrorCode, TopicAlreadyExistsError
from broker.controller.api_error import NO_ERROR, ApiError, ApiException


def test_of_takes_code_and_sentence_of_an_exception() -> None:
    error = ApiError.of(TopicAlreadyExistsError("Topic 't' already exists."))
    assert error == (ErrorCode.topic_already_exists, "Topic 't' already exists.")
    assert error.is_failure
    assert not NO_ERROR.is_failure


def test_an_api_exception_has_the_code_it_is_raised_with() -> None:
    first, second = ApiException(ErrorCode.snapshot_not_found), ApiException(ErrorCode.election_not_needed, "no")
    assert (first.code, first.message) == (ErrorCode.snapshot_not_found, None)
    assert (second.code, second.message) == (ErrorCode.election_not_needed, "no")
