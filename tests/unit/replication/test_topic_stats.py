from broker.replication.topic_stats import BrokerTopicStats, ReplicationPath, TopicStats


def test_all_counts_begin_at_zero() -> None:
    stats = TopicStats()
    by_path = {"received_bytes", "sent_bytes"}
    counts = {name: getattr(stats, name) for name in TopicStats.__slots__ if name not in by_path}
    assert counts == dict.fromkeys(counts, 0)
    assert stats.received_bytes == stats.sent_bytes == {}


def test_bytes_received_count_by_path_and_sender_and_those_of_a_bucket_are_not_fetched_from_a_leader() -> None:
    stats = TopicStats()
    stats.count_received(ReplicationPath.FETCH, 1, 10)
    stats.count_received(ReplicationPath.FETCH, 1, 20)
    stats.count_received(ReplicationPath.FALLBACK, 2, 3)
    stats.count_received(ReplicationPath.WAL, 1, 400)
    assert stats.received_bytes == {("fetch", 1): 30, ("fallback", 2): 3, ("wal", 1): 400}
    assert stats.replication_bytes_in == 33


def test_bytes_sent_count_by_path_and_follower() -> None:
    stats = TopicStats()
    stats.count_sent(ReplicationPath.FETCH, 2, 10)
    stats.count_sent(ReplicationPath.FETCH, 2, 20)
    stats.count_sent(ReplicationPath.FALLBACK, 3, 4)
    assert stats.sent_bytes == {("fetch", 2): 30, ("fallback", 3): 4}
    assert stats.replication_bytes_out == 34


def test_senseless_broker_ids_do_not_fill_memory() -> None:
    stats = TopicStats()
    for broker_id in range(1500):
        stats.count_received(ReplicationPath.FETCH, broker_id, 1)
    assert len(stats.received_bytes) == 1000
    assert stats.replication_bytes_in == 1500


def test_unknown_topics_are_counted_together() -> None:
    stats = BrokerTopicStats()
    hosted = stats.of("t")
    assert stats.of("t") is hosted
    assert stats.find("t") is hosted
    assert stats.find("x") is stats.unknown
    assert list(stats.topics) == ["t"]
    stats.remove("t")
    stats.remove("t")
    assert stats.find("t") is stats.unknown
