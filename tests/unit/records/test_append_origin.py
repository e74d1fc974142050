from broker.records.append_origin import AppendOrigin


def test_kafkas_four_origins() -> None:
    assert [origin.name for origin in AppendOrigin] == ["CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"]
