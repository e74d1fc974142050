"""What a client is told when remote storage fails."""

from broker.common.errors import ErrorCode
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError


def test_the_protocol_has_no_code_for_it() -> None:
    assert RemoteStorageError("gone").code is ErrorCode.unknown_server_error
    assert issubclass(RemoteResourceNotFoundError, RemoteStorageError)
    assert RemoteResourceNotFoundError("gone").message == "gone"
