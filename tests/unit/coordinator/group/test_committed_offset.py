from broker.coordinator.group.committed_offset import CommittedOffset


def test_without_an_expiry_of_its_own() -> None:
    offset = CommittedOffset(42, 7, "m", 1000)
    assert (offset.expire_timestamp_ms, offset.record_offset) == (-1, -1)
