from broker.common.identifiers import TopicPartition
from broker.tiering.remote_log_stats import RemoteLogStats


def test_a_topic_has_one_set_of_counts_until_it_is_forgotten() -> None:
    stats = RemoteLogStats()
    stats.topic("orders").copy_bytes += 7
    assert stats.topic("orders").copy_bytes == 7
    assert stats.topic("other").copy_bytes == 0
    stats.forget_topic("orders")
    stats.forget_topic("unknown")
    assert list(stats.topics) == ["other"]


def test_a_partition_has_gauges_until_it_is_forgotten() -> None:
    stats = RemoteLogStats()
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    stats.partition(first).copy_lag_bytes = 7
    assert stats.partition(first).copy_lag_bytes == 7
    assert stats.partition(second).copy_lag_bytes == 0
    stats.forget_partition(first)
    stats.forget_partition(first)
    assert list(stats.partitions) == [second]


def test_all_begins_at_zero() -> None:
    stats = RemoteLogStats()
    for counts in (stats.topic("orders"), stats.partition(TopicPartition("orders", 0))):
        assert {getattr(counts, name) for name in counts.__slots__} == {0}
    assert stats.read_seconds.count == stats.fetch_throttle_ms.count == stats.copy_throttle_ms.count == 0
