from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.server.metadata_publisher import MetadataPublisher, PublishingStage
from tests.unit.server.link_support import broker_record, image_with


def test_the_cache_is_swapped_first_and_stages_follow_in_order() -> None:
    cache = MetadataCache()
    publisher = MetadataPublisher(cache)
    heard: list[tuple[str, int, int]] = []

    def subscriber(name: str) -> None:
        stage = PublishingStage[name.rstrip("2")]
        publisher.subscribe(
            stage, name, lambda _, image: heard.append((name, cache.image.offset, publisher.published_offset))
        )

    for name in ("CONFIGS", "COORDINATORS", "REPLICAS", "REPLICAS2"):
        subscriber(name)
    publisher.publish(MetadataDelta(MetadataImage.EMPTY), image_with(offset=9))
    assert heard == [("REPLICAS", 9, -1), ("REPLICAS2", 9, -1), ("COORDINATORS", 9, -1), ("CONFIGS", 9, -1)]
    assert publisher.published_offset == 9


def test_one_that_fails_keeps_nobody_else_from_hearing() -> None:
    publisher = MetadataPublisher(MetadataCache())
    heard: list[int] = []

    def fail(delta: MetadataDelta, image: MetadataImage) -> None:
        raise RuntimeError("no")

    publisher.subscribe(PublishingStage.REPLICAS, "broken", fail)
    publisher.subscribe(PublishingStage.CONFIGS, "sound", lambda _, image: heard.append(image.offset))
    publisher.publish(MetadataDelta(MetadataImage.EMPTY), image_with(offset=4))
    assert (heard, publisher.error_count, publisher.published_offset) == ([4], 1, 4)


async def test_preparations_are_awaited_and_a_failed_one_is_counted() -> None:
    publisher = MetadataPublisher(MetadataCache())
    prepared: list[int] = []

    async def fail(delta: MetadataDelta, image: MetadataImage) -> None:
        raise RuntimeError("no")

    async def prepare(delta: MetadataDelta, image: MetadataImage) -> None:
        prepared.append(image.offset)

    publisher.prepare_with("broken", fail)
    publisher.prepare_with("sound", prepare)
    await publisher.prepare(MetadataDelta(MetadataImage.EMPTY), image_with(offset=4))
    assert (prepared, publisher.error_count, publisher.published_offset) == ([4], 1, -1)


async def test_what_is_held_is_told_as_one_change_when_it_is_released() -> None:
    """A broker that starts must not lead by an image older than its own registration."""
    cache = MetadataCache()
    publisher = MetadataPublisher(cache)
    heard: list[tuple[str, int, tuple[int, ...]]] = []

    async def prepare(delta: MetadataDelta, image: MetadataImage) -> None:
        heard.append(("prepared", image.offset, tuple(delta.changed_brokers)))

    publisher.prepare_with("logs", prepare)
    publisher.subscribe(
        PublishingStage.REPLICAS,
        "replicas",
        lambda delta, image: heard.append(("told", image.offset, tuple(delta.changed_brokers))),
    )
    publisher.hold()
    for offset in (4, 9):
        image = image_with(broker_record(1), offset=offset)
        delta = MetadataDelta.between(cache.image, image)
        await publisher.prepare(delta, image)
        publisher.publish(delta, image)
    assert (heard, cache.image.offset, publisher.published_offset) == ([], 9, 9)
    await publisher.release()
    assert heard == [("prepared", 9, (1,)), ("told", 9, (1,))]
    publisher.publish(MetadataDelta(cache.image), image_with(offset=10))
    assert heard[2:] == [("told", 10, ())]
