from broker.replication.topic_stats import BrokerTopicStats, TopicStats


def test_all_counts_begin_at_zero() -> None:
    stats = TopicStats()
    assert {name: getattr(stats, name) for name in TopicStats.__slots__} == dict.fromkeys(TopicStats.__slots__, 0)


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
