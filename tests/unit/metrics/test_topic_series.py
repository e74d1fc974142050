from types import SimpleNamespace

from broker.metrics.registry import MetricsRegistry
from broker.metrics.topic_series import collected_by_topic, topic_counter


def test_a_count_is_read_by_topic_under_its_name_in_kafka() -> None:
    registry = MetricsRegistry()
    topics = {"t": SimpleNamespace(bytes_in=3)}
    topic_counter(registry, "BytesInPerSec", "bytes_in", "Bytes.", topics.items)
    value = registry.prometheus.get_sample_value
    assert value("kafka_server_brokertopicmetrics_bytesin_total", {"topic": "t"}) == 3
    topics["u"] = SimpleNamespace(bytes_in=5)
    assert value("kafka_server_brokertopicmetrics_bytesin_total", {"topic": "u"}) == 5
    definition = registry.definitions[-1]
    assert definition.bean == "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=*"


def test_a_gauge_has_no_total_in_its_name() -> None:
    registry = MetricsRegistry()
    collected_by_topic(registry, "gauge", "RemoteCopyLagBytes", "Bytes.", lambda: [(("t",), 7)])
    assert (
        registry.prometheus.get_sample_value("kafka_server_brokertopicmetrics_remotecopylagbytes", {"topic": "t"}) == 7
    )
