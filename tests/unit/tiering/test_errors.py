"""What a client is told when remote storage fails."""

import pytest

from broker.common.errors import ErrorCode, StorageFailure
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError, reading_remote_storage


def test_the_protocol_has_no_code_for_it() -> None:
    assert RemoteStorageError("gone").code is ErrorCode.unknown_server_error
    assert issubclass(RemoteResourceNotFoundError, RemoteStorageError)
    assert RemoteResourceNotFoundError("gone").message == "gone"


@pytest.mark.parametrize("error", [RemoteResourceNotFoundError("gone"), StorageFailure("full")])
def test_what_is_expected_is_told_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, reading_remote_storage("it"):
        raise error
    assert raised.value is error


def test_whatever_else_a_manager_raises_is_an_error_of_remote_storage() -> None:
    defect = RuntimeError("a manager of one's own")
    with (
        pytest.raises(RemoteStorageError, match="it was not read: RuntimeError") as raised,
        reading_remote_storage("it"),
    ):
        raise defect
    assert raised.value.__cause__ is defect
