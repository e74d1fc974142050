"""What can go wrong between a broker and remote storage (KIP-405's exceptions of those names)."""

from broker.common.errors import KafkaError


class RemoteStorageError(KafkaError):
    """Remote storage did not do what it was asked; the message names the object and the reason.

    The protocol has no code for it: a client is told UNKNOWN_SERVER_ERROR (Kafka: RemoteStorageException).
    """


class RemoteResourceNotFoundError(RemoteStorageError):
    """There is no such object (Kafka: RemoteResourceNotFoundException)."""
