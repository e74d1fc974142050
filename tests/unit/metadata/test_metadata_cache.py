from broker.common.identifiers import TopicPartition
from broker.metadata.broker_registration import Endpoint
from broker.metadata.metadata_cache import AliveBroker, MetadataCache
from broker.metadata.metadata_image import MetadataImage
from tests.unit.metadata.image_support import TOPIC, broker_record, full_image, image_of


def cache_of(image: MetadataImage) -> MetadataCache:
    cache = MetadataCache()
    cache.set_image(image)
    return cache


def test_topics_by_name_and_id() -> None:
    cache = cache_of(full_image())
    assert (cache.topic_id("t"), cache.topic_name(TOPIC)) == (TOPIC, "t")
    assert (cache.topic_id("x"), cache.topic_name(broker_record(1).incarnation_id)) == (None, None)
    assert (cache.partition_count("t"), cache.partition_count("x")) == (2, None)
    partition = cache.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition.leader == 1
    assert cache.topic_config_overrides("t") == {"retention.ms": "1000"}


def test_alive_brokers_are_unfenced_and_have_the_listener() -> None:
    cache = cache_of(image_of(broker_record(3, rack="b"), base=full_image()))
    expected = [AliveBroker(1, "host-1", 9092, "a"), AliveBroker(3, "host-3", 9092, "b")]
    assert cache.alive_brokers("PLAINTEXT") == expected
    assert cache.alive_brokers("OTHER") == []
    assert cache.broker_endpoint(1, "PLAINTEXT") == Endpoint("host-1", 9092)
    assert cache.broker_endpoint(2, "PLAINTEXT") is None
    broker = cache.broker(2)
    assert broker is not None
    assert broker.fenced
    assert (cache.rack_of(1), cache.rack_of(3), cache.rack_of(9)) == ("a", "b", None)


def test_listeners_hear_of_each_image_until_they_leave() -> None:
    cache = MetadataCache()
    heard: list[int] = []

    def listen(image: MetadataImage) -> None:
        assert cache.image is image
        heard.append(image.offset)

    cache.add_listener(listen)
    cache.set_image(full_image())
    cache.remove_listener(listen)
    cache.set_image(image_of(offset=200, base=full_image()))
    assert heard == [100]
