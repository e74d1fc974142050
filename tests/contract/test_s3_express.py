"""S3 Express One Zone: sessions, and the rules of directory buckets, by a shim that holds us to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest

from broker.objectstore.errors import Refused
from broker.objectstore.s3_client import S3Client
from broker.objectstore.s3_object_store import S3ObjectStore
from tests.support.express_shim import ExpressShim
from tests.support.patience import eventually
from tests.support.s3_server import ACCESS_KEY, EXPRESS_BUCKET, SECRET_KEY, MotoServer, SeaweedServer

pytestmark = pytest.mark.s3


@contextlib.asynccontextmanager
async def express(
    seaweed: SeaweedServer, *, life_seconds: float = 300, refresh_seconds: float = 200
) -> AsyncIterator[tuple[ExpressShim, S3ObjectStore]]:
    async with ExpressShim(seaweed.url, ACCESS_KEY, SECRET_KEY, life_seconds) as shim:
        client = await S3Client.open(EXPRESS_BUCKET, seaweed.settings(shim.url), refresh_seconds)
        yield shim, S3ObjectStore(client, EXPRESS_BUCKET)
        await client.close()


async def test_forty_first_puts_share_one_session(seaweed: SeaweedServer) -> None:
    async with express(seaweed) as (shim, store):
        await asyncio.gather(*(store.put(f"first/{number}", b"x") for number in range(40)))
        assert (shim.sessions_created, shim.requests_with_session) == (1, 40)


@pytest.mark.parametrize("end", ["revoke_sessions", "expire_sessions"])
async def test_a_refused_session_is_replaced_once_and_nobody_fails(seaweed: SeaweedServer, end: str) -> None:
    async with express(seaweed) as (shim, store):
        await store.put("refused/first", b"x")
        getattr(shim, end)()
        await asyncio.gather(*(store.put(f"refused/{number}", b"x") for number in range(10)))
        assert shim.sessions_created == 2
        assert 1 <= shim.sessions_refused <= 10


async def test_sessions_of_twenty_seconds_revoked_in_the_middle_of_a_run(seaweed: SeaweedServer) -> None:
    async with express(seaweed, life_seconds=20) as (shim, store):

        async def write(task: int) -> None:
            for number in range(20):
                key = f"run/{task}-{number}"
                await store.put(key, key.encode())
                assert await store.get_range(key, 0, len(key)) == key.encode()

        async def revoke() -> None:
            await eventually(lambda: shim.requests_with_session >= 60, "60 requests", every_s=0.001)
            shim.revoke_sessions()

        await asyncio.gather(revoke(), *(write(task) for task in range(4)))
        assert shim.sessions_created >= 2
        keys = {found.key async for found in store.list("run/")}
        assert keys >= {f"run/{task}-{number}" for task in range(4) for number in range(20)}


async def test_a_session_in_use_is_replaced_before_its_end_and_an_idle_one_is_not(seaweed: SeaweedServer) -> None:
    async with express(seaweed, refresh_seconds=0.3) as (shim, store):
        await asyncio.sleep(0.5)
        assert shim.sessions_created == 0  # nothing was asked
        await store.put("fresh/a", b"x")
        await eventually(lambda: shim.sessions_created >= 2, "the session is replaced")
        requests = shim.requests.total()
        await asyncio.sleep(1)
        assert shim.requests.total() == requests
        await store.put("fresh/b", b"x")
        assert (await store.head("fresh/b")).size_bytes == 1


async def test_a_refresh_that_fails_leaves_the_session(seaweed: SeaweedServer) -> None:
    async with express(seaweed, refresh_seconds=0.05) as (shim, store):
        await store.put("unrefreshed/a", b"x")
        shim.fail("slow_down", "GET", path="session", times=1)
        await eventually(lambda: shim.requests["GET"] >= 2, "the session was to be refreshed")
        await store.put("unrefreshed/b", b"x")
        assert shim.sessions_refused == 0


async def test_an_endpoint_without_sessions_says_so(moto: MotoServer) -> None:
    store = await S3ObjectStore.open(EXPRESS_BUCKET, moto.settings())
    with pytest.raises(Refused, match="sessions of S3 Express"):
        await store.put("a", b"x")
    await store.close()


@pytest.mark.parametrize(
    ("query", "status"),
    [("prefix=a", 400), ("prefix=a/&delimiter=x", 400), ("prefix=a/&start-after=a/b", 501)],
)
async def test_the_shim_holds_to_the_rules_of_listings(seaweed: SeaweedServer, query: str, status: int) -> None:
    async with express(seaweed) as (shim, store):
        await store.put("a/b", b"x")
        token = {"x-amz-s3session-token": "session-1"}
        async with aiohttp.ClientSession(headers=token) as session:
            async with session.get(f"{shim.url}/{EXPRESS_BUCKET}?list-type=2&{query}") as answer:
                assert answer.status == status
            async with session.put(
                f"{shim.url}/{EXPRESS_BUCKET}/a/b", data=b"y", headers={"x-amz-write-offset-bytes": "1"}
            ) as answer:
                assert answer.status == 501


async def test_listings_come_in_no_order(seaweed: SeaweedServer) -> None:
    async with express(seaweed) as (_, store):
        keys = [f"order/{number:02}" for number in range(30)]
        await asyncio.gather(*(store.put(key, b"x") for key in keys))
        found = [each.key async for each in store.list("order/")]
        assert sorted(found) == keys
        assert found != keys
