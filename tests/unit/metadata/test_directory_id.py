from uuid import UUID

from broker.metadata.directory_id import LOST, MIGRATING, UNASSIGNED, is_online, is_reserved

MINE, OTHER = UUID(int=0x1234), UUID(int=0x5678)


def test_the_first_hundred_are_reserved() -> None:
    assert is_reserved(UUID(int=99))
    assert not is_reserved(UUID(int=100))


def test_online_means_registered_or_not_known_yet() -> None:
    assert is_online(MINE, (MINE,))
    assert not is_online(OTHER, (MINE,))
    assert is_online(OTHER, ())
    assert is_online(UNASSIGNED, (MINE,))
    assert is_online(MIGRATING, (MINE,))
    assert not is_online(LOST, (MINE,))
    assert not is_online(LOST, ())
