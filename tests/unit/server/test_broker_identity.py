import dataclasses

import pytest

from tests.unit.server.link_support import IDENTITY


def test_an_identity_never_changes() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        IDENTITY.node_id = 2  # type: ignore[misc]
    assert IDENTITY.rack is None
