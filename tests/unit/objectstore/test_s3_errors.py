"""What S3 and its client library say, in the port's words."""

import aiohttp
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from broker.objectstore.errors import (
    AccessDenied,
    BucketNotFound,
    Corrupt,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
    Refused,
    Throttled,
    Unavailable,
)
from broker.objectstore.s3_errors import FAILURES, answered, code_of, translated


def client_error(code: str, status: int) -> ClientError:
    answer = {"Error": {"Code": code, "Message": "told"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "PutObject")


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, NotFound),
        ("404", 404, NotFound),
        ("NoSuchUpload", 404, NotFound),
        ("NoSuchBucket", 404, BucketNotFound),
        ("PreconditionFailed", 412, PreconditionFailed),
        ("412", 412, PreconditionFailed),
        ("ConditionalRequestConflict", 409, Unavailable),
        ("InvalidRange", 416, Corrupt),
        ("SlowDown", 503, Throttled),
        ("503", 503, Throttled),
        ("InternalError", 500, Unavailable),
        ("SomethingNew", 502, Unavailable),
        ("SomethingNew", 403, AccessDenied),
        ("SomethingNew", 429, Throttled),
        ("AccessDenied", 403, AccessDenied),
        ("SignatureDoesNotMatch", 403, AccessDenied),
        ("ExpiredToken", 400, AccessDenied),
        ("BadDigest", 400, Unavailable),
        ("RequestTimeout", 400, Unavailable),
        ("InvalidArgument", 400, Refused),
        ("MethodNotAllowed", 405, Refused),
    ],
)
def test_answers(code: str, status: int, expected: type[ObjectStoreError]) -> None:
    error = translated(client_error(code, status), "s3://wal: put_object a")
    assert type(error) is expected
    assert str(error) == f"s3://wal: put_object a: {code} told"
    assert code_of(client_error(code, status)) == code


@pytest.mark.parametrize(
    ("failure", "expected", "text"),
    [
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), Unavailable, "127.0.0.1:1"),
        (ReadTimeoutError(endpoint_url="http://127.0.0.1:1"), Unavailable, "Read timeout"),
        (NoCredentialsError(), AccessDenied, "Unable to locate credentials"),
        (aiohttp.ClientPayloadError("not enough data"), Unavailable, "not enough data"),
        (ConnectionResetError(), Unavailable, "ConnectionResetError"),
        (ResponseParserError("invalid XML received"), Unavailable, "invalid XML received"),
        (TimeoutError(), Unavailable, "no answer in time"),
    ],
)
def test_failures_without_an_answer(failure: Exception, expected: type[ObjectStoreError], text: str) -> None:
    assert isinstance(failure, FAILURES)
    error = translated(failure, "s3://wal: get_object a")
    assert type(error) is expected
    assert text in str(error)
    assert code_of(failure) == ""


def test_defects_are_no_failures() -> None:
    assert not issubclass(KeyError, FAILURES)
    assert not issubclass(AssertionError, FAILURES)


def test_an_error_about_one_of_many_objects() -> None:
    assert type(answered("AccessDenied", "x")) is AccessDenied
    assert type(answered("Odd", "x")) is Unavailable
