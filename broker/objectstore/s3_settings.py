"""S3Settings: how a bucket of S3 is reached."""

from dataclasses import dataclass
from typing import Final

DIRECTORY_BUCKET_SUFFIX: Final = "--x-s3"


def is_directory_bucket(bucket: str) -> bool:
    """Whether it is one of S3 Express One Zone; its name says so."""
    return bucket.endswith(DIRECTORY_BUCKET_SUFFIX)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Without keys the usual chain of AWS is asked: environment, profile, role of the machine.

    `endpoint_url` names a compatible store instead of AWS.  For a directory bucket it must be an IP address, or a name
    whose subdomains resolve: the client puts the bucket before a host name whatever `path_style` says.
    """

    endpoint_url: str | None = None
    region: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    path_style: bool = False
    connections_max: int = 64
    connect_timeout_seconds: float = 1
    request_timeout_seconds: float = 2  # from sending to the end of the answer; a large body gets more

    def __repr__(self) -> str:
        return f"S3Settings(endpoint_url={self.endpoint_url!r}, region={self.region!r}, keys are not shown)"
