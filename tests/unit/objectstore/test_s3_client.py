"""S3Client: deadlines, errors and sessions around each request of the library."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any, Self, cast

import pytest
from botocore.exceptions import ClientError

from broker.objectstore.errors import AccessDenied, Refused, Unavailable
from broker.objectstore.s3_client import NoHiddenRetry, S3Client, _library
from broker.objectstore.s3_express_sessions import ExpressSessions
from broker.objectstore.s3_settings import S3Settings
from tests.support.sim_loop import SimLoop, simulate


def refused(code: str) -> ClientError:
    answer = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return ClientError(answer, "PutObject")


class Body:
    def __init__(self, data: bytes, seconds: float = 0) -> None:
        self._data = data
        self._seconds = seconds
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.closed = True

    async def read(self) -> bytes:
        await asyncio.sleep(self._seconds)
        return self._data


class Library:
    """In place of aiobotocore's client: raises or returns what it was told, after a while."""

    def __init__(self, *outcomes: Any, seconds: float = 0) -> None:
        self.outcomes = list(outcomes)
        self.seconds = seconds
        self.requests: list[dict[str, Any]] = []

    async def get_object(self, **parameters: Any) -> Any:
        self.requests.append(parameters)
        await asyncio.sleep(self.seconds)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Sessions:
    def __init__(self) -> None:
        self.session = 1
        self.forgotten: list[int] = []

    def current(self) -> int:
        return self.session

    def forget(self, session: int) -> None:
        self.forgotten.append(session)
        self.session += 1


def make(library: Library, sessions: Sessions | None = None) -> S3Client:
    settings = S3Settings(request_timeout_seconds=2)
    return S3Client(library, "wal", settings, cast(ExpressSessions | None, sessions), AsyncExitStack())


async def test_the_body_of_an_answer_is_read_and_let_go() -> None:
    body = Body(b"0123")
    library = Library({"Body": body, "ETag": "e"})
    assert await make(library).call("get_object", "a", 4, Range="r") == {"Body": b"0123", "ETag": "e"}
    assert library.requests == [{"Bucket": "wal", "Key": "a", "Range": "r"}]
    assert body.closed


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 2), (8_000_000, 10)],
)
def test_the_deadline_is_for_the_whole_request_and_grows_with_its_size(size: int, expected: float) -> None:
    async def story(loop: SimLoop) -> None:
        with pytest.raises(Unavailable, match="get_object a: no answer in time"):
            await make(Library({}, seconds=3600)).call("get_object", "a", size)
        assert loop.time() == expected
        slow = Body(b"", seconds=3600)
        with pytest.raises(Unavailable, match="no answer in time"):
            await make(Library({"Body": slow})).call("get_object", "a", size)
        assert loop.time() == 2 * expected
        assert slow.closed

    simulate(story)


@pytest.mark.parametrize("code", ["InvalidToken", "ExpiredToken"])
async def test_a_refused_session_is_forgotten_and_the_request_sent_once_more(code: str) -> None:
    sessions = Sessions()
    library = Library(refused(code), {"ETag": "e"})
    assert await make(library, sessions).call("get_object", "a") == {"ETag": "e"}
    assert sessions.forgotten == [1]
    with pytest.raises(AccessDenied, match=code):
        await make(Library(refused(code), refused(code)), sessions).call("get_object", "a")
    assert sessions.forgotten == [1, 2]


async def test_without_sessions_a_token_is_the_operators_affair() -> None:
    library = Library(refused("ExpiredToken"))
    with pytest.raises(AccessDenied, match="s3://wal: get_object a: ExpiredToken"):
        await make(library).call("get_object", "a")
    assert len(library.requests) == 1


async def test_other_errors_leave_the_session() -> None:
    sessions = Sessions()
    with pytest.raises(Refused):
        await make(Library(refused("InvalidArgument")), sessions).call("get_object", "a")
    assert sessions.forgotten == []


async def test_defects_are_not_taken_for_failures_of_the_store() -> None:
    with pytest.raises(KeyError):
        await make(Library(KeyError("UploadId"))).call("get_object", "a")
    with pytest.raises(Refused, match="sessions of S3 Express"):
        await make(Library(KeyError("Credentials"))).call("get_object", "a")


async def test_aiohttp_is_told_not_to_send_again() -> None:
    async with NoHiddenRetry() as http:
        session = await http._get_session(None)
        assert session._retry_connection is False


async def test_the_real_client_has_the_settings_that_matter() -> None:
    settings = S3Settings(endpoint_url="http://127.0.0.1:1", access_key="a", secret_key="s", path_style=True)
    client = await S3Client.open("wal", settings)
    config = client._client.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.s3["payload_signing_enabled"] is False
    assert config.s3["addressing_style"] == "path"
    assert isinstance(client._client._endpoint.http_session, NoHiddenRetry)
    assert client._client.meta.region_name == "us-east-1"
    await client.close()
    express = await S3Client.open("wal--use1-az4--x-s3", settings)
    assert isinstance(express._sessions, ExpressSessions)
    await express.close()
    assert [task.get_name() for task in asyncio.all_tasks() if "s3-express" in task.get_name()] == []


async def test_what_the_library_misses_at_the_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _library.cache_clear()
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    with pytest.raises(Unavailable, match="s3://wal: The config profile"):
        await S3Client.open("wal", S3Settings(region="us-east-1"))
    _library.cache_clear()


async def test_an_endpoint_that_is_no_url() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        await S3Client.open("wal", S3Settings(endpoint_url="nonsense", access_key="a", secret_key="s"))
