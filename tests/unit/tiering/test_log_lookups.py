from pathlib import Path

import pytest

from broker.common.errors import ErrorCode, ReplicaNotAvailableError, StorageFailure
from broker.records.control_record import ControlRecordType
from broker.tiering.log_lookups import LogLookups, id_of
from tests.support.sim_loop import SimLoop, simulate

from .access_world import AccessWorld, reading, transactional
from .segment_world import FINISHED, STARTED, segment, update
from .task_world import T0


def test_the_segment_of_an_offset_is_that_of_its_epoch(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(2)
        world.replicas.place(leader_epoch=3)
        world.append(2)
        await world.copy()
        lookups = LogLookups(world.replicas.partition(), world.metadata)
        for offset, expected in ((0, (0, 2)), (1, (0, 2)), (2, (2, 4)), (5, (4, 6))):
            part = await lookups.segment_at(offset)
            assert part is not None and (part.segment.start_offset, part.end_offset) == expected
            assert part.is_whole
        for offset in (6, 7, 100):
            assert await lookups.segment_at(offset) is None

    reading(tmp_path, story)


def test_44_what_an_earlier_leader_wrote_is_no_part_of_it(tmp_path: Path) -> None:
    """Our log went on in epoch 1 at offset 4; the old leader of epoch 0 had copied its own records up to 9."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(2)
        world.replicas.place(leader_epoch=1)
        world.append(3)
        partition = world.replicas.partition()
        world.tiered()
        await world.metadata.add_remote_log_segment_metadata(
            segment(1, 2, 9, {0: 2}, state=STARTED, partition=id_of(partition))
        )
        await world.metadata.update_remote_log_segment_metadata(update(1, FINISHED, partition=id_of(partition)))
        lookups = LogLookups(partition, world.metadata)
        part = await lookups.segment_at(3)
        assert part is not None and (part.end_offset, part.is_whole) == (4, False)
        assert await lookups.segment_at(4) is None  # of another epoch
        partition.log.truncate_to(0)
        assert await lookups.segment_at(3) is None  # the log has no epoch any more

    reading(tmp_path, story)


def test_an_epoch_that_the_log_does_not_know_has_no_segment(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.copy()
        lookups = LogLookups(world.replicas.partition(), world.metadata)
        assert await lookups.segment_at(2) is not None
        world.log.leader_epochs.clear()
        assert await lookups.segment_at(2) is None

    reading(tmp_path, story)


def test_an_epoch_that_is_not_known_yet_is_told(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.move()
        lookups = LogLookups(world.replicas.partition(), world.metadata)
        world.log.leader_epochs.clear()
        for offset in (0, 3):
            with pytest.raises(ReplicaNotAvailableError, match="leader epochs"):
                await lookups.segment_at(offset)
        world.log.maybe_increment_log_start_offset(1, "test")
        assert await lookups.segment_at(0) is None

    reading(tmp_path, story)


def test_a_log_or_knowledge_that_is_not_there_is_told(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        partition = world.tiered_topic()
        world.append(3)
        lookups = LogLookups(partition, world.metadata)
        with pytest.raises(ReplicaNotAvailableError):
            await lookups.segment_at(0)
        world.tiered()
        assert await lookups.segment_at(0) is None
        partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
        with pytest.raises(StorageFailure):
            await lookups.segment_at(0)
        with pytest.raises(StorageFailure):
            lookups.local_aborted(0, 1)

    reading(tmp_path, story)


def test_36_aborted_transactions_of_the_local_log(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        partition = world.tiered_topic()
        world.write(transactional("a", 7))
        world.end(7, ControlRecordType.ABORT)
        lookups = LogLookups(partition, world.metadata)
        assert [each.producer_id for each in lookups.local_aborted(0, 1)] == [7]
        assert list(lookups.local_aborted(5, 6)) == []

    reading(tmp_path, story)


def test_an_id_is_that_of_the_incarnation(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        assert id_of(AccessWorld(tmp_path, loop).topic()) == T0

    simulate(story)
