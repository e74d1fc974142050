"""What can go wrong between a broker and remote storage (KIP-405's exceptions of those names)."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from broker.common.errors import KafkaError

log = structlog.get_logger(__name__)


class RemoteStorageError(KafkaError):
    """Remote storage did not do what it was asked; the message names the object and the reason.

    The protocol has no code for it: a client is told UNKNOWN_SERVER_ERROR (Kafka: RemoteStorageException).
    """


class RemoteResourceNotFoundError(RemoteStorageError):
    """There is no such object (Kafka: RemoteResourceNotFoundException)."""


@contextmanager
def reading_remote_storage(what: str) -> Iterator[None]:
    """A storage manager of one's own may raise anything: whoever waits is told RemoteStorageError, the log the rest."""
    try:
        yield
    except KafkaError:
        raise
    except Exception as error:
        log.exception("remote_storage_manager_failed", what=what)
        raise RemoteStorageError(f"{what} was not read: {error!r}") from error
