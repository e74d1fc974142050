"""Which errors are worth another attempt."""

import pytest

from broker.objectstore.errors import (
    AccessDenied,
    BucketNotFound,
    CircuitOpen,
    Corrupt,
    NotFound,
    ObjectStoreError,
    PreconditionFailed,
    Refused,
    Throttled,
    Unavailable,
)


def test_only_what_may_pass_is_retriable() -> None:
    kinds = [Refused, AccessDenied, BucketNotFound, CircuitOpen, Corrupt, NotFound, PreconditionFailed]
    assert not any(kind.retriable for kind in kinds)
    assert Throttled.retriable and Unavailable.retriable


@pytest.mark.parametrize("kind", [AccessDenied, BucketNotFound, CircuitOpen])
def test_a_bucket_that_cannot_be_used_is_unavailable(kind: type[ObjectStoreError]) -> None:
    assert issubclass(kind, Unavailable)
    assert not issubclass(kind, NotFound)
