"""What an object store can answer instead of doing what it was asked."""

from typing import ClassVar


class ObjectStoreError(Exception):
    """The store did not do what it was asked; the message names the object and the reason."""

    retriable: ClassVar[bool] = False  # whether the same request may succeed when it is sent again


class NotFound(ObjectStoreError):
    """There is no object (or upload) of that name.  A missing bucket is `BucketNotFound`."""


class PreconditionFailed(ObjectStoreError):
    """An object of that name is there already."""


class Corrupt(ObjectStoreError):
    """The object is shorter than what was asked of it.

    Bytes are not judged here: S3 gives no checksum with a range, so whoever reads one checks the CRC of what is in it.
    """


class Throttled(ObjectStoreError):
    """The store is there, and asks for fewer requests (503 SlowDown)."""

    retriable = True


class Unavailable(ObjectStoreError):
    """No answer, or a failure of the store.  Whether a write was done is unknown."""

    retriable = True


class Refused(Unavailable):
    """The store will not do it, however often it is asked."""

    retriable = False


class AccessDenied(Refused):
    """The credentials are missing, wrong or not entitled."""


class BucketNotFound(Refused):
    """There is no bucket, or directory, of that name."""


class CircuitOpen(Refused):
    """The bucket failed lately and is left alone for a moment: nothing was sent."""
