"""ExpressSessions, on the real library's cache: whoever upgrades it learns here what has moved."""

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiobotocore.session import AioSession

from broker.common.tasks import BackgroundTasks
from broker.objectstore.errors import Unavailable
from broker.objectstore.s3_express_sessions import ExpressSessions
from tests.support.sim_loop import SimLoop, simulate

BUCKET = "wal--use1-az4--x-s3"
FAR = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


class Server:
    """Answers CreateSession."""

    def __init__(self) -> None:
        self.created = 0
        self.error: Exception | None = None

    async def create_session(self, **parameters: Any) -> dict[str, Any]:
        assert parameters == {"Bucket": BUCKET}
        if self.error is not None:
            raise self.error
        self.created += 1
        token = f"session-{self.created}"
        keys = {"AccessKeyId": "a", "SecretAccessKey": "s", "SessionToken": token, "Expiration": FAR}
        return {"Credentials": keys}


@contextlib.asynccontextmanager
async def library_client(server: Server) -> AsyncIterator[Any]:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s"}
    async with AioSession().create_client("s3", region_name="us-east-1", **keys) as client:
        client.create_session = server.create_session
        yield client


async def use(sessions: ExpressSessions) -> tuple[Any, str]:
    """As a request does: the mark of the session it found, and the token it sends."""
    mark = sessions.current()
    credentials = await sessions._cache.get_credentials(BUCKET)
    return mark, await credentials.get_token()


async def test_a_refused_session_is_forgotten_once() -> None:
    server = Server()
    async with library_client(server) as client:
        sessions = ExpressSessions(client, BUCKET)
        assert await use(sessions) == (None, "session-1")
        first, token = await use(sessions)
        assert token == "session-1"
        sessions.forget(first)
        assert await use(sessions) == (None, "session-2")
        sessions.forget(first)  # another request that was refused with it
        assert (await use(sessions))[1] == "session-2"


def test_a_session_in_use_is_replaced_in_time_and_an_idle_one_is_not() -> None:
    async def story(loop: SimLoop) -> None:
        server = Server()
        async with library_client(server) as client, BackgroundTasks("test") as tasks:
            sessions = ExpressSessions(client, BUCKET, refresh_seconds=200)
            tasks.start("refresh", sessions.keep_fresh())
            await asyncio.sleep(1000)
            assert server.created == 0
            await use(sessions)
            await asyncio.sleep(201)
            assert server.created == 2
            assert (await use(sessions))[1] == "session-2"
            server.error = ConnectionResetError()
            await asyncio.sleep(201)
            server.error = None
            assert (await use(sessions))[1] == "session-2"  # the old one, while it lives
            await asyncio.sleep(201)
            assert (await use(sessions))[1] == "session-3"

    simulate(story)


async def test_a_library_that_keeps_its_sessions_elsewhere_is_told_from_one_that_has_none() -> None:
    async with library_client(Server()) as client:
        for handler in client.meta.events._emitter._handlers.prefix_search("before-sign.s3"):
            client.meta.events.unregister("before-sign.s3", handler)
        with pytest.raises(Unavailable, match="elsewhere"):
            ExpressSessions(client, BUCKET)
