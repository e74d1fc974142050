"""Registration, heartbeats and fencing; the numbers are behaviours of a KRaft controller."""

import dataclasses
from uuid import UUID

import pytest

from broker.common.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRegistrationError,
    StaleBrokerEpochError,
    UnsupportedVersionError,
)
from broker.metadata.broker_registration import VersionRange
from broker.metadata.directory_id import LOST
from broker.schemas.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.unit.controller.controller_support import ControlWorld, directory_of, registration_request


def test_a_registered_broker_is_fenced_and_its_epoch_is_the_next_offset() -> None:
    world = ControlWorld()
    epoch = world.register(1, rack="a")
    assert epoch == 1  # offset 0 is the feature level
    broker = world.broker(1)
    assert (broker.epoch, broker.fenced, broker.rack, broker.directories) == (1, True, "a", (directory_of(1),))
    assert world.state.registration_offsets == {1: 1}


def test_another_cluster_is_refused() -> None:
    world = ControlWorld()
    with pytest.raises(InconsistentClusterIdError):
        world.register(1, cluster_id="other")


@pytest.mark.parametrize(
    ("directories", "reason"),
    [
        ((), "No directories"),
        ((directory_of(1), directory_of(1)), "Duplicate directory"),
        ((LOST,), "Reserved directory"),
        ((directory_of(2),), "already registered with directory"),
    ],
)
def test_15_directories_that_cannot_be_are_refused(directories: tuple[UUID, ...], reason: str) -> None:
    world = ControlWorld()
    world.register(2)
    with pytest.raises(InvalidRegistrationError, match=reason):
        world.register(1, directories=directories)


def test_before_directories_existed_none_are_needed() -> None:
    world = ControlWorld(metadata_version=16)
    assert world.register(1, directories=()) == 1


def test_16_a_finalized_feature_the_broker_lacks_refuses_it() -> None:
    world = ControlWorld(elr=True)
    with pytest.raises(UnsupportedVersionError, match=r"finalized version 1 of eligible\.leader\.replicas\.version"):
        world.register(1, features={"metadata.version": VersionRange(7, 29)})
    with pytest.raises(UnsupportedVersionError, match=r"29 of metadata\.version.*between 7 and 28"):
        world.register(1, features={"metadata.version": VersionRange(7, 28)})


def test_a_broker_that_does_not_name_metadata_version_is_refused() -> None:
    world = ControlWorld()
    with pytest.raises(InvalidRegistrationError, match=r"do not contain 'metadata\.version'"):
        world.register(1, features={"kraft.version": VersionRange(0, 1)})


def test_17_a_second_process_is_refused_while_the_first_is_alive_and_does_not_disturb_it() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    before = world.image
    with pytest.raises(DuplicateBrokerRegistrationError):
        world.register(1, incarnation=2)
    assert world.image is before


def test_18_after_its_session_another_process_takes_over_and_the_old_one_is_stale() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    old = world.broker(1).epoch
    world.now += 9.0
    new = world.register(1, incarnation=2)
    assert new > old
    with pytest.raises(StaleBrokerEpochError):
        world.heartbeat(1, broker_epoch=old)


def test_19_a_fenced_registration_is_replaced_at_once() -> None:
    world = ControlWorld()
    old = world.register(1)
    assert world.register(1, incarnation=2, previous_broker_epoch=old) > old


def test_20_the_same_process_again_keeps_epoch_and_fencing_but_has_to_catch_up_again() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    epoch, offset = world.broker(1).epoch, world.state.registration_offsets[1]
    assert world.register(1, rack="moved") == epoch
    assert (world.broker(1).fenced, world.broker(1).rack) == (False, "moved")
    assert world.state.registration_offsets[1] > offset


def test_21_epoch_and_record_offset_differ_when_other_records_come_first() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("t", (1, 2))
    world.now += 9.0
    epoch = world.register(1, incarnation=2)
    assert [type(record) for record in world.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert world.state.registration_offsets[1] == epoch + 1
    assert world.leadership("t") == (2, (2,))


def test_22_not_caught_up_means_fenced_without_an_error_then_one_record() -> None:
    world = ControlWorld()
    epoch = world.register(1)
    reply = world.heartbeat(1, current_metadata_offset=epoch - 1)
    assert (reply.is_caught_up, reply.is_fenced, world.records) == (False, True, [])
    reply = world.heartbeat(1, current_metadata_offset=epoch)
    assert (reply.is_caught_up, reply.is_fenced) == (True, False)
    assert world.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=-1)]
    world.heartbeat(1)
    assert world.records == []


def test_heartbeats_of_strangers_are_stale() -> None:
    world = ControlWorld()
    world.register(1)
    for broker_id, epoch in ((1, 99), (2, 0)):
        with pytest.raises(StaleBrokerEpochError):
            world.cluster.checked_registration(broker_id, epoch)


def test_23_fencing_moves_leaders_in_the_same_records() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("t", (1, 2), (2, 1))
    world.now += 9.0
    world.heartbeat(2)
    assert world.apply(world.cluster.fence_stalest_broker(world.now)) == 1
    assert [type(record).__name__ for record in world.records] == [
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    assert world.leadership("t", 0) == (2, (2,))
    assert world.leadership("t", 1) == (2, (2,))
    assert world.apply(world.cluster.fence_stalest_broker(world.now)) is None


def test_26_unfencing_returns_leadership_only_where_nobody_leads_and_it_is_in_sync() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("alone", (1,))
    world.create_topic("led", (1, 2))
    world.create_topic("other", (2,))
    world.fence(1)
    assert world.leadership("alone") == (-1, (1,))
    world.fence(2)
    world.heartbeat(1)
    assert world.leadership("alone") == (1, (1,))
    assert world.leadership("led") == (-1, (2,))
    assert world.leadership("other") == (-1, (2,))


def test_controlled_shutdown_takes_the_broker_out_of_every_isr_it_shares() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("t", (1, 2), (2, 1))
    world.create_topic("alone", (1,))
    reply = world.heartbeat(1, want_shut_down=True)
    assert (reply.should_shut_down, reply.is_fenced) == (False, False)
    assert world.broker(1).in_controlled_shutdown
    assert world.leadership("t", 0) == (2, (2,))
    assert world.leadership("t", 1) == (2, (2,))
    assert world.leadership("alone") == (-1, (1,))


def test_28_the_only_replica_does_not_hold_up_a_shutdown() -> None:
    """Its partitions are without a leader then, and its ISR remembers who has the records."""
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("alone", (1,))
    world.heartbeat(2)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.leadership("alone") == (-1, (1,))
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down  # 2 has not seen it yet
    world.heartbeat(2)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    world.register(1, incarnation=2, previous_broker_epoch=world.broker(1).epoch)
    world.heartbeat(1)
    assert world.leadership("alone") == (1, (1,))


def test_28_the_last_active_broker_waits_for_nobody() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("alone", (1,))
    world.fence(2)
    assert not world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.heartbeat(1, want_shut_down=True).should_shut_down


def test_29_shutting_down_twice_fences_once() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    assert len(world.records) == 1
    assert world.heartbeat(1, want_shut_down=True).should_shut_down
    assert world.records == []


def test_a_failed_directory_leaves_the_registration_and_its_replicas_the_leadership() -> None:
    world = ControlWorld()
    other = UUID(int=0x7777)
    world.register(1, directories=(directory_of(1), other))
    world.heartbeat(1)
    world.start_brokers(2)
    topic_id = world.create_topic("t", (1, 2), (1, 2))
    assignments = {other: {topic_id: [0]}, directory_of(1): {topic_id: [1]}}
    world.apply(world.replication.assign_replicas_to_directories(1, assignments))
    world.heartbeat(1, offline_directories=(other,))
    assert world.broker(1).directories == (directory_of(1),)
    assert world.leadership("t", 0) == (2, (2,))
    assert world.leadership("t", 1) == (1, (1, 2))
    world.heartbeat(1, offline_directories=(directory_of(1),))  # its last one: it stops by itself
    assert world.records == []


def test_unregistering_removes_the_broker_from_isrs() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.create_topic("t", (1, 2))
    epoch = world.broker(1).epoch
    world.apply(world.cluster.unregister_broker(1))
    assert world.records[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)
    assert 1 not in world.image.brokers
    assert world.leadership("t") == (2, (2,))
    with pytest.raises(BrokerIdNotRegisteredError):
        world.cluster.unregister_broker(1)


def test_sessions_after_a_recovery() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    world.register(3)
    world.cluster.recover_sessions(500.0, own_broker_id=1)
    heartbeats = world.cluster.heartbeats
    assert not heartbeats.has_valid_session(1, 500.0)
    assert heartbeats.has_valid_session(2, 508.9)
    assert world.apply(world.cluster.fence_stalest_broker(500.0)) == 1


def test_previous_epoch_tells_a_clean_restart() -> None:
    world = ControlWorld(elr=True)
    world.start_brokers(1, 2)
    world.create_topic("t", (1, 2), min__insync__replicas="2")
    world.fence(1)
    assert world.partition("t").eligible_leader_replicas == (1,)
    clean = world.broker(1).epoch
    request = dataclasses.replace(registration_request(1, 2), previous_broker_epoch=clean)
    world.apply(world.cluster.register_broker(request, world.next_offset, world.now))
    assert world.partition("t").eligible_leader_replicas == (1,)
    world.register(1, incarnation=3)  # previous epoch unknown
    assert world.partition("t").eligible_leader_replicas == ()
