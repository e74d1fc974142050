"""S3ObjectStore: a bucket of S3, S3 Express One Zone, or of a store that speaks their language."""

import base64
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.objectstore.errors import BucketNotFound, Corrupt, NotFound
from broker.objectstore.object_keys import check_key, check_prefix
from broker.objectstore.object_store import ObjectStore
from broker.objectstore.objects import (
    DELETE_MANY_MAX,
    LIST_PAGE_MAX,
    FolderPage,
    ListPage,
    ObjectHead,
    ObjectInfo,
    Upload,
    UploadedPart,
)
from broker.objectstore.s3_client import S3Client
from broker.objectstore.s3_errors import answered
from broker.objectstore.s3_settings import S3Settings

URL_SCHEME: Final = "s3"
FULL_OBJECT: Final = "FULL_OBJECT"  # other checksums are checksums of the parts' checksums


class S3ObjectStore(ObjectStore):
    """Each body carries its CRC-32C, which the store checks and keeps.  Nothing is retried here.

    What differs between S3 and S3 Express is not used: the order of listings, prefixes that end elsewhere, resuming a
    listing by key, ETags as checksums, appends.
    """

    def __init__(self, client: S3Client, bucket: str, page_size: int = LIST_PAGE_MAX) -> None:
        self._client = client
        self._name = f"{URL_SCHEME}://{bucket}"
        self._page_size = page_size

    @classmethod
    async def open(cls, bucket: str, settings: S3Settings) -> Self:
        return cls(await S3Client.open(bucket, settings), bucket)

    @property
    def name(self) -> str:
        return self._name

    async def put(self, key: str, body: Buffer) -> None:
        await self._put(key, body, {})

    async def put_if_absent(self, key: str, body: Buffer) -> None:
        await self._put(key, body, {"IfNoneMatch": "*"})

    async def _put(self, key: str, body: Buffer, condition: Mapping[str, Any]) -> None:
        await self._client.call(
            "put_object",
            check_key(key),
            len(body),
            Body=_bytes(body),
            ChecksumCRC32C=_encoded(crc32c(body)),
            **condition,
        )

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        assert position >= 0 and size_bytes > 0, (position, size_bytes)
        wanted = f"bytes={position}-{position + size_bytes - 1}"
        answer = await self._client.call("get_object", check_key(key), size_bytes, Range=wanted)
        body: bytes = answer["Body"]
        if len(body) != size_bytes:
            raise Corrupt(f"{self._name}: {key} ends {size_bytes - len(body)} bytes before {wanted}")
        return body

    async def head(self, key: str, *, checksum: bool = False) -> ObjectHead:
        mode: Mapping[str, Any] = {"ChecksumMode": "ENABLED"} if checksum else {}
        answer = await self._client.call("head_object", check_key(key), **mode)
        crc = None
        if "ChecksumCRC32C" in answer and answer.get("ChecksumType", FULL_OBJECT) == FULL_OBJECT:
            crc = _decoded(answer["ChecksumCRC32C"])
        return ObjectHead(int(answer["ContentLength"]), _milliseconds(answer["LastModified"]), crc)

    async def list_page(self, prefix: str, continuation: str | None = None) -> ListPage:
        answer = await self._client.call("list_objects_v2", **self._listing(prefix, continuation))
        objects = [
            ObjectInfo(found["Key"], int(found["Size"]), _milliseconds(found["LastModified"]))
            for found in answer.get("Contents", ())
        ]
        return ListPage(objects, _continuation(answer))

    async def folder_page(self, prefix: str, continuation: str | None = None) -> FolderPage:
        answer = await self._client.call("list_objects_v2", **self._listing(prefix, continuation), Delimiter="/")
        return FolderPage([found["Prefix"] for found in answer.get("CommonPrefixes", ())], _continuation(answer))

    def _listing(self, prefix: str, continuation: str | None) -> dict[str, Any]:
        parameters: dict[str, Any] = {"MaxKeys": self._page_size}
        if check_prefix(prefix):
            parameters["Prefix"] = prefix
        if continuation is not None:
            parameters["ContinuationToken"] = continuation
        return parameters

    async def delete_many(self, keys: Sequence[str]) -> None:
        assert len(keys) <= DELETE_MANY_MAX, len(keys)
        if not keys:
            return
        objects = [{"Key": check_key(key)} for key in keys]
        answer = await self._client.call("delete_objects", Delete={"Objects": objects, "Quiet": True})
        if errors := answer.get("Errors"):
            first = errors[0]
            text = f"{self._name}: {len(errors)} of {len(keys)} objects were not deleted; {first.get('Key')}"
            raise answered(str(first.get("Code", "")), f"{text}: {first.get('Code')} {first.get('Message', '')}")

    async def probe(self) -> None:
        try:
            await self._client.call("head_bucket")
        except NotFound as error:  # the answer to a HEAD has no body that could name it
            raise BucketNotFound(str(error)) from error

    async def close(self) -> None:
        await self._client.close()

    async def start_upload(self, key: str) -> Upload:
        answer = await self._client.call("create_multipart_upload", check_key(key), ChecksumAlgorithm="CRC32C")
        return Upload(key, answer["UploadId"])

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        checksum = crc32c(body)
        answer = await self._client.call(
            "upload_part",
            upload.key,
            len(body),
            UploadId=upload.upload_id,
            PartNumber=number,
            Body=_bytes(body),
            ChecksumCRC32C=_encoded(checksum),
        )
        return UploadedPart(number, len(body), checksum, answer["ETag"])

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        listed = [
            {"PartNumber": part.number, "ETag": part.tag, "ChecksumCRC32C": _encoded(part.crc32c)} for part in parts
        ]
        await self._client.call(
            "complete_multipart_upload",
            upload.key,
            sum(part.size_bytes for part in parts),  # some stores copy them now
            UploadId=upload.upload_id,
            MultipartUpload={"Parts": listed},
        )

    async def abort_upload(self, upload: Upload) -> None:
        with contextlib.suppress(NotFound):  # complete, or aborted before
            await self._client.call("abort_multipart_upload", upload.key, UploadId=upload.upload_id)


def _bytes(body: Buffer) -> bytes | bytearray:
    """What the library takes; a view is copied."""
    return bytes(body) if isinstance(body, memoryview) else body


def _continuation(answer: Mapping[str, Any]) -> str | None:
    token: str | None = answer.get("NextContinuationToken") if answer.get("IsTruncated") else None
    return token


def _encoded(checksum: int) -> str:
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def _decoded(checksum: str) -> int:
    return int.from_bytes(base64.b64decode(checksum), "big")


def _milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000)
