from broker.coordinator.group.group_state import VALID_PREVIOUS, GroupState


def test_the_ways_between_states() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
    ways = {(before.value, after.value) for after, previous in VALID_PREVIOUS.items() for before in previous}
    assert ways == {
        ("PreparingRebalance", "Empty"),
        ("Stable", "PreparingRebalance"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("Empty", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("CompletingRebalance", "Stable"),
        *((state.value, "Dead") for state in GroupState),
    }
