import pytest

from broker.controller.controller_state import ControllerState
from broker.metadata.metadata_fault import MetadataFault
from broker.schemas.cluster_metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.controller.controller_support import ControlWorld, directory_of

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=29)


def test_replay_moves_the_image_and_remembers_registrations() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    assert world.image.offset == world.next_offset - 1
    assert world.state.registration_offsets == {1: 1}


def test_a_control_batch_moves_the_offset_alone() -> None:
    state = ControllerState()
    state.skip(0, 3)
    assert (state.image.offset, state.image.epoch, len(state.image.topics)) == (0, 3, 0)


def test_an_open_transaction_is_seen() -> None:
    state = ControllerState()
    state.replay([BeginTransactionRecord(), LEVEL], 0, 1)
    assert state.is_in_transaction
    assert state.image.features.metadata_version == 0
    state.replay([EndTransactionRecord()], 2, 1)
    assert not state.is_in_transaction
    assert state.image.features.metadata_version == 29


def test_after_a_snapshot_registrations_count_as_at_its_end() -> None:
    world = ControlWorld()
    world.start_brokers(1, 2)
    state = ControllerState()
    state.load_snapshot([LEVEL, *(broker.to_record() for broker in world.image.brokers.values())], 50, 2)
    assert state.registration_offsets == {1: 50, 2: 50}
    assert (state.image.offset, state.image.epoch) == (50, 2)


def test_revert_goes_back_with_all_indexes() -> None:
    world = ControlWorld()
    world.start_brokers(1)
    world.create_topic("kept", (1,))
    image, offsets = world.image, world.state.registration_offsets
    world.register(2)
    world.create_topic("lost", (1,))
    world.state.revert(image, offsets)
    assert world.image is image
    assert world.state.registration_offsets == {1: 1}
    assert len(list(world.state.brokers_to_isrs.partitions_led_by(1))) == 1


def test_impossible_records_change_nothing() -> None:
    state = ControllerState()
    state.replay([LEVEL], 0, 1)
    before = state.image
    with pytest.raises(MetadataFault):
        state.replay(
            [TopicRecord(name="t", topic_id=directory_of(5)), RemoveTopicRecord(topic_id=directory_of(6))], 1, 1
        )
    assert state.image is before
