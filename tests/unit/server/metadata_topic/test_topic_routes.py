from uuid import UUID

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, TopicPartition
from broker.server.metadata_topic.topic_routes import Route
from tests.unit.server.metadata_topic_support import TOPIC_ID, World, address


def test_without_the_topic_nothing_is_known() -> None:
    world = World()
    assert (world.routes.topic_id, world.routes.partition_count, world.routes.route(0)) == (None, None, None)
    assert not world.routes.leads_any(address(1))


def test_a_partition_is_with_its_leader_and_goes_with_the_leadership() -> None:
    world = World(1, 2)
    place = TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, 1)
    assert world.routes.route(1) == Route(place, TOPIC_ID, address(2), 3)
    assert world.routes.leads_any(address(2))

    world.lead(1, 3, epoch=4)

    assert world.routes.route(1) == Route(place, TOPIC_ID, address(3), 4)
    assert not world.routes.leads_any(address(2))


def test_no_leader_no_address_and_no_such_partition_are_no_route() -> None:
    world = World(-1, 2)
    world.reachable = {1, 3}
    assert [world.routes.route(number) for number in (0, 1, 2)] == [None, None, None]


def test_the_number_of_partitions_never_changes() -> None:
    world = World(1, 2)
    assert world.routes.partition_count == 2
    world.lead(1, 2, 3)
    assert world.routes.partition_count == 2


def test_another_topic_of_the_name_may_have_another_number() -> None:
    world = World(1, 2)
    assert world.routes.partition_count == 2
    world.lead(1, 2, 3, topic_id=UUID(int=0xC0C1))
    assert (world.routes.partition_count, world.routes.topic_id) == (3, UUID(int=0xC0C1))
