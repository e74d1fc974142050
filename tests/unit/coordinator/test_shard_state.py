from broker.coordinator.shard_state import VALID_PREVIOUS, ShardState


def test_the_ways_between_states() -> None:
    assert set(VALID_PREVIOUS) == set(ShardState)
    ways = {(before.name, after.name) for after, previous in VALID_PREVIOUS.items() for before in previous}
    assert ways == {
        ("INITIAL", "LOADING"),
        ("FAILED", "LOADING"),
        ("LOADING", "ACTIVE"),
        ("LOADING", "FAILED"),
        ("ACTIVE", "FAILED"),
        ("INITIAL", "CLOSED"),
        ("LOADING", "CLOSED"),
        ("ACTIVE", "CLOSED"),
        ("FAILED", "CLOSED"),
    }
