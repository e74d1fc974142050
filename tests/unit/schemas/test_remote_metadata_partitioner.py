import pytest

from broker.common.identifiers import uuid_from_text
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of


@pytest.mark.parametrize(
    ("topic_id", "places"),
    [
        ("AAECAwQFBgcICQoLDA0ODw", [45, 3, 5]),
        ("AAAAAAAAAAAAAAAAAAAAAQ", [35, 6, 18]),
        ("jL88s9s9SsG_PNqlwvv7AA", [39, 34, 0]),
    ],
)
def test_user_partitions_go_where_kafka_puts_them(topic_id: str, places: list[int]) -> None:
    assert [metadata_partition_of(uuid_from_text(topic_id), partition, 50) for partition in range(3)] == places


def test_each_broker_has_one_partition_for_its_combined_events() -> None:
    assert [combined_event_partition_of(broker_id, 50) for broker_id in range(3)] == [20, 40, 43]


def test_every_partition_is_within_the_topic() -> None:
    assert {combined_event_partition_of(broker_id, 3) for broker_id in range(50)} == {0, 1, 2}
