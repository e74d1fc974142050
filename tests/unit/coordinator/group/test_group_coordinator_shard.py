"""What concerns the shard as a whole: expiry, deleted topics, snapshots of groups and offsets."""

import pytest

from broker.common.errors import ErrorCode, NotEnoughReplicasError
from broker.coordinator.group.group_coordinator_shard import SNAPSHOT_CHUNK_RECORDS
from broker.coordinator.snapshot_writer import CHECK_INTERVAL_SECONDS, SnapshotWriter
from broker.records.control_record import ControlRecordType
from tests.support.group_world import GROUP, TOPIC, GroupWorld, after, run_world, settle
from tests.unit.coordinator.group.test_offset_metadata_manager import end_transaction, transactional_commit


async def write_snapshot(world: GroupWorld) -> None:
    await SnapshotWriter(world.writer).write(world.shard.log, lambda: True)  # type: ignore[arg-type]


def test_a_snapshot_keeps_groups_and_offsets() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.stable_group(2)
        for offset in range(5):
            await world.commit(offset, joined[0], leader_epoch=3, metadata="m")
        await world.commit(7, group_id="simple", retention_time_ms=3_600_000)
        await world.join(group_id="new")
        described = world.groups.describe_groups([GROUP, "simple", "new"], 5)
        offsets = [dict((await world.fetch(None, group_id=each)).topics) for each in (GROUP, "simple")]
        end_offset = world.log.log_end_offset
        await write_snapshot(world)
        assert world.log.log_start_offset == end_offset
        await world.restart()
        assert world.groups.describe_groups([GROUP, "simple", "new"], 5) == described
        assert [dict((await world.fetch(None, group_id=each)).topics) for each in (GROUP, "simple")] == offsets
        assert [await world.heartbeat(each) for each in joined] == [ErrorCode.none] * 2
        # Also the expiry of its own has survived.
        world.clock.jump(3_600_000)
        world.shard.expire()
        assert [group.group_id for group in world.groups.list_groups([], [])] == [GROUP]

    run_world(story)


def test_a_snapshot_in_a_rebalance_keeps_the_last_stored_generation() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        rejoined = await world.join(joined.member_id)
        assert rejoined.generation == 2
        await write_snapshot(world)
        await world.restart()
        assert world.generation == 1
        assert await world.heartbeat(rejoined) is ErrorCode.illegal_generation
        assert await world.heartbeat(joined) is ErrorCode.none

    run_world(story)


@pytest.mark.parametrize("kind", [ControlRecordType.COMMIT, ControlRecordType.ABORT])
def test_38_a_snapshot_leaves_open_transactions_alone(kind: ControlRecordType) -> None:
    async def story(world: GroupWorld) -> None:
        for offset in range(10):
            await world.commit(offset, partition=1)
        await world.commit(1)
        await world.commit(2, partition=1)
        transactional_commit(world, 5)
        await world.restart()
        await write_snapshot(world)
        assert world.log.log_start_offset == 10  # the committed offset of the partition in question
        end_transaction(world, kind)
        await world.restart()
        assert await world.fetch_offset(require_stable=True) == (5 if kind is ControlRecordType.COMMIT else 1)
        assert (await world.fetch({TOPIC: (1,)})).topics[TOPIC][0].offset == 2
        end_offset = world.log.log_end_offset
        await write_snapshot(world)
        assert world.log.log_start_offset == end_offset

    run_world(story)


def test_a_snapshot_gives_way_between_chunks_and_skips_what_is_deleted_meanwhile() -> None:
    async def story(world: GroupWorld) -> None:
        for partition in range(SNAPSHOT_CHUNK_RECORDS + 10):
            await world.commit(partition, partition=partition)
        await world.commit(1, group_id="gone")
        chunks = world.shard.snapshot(lambda _: None)
        first = next(chunks)
        assert (len(first.records), first.is_replayed) == (SNAPSHOT_CHUNK_RECORDS, True)
        await world.groups.delete_offsets(GROUP, [(TOPIC, SNAPSHOT_CHUNK_RECORDS)])
        await world.groups.delete_groups(["gone"])
        assert [len(chunk.records) for chunk in chunks] == [9]

    run_world(story)


def test_the_offsets_log_is_bounded() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group(1, session_timeout_ms=1_800_000)
        for offset in range(200):
            await world.commit(offset, joined)
        assert world.writer.log(0).log_start_offset == 0
        await after(int(CHECK_INTERVAL_SECONDS * 1000))
        assert world.log.log_start_offset == 202
        assert len(world.log.records()) == 2  # the group and its offset
        await world.restart()
        assert await world.fetch_offset() == 199 and world.describe() == ("Stable", 1)

    run_world(story, log_bytes_max=8000)


def test_topics_deleted_while_the_shard_loads() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        world.groups.on_resignation(0, None)
        world.groups.on_election(0, 9)
        world.groups.on_topics_deleted([TOPIC])
        await settle()
        assert dict((await world.fetch(None)).topics) == {}

    run_world(story)


def test_offsets_of_deleted_topics_stay_when_they_cannot_be_deleted() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        world.log.append_error = NotEnoughReplicasError("too few")
        world.groups.on_topics_deleted([TOPIC])
        assert await world.fetch_offset() == 1

    run_world(story)


def test_33_a_group_that_is_too_large_when_it_is_loaded_rebalances() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.stable_group(3)
        world.config.current = world.config.current.with_overrides({"group.max.size": "2"})
        await world.restart()
        assert world.describe() == ("PreparingRebalance", 3)
        joins = [world.join(each.member_id) for each in joined]
        results = [await join for join in joins]
        assert [each.error for each in results] == [ErrorCode.none, ErrorCode.none, ErrorCode.group_max_size_reached]
        assert world.describe() == ("CompletingRebalance", 2)

    run_world(story)


def test_44_members_get_a_whole_session_after_a_load() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        await after(9000)
        await world.restart()
        await after(9000)
        assert await world.heartbeat(joined) is ErrorCode.none
        await after(10_001)
        assert world.describe() == ("Empty", 0)

    run_world(story)


def test_expired_offsets_are_counted() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1, partition=0, retention_time_ms=1000)
        await world.commit(2, partition=1, retention_time_ms=1000)
        await world.commit(3, partition=2, retention_time_ms=3_600_000)
        world.clock.jump(1000)
        world.shard.expire()
        counted = "kafka_server_group_coordinator_metrics_offset_expiration_total"
        assert world.registry.prometheus.get_sample_value(counted) == 2

    run_world(story)
