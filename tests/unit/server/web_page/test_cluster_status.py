import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from broker.metadata.broker_registration import BrokerRegistration, Endpoint
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import NO_LEADER, PartitionRegistration
from broker.metadata.topics_image import TopicImage, TopicsImage
from broker.server.web_page.cluster_status import PARTITIONS_PER_PAUSE, TOPICS_MAX, ClusterStatus


def partition(*replicas: int, isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas, isr=replicas if isr is None else isr, leader=replicas[0] if leader is None else leader
    )


def broker(number: int, **given: Any) -> BrokerRegistration:
    listeners = {"PLAINTEXT": Endpoint(f"host-{number}", 9092)}
    return BrokerRegistration(id=number, epoch=number, listeners=listeners, **{"fenced": False, **given})


def image(topics: dict[str, list[PartitionRegistration]], *brokers: BrokerRegistration) -> MetadataImage:
    images = [
        TopicImage(name, UUID(int=number), dict(enumerate(partitions)))
        for number, (name, partitions) in enumerate(topics.items(), 1)
    ]
    both = TopicsImage({topic.id: topic for topic in images}, {topic.name: topic for topic in images})
    return MetadataImage(offset=7, brokers={each.id: each for each in brokers}, topics=both)


def settings(topic: str) -> Any:
    return SimpleNamespace(remote_wal_enable=topic == "orders", remote_storage_enable=topic != "classic")


def status(of: MetadataImage, controller_id: int | None = 1, topic_settings: Any = settings) -> ClusterStatus:
    return ClusterStatus(lambda: of, lambda: controller_id, topic_settings)


async def test_brokers_with_what_they_lead_and_hold() -> None:
    topics = {"orders": [partition(1, 2), partition(2, 1, isr=(2,))], "classic": [partition(2, 1, leader=NO_LEADER)]}
    found = await status(
        image(topics, broker(2, fenced=True), broker(1, rack="zone-a"), broker(3, in_controlled_shutdown=True))
    ).describe()
    assert found["controller_id"] == 1
    assert found["brokers"] == [
        {
            "id": 1,
            "rack": "zone-a",
            "state": "serving",
            "listeners": {"PLAINTEXT": "host-1:9092"},
            "leads": 1,
            "replicas": 3,
            "in_sync": 2,
        },
        {
            "id": 2,
            "rack": None,
            "state": "fenced",
            "listeners": {"PLAINTEXT": "host-2:9092"},
            "leads": 1,
            "replicas": 3,
            "in_sync": 3,
        },
        {
            "id": 3,
            "rack": None,
            "state": "shutting down",
            "listeners": {"PLAINTEXT": "host-3:9092"},
            "leads": 0,
            "replicas": 0,
            "in_sync": 0,
        },
    ]
    assert (found["partition_count"], found["without_leader"], found["under_replicated"]) == (3, 1, 1)
    json.dumps(found)


async def test_topics_with_their_way_and_health_internal_ones_last() -> None:
    topics = {
        "__consumer_offsets": [partition(1)],
        "orders": [partition(1, 2), partition(1, 2, isr=(1,)), partition(1, 2, leader=NO_LEADER)],
        "classic": [],
    }
    found = await status(image(topics)).describe()
    assert [topic["name"] for topic in found["topics"]] == ["classic", "orders", "__consumer_offsets"]
    assert found["topics"][1] == {
        "name": "orders",
        "partitions": 3,
        "replicas": 2,
        "without_leader": 1,
        "under_replicated": 1,
        "through_bucket": True,
        "tiered": True,
    }
    assert (found["topics"][0]["replicas"], found["topics"][0]["tiered"]) == (0, False)


async def test_who_does_not_know_the_settings_says_so() -> None:
    found = await status(image({"orders": [partition(1)]}), topic_settings=None).describe()
    assert (found["topics"][0]["through_bucket"], found["topics"][0]["tiered"]) == (None, None)


async def test_of_very_many_topics_some_are_shown_and_all_are_counted() -> None:
    topics = {f"t-{number:04}": [partition(1, 2, isr=(1,))] for number in range(TOPICS_MAX + 50)}
    found = await status(image(topics)).describe()
    assert len(found["topics"]) == TOPICS_MAX
    assert (found["topic_count"], found["under_replicated"]) == (TOPICS_MAX + 50, TOPICS_MAX + 50)


async def test_an_image_is_described_once_and_the_controller_asked_each_time() -> None:
    images = [image({"a": [partition(1)]})]
    leaders: list[int | None] = [1]
    asked: list[str] = []

    def topic_settings(topic: str) -> Any:
        asked.append(topic)
        return settings(topic)

    described = ClusterStatus(lambda: images[-1], lambda: leaders[-1], topic_settings)
    await described.describe()
    leaders.append(None)
    assert (await described.describe())["controller_id"] is None
    assert asked == ["a"]
    images.append(image({"a": [partition(1)], "b": [partition(1)]}))
    assert (await described.describe())["topic_count"] == 2
    assert asked == ["a", "a", "b"]


async def test_others_run_while_very_many_partitions_are_counted() -> None:
    topics = {f"t-{number}": [partition(1)] * (PARTITIONS_PER_PAUSE // 2) for number in range(8)}
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await status(image(topics)).describe()
    counting.cancel()
    assert turns == 3
