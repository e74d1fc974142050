"""S3ObjectStore: the requests it makes, and how it reads their answers.  What it promises is in tests/contract."""

import datetime
from collections.abc import Mapping
from typing import Any, cast

import pytest

from broker.objectstore.errors import AccessDenied, BucketNotFound, Corrupt, NotFound
from broker.objectstore.objects import (
    DELETE_MANY_MAX,
    FolderPage,
    ListPage,
    ObjectHead,
    ObjectInfo,
    Upload,
    UploadedPart,
)
from broker.objectstore.s3_client import S3Client
from broker.objectstore.s3_object_store import S3ObjectStore

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
MOMENT_MS = 1_767_323_045_000
BODY = b"123456789"  # the check value of CRC-32C is that of these bytes
CRC = 0xE3069283
CHECKSUM = "4waSgw=="  # big-endian, in base 64


class FakeClient:
    """Notes requests and gives the answers it was told."""

    def __init__(self, *answers: Mapping[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, int, dict[str, Any]]] = []

    async def call(self, method: str, key: str = "", size_bytes: int = 0, **parameters: Any) -> Mapping[str, Any]:
        self.requests.append((method, key, size_bytes, parameters))
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return answer


def make(*answers: Mapping[str, Any] | Exception) -> tuple[FakeClient, S3ObjectStore]:
    client = FakeClient(*answers)
    return client, S3ObjectStore(cast(S3Client, client), "wal", page_size=2)


async def test_bodies_carry_their_checksum() -> None:
    client, store = make()
    await store.put("a", BODY)
    await store.put_if_absent("a", memoryview(BODY))
    body = {"Body": BODY, "ChecksumCRC32C": CHECKSUM}
    assert client.requests == [
        ("put_object", "a", 9, body),
        ("put_object", "a", 9, {**body, "IfNoneMatch": "*"}),
    ]


async def test_ranges_are_inclusive_and_exact() -> None:
    client, store = make({"Body": b"0123"}, {"Body": b"01"})
    assert await store.get_range("a", 10, 4) == b"0123"
    assert client.requests == [("get_object", "a", 4, {"Range": "bytes=10-13"})]
    with pytest.raises(Corrupt, match="a ends 2 bytes before bytes=10-13"):
        await store.get_range("a", 10, 4)


@pytest.mark.parametrize(
    ("answer", "crc"),
    [
        ({}, None),
        ({"ChecksumCRC32C": CHECKSUM}, CRC),
        ({"ChecksumCRC32C": CHECKSUM, "ChecksumType": "FULL_OBJECT"}, CRC),
        ({"ChecksumCRC32C": f"{CHECKSUM}-2", "ChecksumType": "COMPOSITE"}, None),
    ],
)
async def test_heads(answer: Mapping[str, Any], crc: int | None) -> None:
    client, store = make({"ContentLength": 7, "LastModified": MOMENT, **answer})
    assert await store.head("a", checksum=True) == ObjectHead(7, MOMENT_MS, crc)
    assert client.requests == [("head_object", "a", 0, {"ChecksumMode": "ENABLED"})]


async def test_pages_go_on_by_token_alone() -> None:
    first = {
        "Contents": [{"Key": "p/b", "Size": 1, "LastModified": MOMENT}],
        "IsTruncated": True,
        "NextContinuationToken": "t",
    }
    client, store = make(first, {"IsTruncated": False})
    assert await store.list_page("p/") == ListPage([ObjectInfo("p/b", 1, MOMENT_MS)], "t")
    assert await store.list_page("", "t") == ListPage([], None)
    assert client.requests == [
        ("list_objects_v2", "", 0, {"MaxKeys": 2, "Prefix": "p/"}),
        ("list_objects_v2", "", 0, {"MaxKeys": 2, "ContinuationToken": "t"}),
    ]


async def test_folders_are_what_keys_have_in_common() -> None:
    first = {"CommonPrefixes": [{"Prefix": "p/a/"}], "IsTruncated": True, "NextContinuationToken": "t"}
    client, store = make(first, {"IsTruncated": False})
    assert await store.folder_page("p/") == FolderPage(["p/a/"], "t")
    assert await store.folder_page("p/", "t") == FolderPage([], None)
    assert client.requests == [
        ("list_objects_v2", "", 0, {"MaxKeys": 2, "Prefix": "p/", "Delimiter": "/"}),
        ("list_objects_v2", "", 0, {"MaxKeys": 2, "Prefix": "p/", "ContinuationToken": "t", "Delimiter": "/"}),
    ]


async def test_deletions_that_failed_are_told() -> None:
    client, store = make({}, {"Errors": [{"Key": "b", "Code": "AccessDenied", "Message": "no"}]})
    await store.delete_many([])
    await store.delete_many(["a"])
    assert client.requests == [("delete_objects", "", 0, {"Delete": {"Objects": [{"Key": "a"}], "Quiet": True}})]
    with pytest.raises(AccessDenied, match="1 of 2 objects were not deleted; b: AccessDenied no"):
        await store.delete_many(["a", "b"])
    with pytest.raises(AssertionError):
        await store.delete_many(["a"] * (DELETE_MANY_MAX + 1))


async def test_a_probe_that_finds_no_bucket() -> None:
    client, store = make({}, NotFound("s3://wal: head_bucket: 404 Not Found"))
    await store.probe()
    assert client.requests == [("head_bucket", "", 0, {})]
    with pytest.raises(BucketNotFound):
        await store.probe()


async def test_an_upload() -> None:
    client, store = make({"UploadId": "u"}, {"ETag": '"e"'}, {}, NotFound("gone"))
    upload = await store.start_upload("a")
    part = await store.upload_part(upload, 1, 0, bytearray(BODY))
    assert (upload, part) == (Upload("a", "u"), UploadedPart(1, 9, CRC, '"e"'))
    await store.complete_upload(upload, [part])
    await store.abort_upload(upload)
    listed = [{"PartNumber": 1, "ETag": '"e"', "ChecksumCRC32C": CHECKSUM}]
    part_parameters = {"UploadId": "u", "PartNumber": 1, "Body": BODY, "ChecksumCRC32C": CHECKSUM}
    assert client.requests == [
        ("create_multipart_upload", "a", 0, {"ChecksumAlgorithm": "CRC32C"}),
        ("upload_part", "a", 9, part_parameters),
        ("complete_multipart_upload", "a", 9, {"UploadId": "u", "MultipartUpload": {"Parts": listed}}),
        ("abort_multipart_upload", "a", 0, {"UploadId": "u"}),
    ]
