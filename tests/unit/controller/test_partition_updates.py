from uuid import UUID

from broker.controller.partition_change_builder import PartitionTarget
from broker.metadata.directory_id import LOST, UNASSIGNED
from tests.unit.controller.controller_support import ControlWorld, directory_of


def test_the_directory_of_a_new_replica_is_known_when_its_broker_has_one() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    world.register(2, directories=(UUID(int=0x700), UUID(int=0x701)))
    assert world.updates.default_directory(1) == directory_of(1)
    assert world.updates.default_directory(2) == UNASSIGNED
    assert world.updates.default_directory(3) == UNASSIGNED


def test_a_replica_on_a_lost_directory_cannot_lead() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    topic_id = world.create_topic("t", (1, 2))
    world.apply(world.replication.assign_replicas_to_directories(1, {LOST: {topic_id: [0]}}))
    assert world.leadership("t") == (2, (2,))
    assert world.partition("t").directories == (LOST, directory_of(2))


def test_topics_that_allow_it_elect_uncleanly() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("clean", (1, 2))
    world.create_topic("unclean", (1, 2), unclean__leader__election__enable="true")
    for name in ("clean", "unclean"):
        world.alter_isr(name, 1)
    world.fence(1)
    assert world.leadership("clean") == (-1, (1,))
    assert world.leadership("unclean") == (2, (2,))
    assert world.partition("unclean").leader_recovery_state == 1


def test_rules_count_brokers_whose_change_is_in_the_same_batch() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    world.register(2)
    world.create_topic("t", (1, 2))
    topic = world.image.topics.by_name["t"]
    rules = world.updates.rules(topic, topic.partitions[0], added=2, removed=1)
    assert not rules.is_acceptable_leader(1)
    assert rules.is_acceptable_leader(2)
    assert not world.updates.rules(topic, topic.partitions[0]).is_acceptable_leader(2)
    assert world.updates.change(topic, 0, PartitionTarget()) is None
