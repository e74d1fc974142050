import asyncio
from collections.abc import Callable, Sequence

from broker.common.metadata_topic import MetadataRecord
from broker.common.tasks import BackgroundTasks
from broker.server.metadata_topic.topic_histories import TopicHistories
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.metadata_topic_support import World, address, metadata


class Setup(World):
    """Partition 0 and 1 have a leader that cannot be reached yet: nothing is fetched."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.reachable.clear()
        self.told: list[tuple[int, Sequence[MetadataRecord]]] = []
        self.histories = TopicHistories(
            self.routes,
            lambda leader: None,  # type: ignore[arg-type,return-value]
            BackgroundTasks("test"),
            lambda: 5,
            lambda partition, records: self.told.append((partition, records)),
        )

    def reading(self, partition: int) -> TopicReading:
        return self.histories._readings[partition]


def run(play: Callable[[Setup], None]) -> None:
    async def story(loop: SimLoop) -> None:
        play(Setup())
        await asyncio.sleep(0)

    simulate(story)


def test_what_is_begun_has_a_position_and_an_end() -> None:
    def play(setup: Setup) -> None:
        setup.histories.begin(0, MetadataPosition(3, 1), 9)
        assert 0 in setup.histories and 1 not in setup.histories
        assert (setup.histories.position(0), setup.histories.lag) == (MetadataPosition(3, 1), 6)
        setup.histories.tell(0, metadata("a"))
        assert setup.told == [(0, metadata("a"))]

    run(play)


def test_all_of_use_is_read_from_the_oldest_on() -> None:
    def play(setup: Setup) -> None:
        setup.histories.read(0, 9)
        assert setup.histories.position(0) is None
        assert setup.histories.oldest_timestamp() == 5
        setup.histories.place(setup.reading(0), MetadataPosition(2, -1), 20)
        assert (setup.histories.position(0), setup.histories.lag) == (MetadataPosition(2, -1), 7)
        setup.histories.finished(setup.reading(0))
        assert 0 not in setup.histories

    run(play)


def test_what_was_told_before_somebody_came_is_told_once_more_at_the_end() -> None:
    def play(setup: Setup) -> None:
        histories = setup.histories
        histories.read(0, 9)
        histories.read(0, 11)  # not begun yet: all of it is still to come
        first = setup.reading(0)
        assert first.ends_at == 11
        first.begin_at(MetadataPosition(2, -1))
        for offset, ends_at in ((4, 12), (7, 13)):
            first.begin_at(MetadataPosition(offset, 1))
            histories.read(0, ends_at)
        assert (setup.reading(0), first.ends_at, histories.position(0)) == (first, 13, None)
        histories.finished(first)
        second = setup.reading(0)
        assert (second.position, second.ends_at) == (None, 7)
        histories.finished(second)
        assert 0 not in histories

    run(play)


def test_what_is_dropped_or_begun_anew_owes_nothing() -> None:
    def play(setup: Setup) -> None:
        for partition in (0, 1):
            setup.histories.begin(partition, MetadataPosition(3, 1), 9)
            setup.histories.read(partition, 10)
        setup.histories.drop(0)
        setup.histories.begin(1, MetadataPosition(4, 1), 12)
        assert 0 not in setup.histories
        assert setup.histories.position(1) == MetadataPosition(4, 1)
        setup.histories.finished(setup.reading(1))
        assert setup.histories.retire(address(1))

    run(play)


def test_a_reading_that_was_replaced_does_not_end_the_one_in_its_place() -> None:
    def play(setup: Setup) -> None:
        setup.histories.read(0, 9)
        replaced = setup.reading(0)
        setup.histories.begin(0, MetadataPosition(4, 1), 12)
        setup.histories.finished(replaced)
        assert setup.histories.position(0) == MetadataPosition(4, 1)

    run(play)
