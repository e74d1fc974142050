from broker.coordinator.coordinator_shard import SnapshotChunk


def test_a_chunk_says_whether_its_records_are_replayed() -> None:
    chunk = SnapshotChunk(["record"], False)
    assert (chunk.records, chunk.is_replayed) == (["record"], False)
