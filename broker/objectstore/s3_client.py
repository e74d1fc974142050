"""S3Client: aiobotocore, which is untyped, behind one method; with its settings, deadlines and errors.

The settings are about what the library would do by itself: retry for seconds, hash bodies twice, and rebuild its
user agent for each call.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cache
from typing import Any, Final, Self

from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession

from broker.common.tasks import BackgroundTasks
from broker.objectstore.errors import Refused
from broker.objectstore.s3_errors import FAILURES, SESSION_REFUSED, code_of, translated
from broker.objectstore.s3_express_sessions import REFRESH_SECONDS, ExpressSessions
from broker.objectstore.s3_settings import S3Settings, is_directory_bucket

KEEP_ALIVE_SECONDS: Final = 60  # the default of 12 s costs idle brokers a TCP and TLS set-up
SLOWEST_BYTES_PER_SECOND: Final = 1_000_000  # large bodies get more time
DEFAULT_REGION: Final = "us-east-1"  # of compatible stores, which do not look at it


class NoHiddenRetry(AIOHTTPSession):  # type: ignore[misc]  # untyped
    """aiohttp sends a request again by itself when a kept-alive connection breaks, PUT included: a conditional PUT
    whose answer was lost then fails by its own success, and nobody knows that there were two."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        session = await super()._get_session(proxy_url)
        session._retry_connection = False
        return session


class S3Client:
    """Requests about one bucket."""

    def __init__(
        self,
        client: Any,
        bucket: str,
        settings: S3Settings,
        sessions: ExpressSessions | None,
        resources: AsyncExitStack,
    ) -> None:
        self._client = client
        self._bucket = bucket
        self._settings = settings
        self._sessions = sessions
        self._resources = resources
        self._where = f"s3://{bucket}"

    @classmethod
    async def open(cls, bucket: str, settings: S3Settings, session_refresh_seconds: float = REFRESH_SECONDS) -> Self:
        """Loads the library's tables, which holds the loop for a moment the first time; sends nothing about the bucket.
        ValueError for an endpoint that is no URL."""
        async with AsyncExitStack() as resources:
            try:
                client = await resources.enter_async_context(_new_client(settings))
            except FAILURES as error:  # no such profile, for example
                raise translated(error, f"s3://{bucket}") from error
            sessions = None
            if is_directory_bucket(bucket):
                sessions = ExpressSessions(client, bucket, session_refresh_seconds)
                tasks = await resources.enter_async_context(BackgroundTasks("s3-express"))
                tasks.start(f"session:{bucket}", sessions.keep_fresh())
            return cls(client, bucket, settings, sessions, resources.pop_all())
        raise AssertionError("the stack swallows nothing")

    async def close(self) -> None:
        await self._resources.aclose()

    async def call(self, method: str, key: str = "", size_bytes: int = 0, **parameters: Any) -> Mapping[str, Any]:
        """One request; `size_bytes` is the size of its body or its answer's.  The body of an answer is read here."""
        if key:
            parameters["Key"] = key
        session = self._sessions.current() if self._sessions else None
        try:
            return await self._send(method, size_bytes, parameters)
        except FAILURES as error:
            if self._sessions is None or code_of(error) not in SESSION_REFUSED:
                raise self._error(error, method, key) from error
            self._sessions.forget(session)
        try:
            return await self._send(method, size_bytes, parameters)  # once, with a new session
        except FAILURES as error:
            raise self._error(error, method, key) from error

    async def _send(self, method: str, size_bytes: int, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        seconds = self._settings.request_timeout_seconds + size_bytes / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                answer: dict[str, Any] = await getattr(self._client, method)(Bucket=self._bucket, **parameters)
                if "Body" in answer:
                    async with answer["Body"] as body:
                        answer["Body"] = await body.read()
                return answer
        except KeyError as error:
            if error.args == ("Credentials",):
                raise Refused(f"{self._where}: the endpoint does not know sessions of S3 Express") from error
            raise

    def _error(self, error: BaseException, method: str, key: str) -> Exception:
        return translated(error, f"{self._where}: {method} {key}".rstrip())


@cache
def _library() -> Any:
    """One for all buckets: it keeps the tables it has loaded, which the second client then need not wait for."""
    return AioSession()


def _new_client(settings: S3Settings) -> Any:
    return _library().create_client(
        "s3",
        endpoint_url=settings.endpoint_url,
        region_name=settings.region or (DEFAULT_REGION if settings.endpoint_url else None),
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        config=_config(settings),
    )


def _config(settings: S3Settings) -> Any:
    return AioConfig(
        s3={
            "addressing_style": "path" if settings.path_style else "auto",
            "payload_signing_enabled": False,  # integrity comes from the CRC-32C, and TLS
        },
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        user_agent="wherry",
        retries={"total_max_attempts": 1},  # RetryingObjectStore is quicker, and knows what a lost answer means
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=settings.request_timeout_seconds,  # of one read; `_send` has the deadline of the request
        max_pool_connections=settings.connections_max,
        connector_args={"keepalive_timeout": KEEP_ALIVE_SECONDS},
        http_session_cls=NoHiddenRetry,
    )
