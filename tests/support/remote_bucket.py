"""The bucket of a tiered cluster as an operator sees it: a directory all brokers share, or one of an S3 server."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from tests.support.directories import files_under
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY, SeaweedServer

S3_BUCKET: Final = "tiered"
_KEY: Final = re.compile(
    r"tiered/[^/]+/(?P<topic>[^/]+)-(?P<partition>\d+)-[A-Za-z0-9_-]{22}/(?P<base>\d{20})-[A-Za-z0-9_-]{22}(?P<kind>\..+)"
)


class RemoteObject(NamedTuple):
    """One file of a remote segment; `kind` is the end of its name."""

    key: str
    base_offset: int
    kind: str


class RemoteBucket(Protocol):
    @property
    def settings(self) -> Mapping[str, str]:
        """How a broker is told of it."""

    def names(self) -> list[str]: ...
    def read(self, key: str) -> bytes: ...
    def delete(self, key: str) -> None: ...


class SharedDirectory:
    """A bucket that is a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self.settings = {
            "remote.log.storage.manager.class.name": "LocalTieredStorage",
            "rsm.config.bucket": f"file://{directory}",
        }

    def names(self) -> list[str]:
        return [str(path.relative_to(self._directory)) for path in files_under(self._directory)]

    def read(self, key: str) -> bytes:
        return (self._directory / key).read_bytes()

    def delete(self, key: str) -> None:
        (self._directory / key).unlink()


class S3Bucket:
    """A bucket of a running SeaweedFS."""

    def __init__(self, server: SeaweedServer) -> None:
        self._client: Any = server.client()
        self.settings = {
            "remote.log.storage.manager.class.name": "S3RemoteStorageManager",
            "rsm.config.bucket": f"s3://{S3_BUCKET}",
            "rsm.config.endpoint.url": server.url,
            "rsm.config.region": REGION,
            "rsm.config.access.key": ACCESS_KEY,
            "rsm.config.secret.key": SECRET_KEY,
            "rsm.config.path.style": "true",
        }

    def names(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=S3_BUCKET)
        return sorted(row["Key"] for page in pages for row in page.get("Contents", ()))

    def read(self, key: str) -> bytes:
        return bytes(self._client.get_object(Bucket=S3_BUCKET, Key=key)["Body"].read())

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=S3_BUCKET, Key=key)


def objects_of(bucket: RemoteBucket, topic: str, partition: int = 0) -> list[RemoteObject]:
    """What is there of a partition, of all topics that have or had that name."""
    parsed = [match for key in bucket.names() if (match := _KEY.fullmatch(key)) is not None]
    return [
        RemoteObject(match[0], int(match["base"]), match["kind"])
        for match in parsed
        if match["topic"] == topic and int(match["partition"]) == partition
    ]


def segments_of(bucket: RemoteBucket, topic: str, partition: int = 0) -> list[int]:
    """The first offset of each segment whose records are there, in order."""
    return sorted(each.base_offset for each in objects_of(bucket, topic, partition) if each.kind == ".log")


@contextmanager
def running_bucket(kind: str, directory: Path) -> Iterator[RemoteBucket]:
    """Of kind "directory", or "s3", which starts a server."""
    if kind == "directory":
        yield SharedDirectory(directory / "bucket")
        return
    with SeaweedServer(directory / "s3", [S3_BUCKET]) as server:
        yield S3Bucket(server)
