"""S3ObjectStore when the store, or the way to it, fails: what its caller is told, and how many requests were sent."""

import dataclasses
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from broker.common.chance import Chance
from broker.objectstore.errors import AccessDenied, ObjectStoreError, PreconditionFailed, Throttled, Unavailable
from broker.objectstore.retrying import RetryingObjectStore, RetryPolicy
from broker.objectstore.s3_object_store import S3ObjectStore
from tests.support.broker_process import free_port
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_server import BUCKET, SeaweedServer

pytestmark = pytest.mark.s3


@pytest.fixture
async def proxy(seaweed: SeaweedServer) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(seaweed.url) as proxy:
        yield proxy


@pytest.fixture
async def store(seaweed: SeaweedServer, proxy: S3Proxy) -> AsyncIterator[S3ObjectStore]:
    store = await S3ObjectStore.open(BUCKET, seaweed.settings(proxy.url))
    await store.probe()  # from here on its connection is a kept one
    proxy.requests.clear()
    yield store
    await store.close()


@pytest.fixture
def key() -> str:
    return f"faults/{uuid4().hex}"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("slow_down", Throttled),
        ("internal", Unavailable),
        ("denied", AccessDenied),
        ("conflict", Unavailable),
        ("bad_digest", Unavailable),
        ("reset", Unavailable),
        ("lost_reply", Unavailable),
    ],
)
async def test_a_failed_put_is_one_request_and_one_error(
    store: S3ObjectStore, proxy: S3Proxy, key: str, action: str, expected: type[ObjectStoreError]
) -> None:
    """Neither botocore nor aiohttp sends it again by itself."""
    proxy.fail(action, "PUT")
    with pytest.raises(ObjectStoreError) as caught:
        await store.put_if_absent(key, b"x")
    assert type(caught.value) is expected
    assert key in str(caught.value)
    assert proxy.requests == {"PUT": 1}


@pytest.mark.parametrize("action", ["reset", "cut", "lost_reply"])
async def test_a_broken_answer_to_a_get(store: S3ObjectStore, proxy: S3Proxy, key: str, action: str) -> None:
    await store.put(key, b"x" * 100_000)
    proxy.fail(action, "GET")
    with pytest.raises(Unavailable):
        await store.get_range(key, 0, 100_000)
    assert proxy.requests == {"PUT": 1, "GET": 1}
    assert await store.get_range(key, 0, 100_000) == b"x" * 100_000


async def test_an_answer_that_is_not_of_s3(store: S3ObjectStore, proxy: S3Proxy) -> None:
    """As hotel networks and broken proxies give it."""
    proxy.fail("garbage", "GET")
    with pytest.raises(Unavailable):
        await store.list_page("faults/")


@pytest.mark.parametrize(("method", "times"), [("PUT", 1), ("PUT", 3)])
async def test_a_put_whose_answer_was_lost_is_settled_by_a_head(
    store: S3ObjectStore, proxy: S3Proxy, key: str, method: str, times: int
) -> None:
    proxy.fail("lost_reply", method, times=times)
    await RetryingObjectStore(store, Chance(1), RetryPolicy(backoff_ms=1)).put_if_absent(key, b"mine")
    assert proxy.requests == {"PUT": times + 1, "HEAD": 1}
    assert await store.get_range(key, 0, 4) == b"mine"


async def test_a_strangers_object_is_not_taken_for_ones_own(store: S3ObjectStore, proxy: S3Proxy, key: str) -> None:
    await store.put(key, b"theirs")
    proxy.fail("reset", "PUT")
    with pytest.raises(PreconditionFailed):
        await RetryingObjectStore(store, Chance(1), RetryPolicy(backoff_ms=1)).put_if_absent(key, b"my own")
    assert await store.get_range(key, 0, 6) == b"theirs"


async def test_no_answer_ends_with_the_deadline(seaweed: SeaweedServer, proxy: S3Proxy, key: str) -> None:
    settings = dataclasses.replace(seaweed.settings(proxy.url), request_timeout_seconds=0.2)
    store = await S3ObjectStore.open(BUCKET, settings)
    proxy.fail("hang", "PUT")
    with pytest.raises(Unavailable):
        await store.put(key, b"x")
    await store.close()


async def test_nobody_there(seaweed: SeaweedServer, key: str) -> None:
    store = await S3ObjectStore.open(BUCKET, seaweed.settings(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(Unavailable):
        await store.get_range(key, 0, 1)
    with pytest.raises(Unavailable):
        await store.probe()
    await store.close()


@pytest.mark.parametrize("changed", [{"secret_key": "wrong"}, {"access_key": "unknown"}])
async def test_wrong_keys_are_told_in_clear_text(seaweed: SeaweedServer, key: str, changed: dict[str, str]) -> None:
    store = await S3ObjectStore.open(BUCKET, dataclasses.replace(seaweed.settings(), **changed))
    with pytest.raises(AccessDenied, match=r"SignatureDoesNotMatch|InvalidAccessKeyId"):
        await store.put(key, b"x")
    await store.close()


async def test_the_store_refuses_bytes_that_were_changed_on_the_way(
    store: S3ObjectStore, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.objectstore.s3_object_store.crc32c", lambda body: 12345)
    with pytest.raises(Unavailable, match=r"BadDigest|Checksum"):
        await store.put(key, b"x")
