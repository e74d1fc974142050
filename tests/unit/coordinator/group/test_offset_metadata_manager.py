"""Offsets in virtual time; names carry the number of the behaviour they show."""

from broker.common.errors import ErrorCode, NotEnoughReplicasError
from broker.coordinator.group.group_messages import OffsetCommitRequest, OffsetToCommit
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.memory_records_builder import records_batch
from broker.schemas.group_metadata import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_offset_commit,
)
from tests.support.group_world import GROUP, TOPIC, GroupWorld, after, run_world, settle
from tests.support.sim_loop import EPOCH_MS

HOUR = 3_600_000
RETENTION = 7 * 24 * HOUR


async def pass_expiry(world: GroupWorld) -> None:
    world.shard.expire()
    await settle()


def transactional_commit(world: GroupWorld, offset: int, producer_id: int = 7) -> None:
    """What TxnOffsetCommit will append."""
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=EPOCH_MS)
    key, encoded = encode_offset_commit(OffsetCommitKey(group=GROUP, topic=TOPIC, partition=0), value)
    world.log.append(
        records_batch(
            (EPOCH_MS, key, encoded), producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    )


def end_transaction(world: GroupWorld, kind: ControlRecordType, producer_id: int = 7) -> None:
    marker = EndTransactionMarker(kind, 0)
    world.log.append(
        end_transaction_marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=EPOCH_MS)
    )


def test_34_a_simple_client_cannot_commit_for_members() -> None:
    async def story(world: GroupWorld) -> None:
        await world.stable_group()
        assert await world.commit_code() is ErrorCode.unknown_member_id
        assert await world.fetch_offset() == -1

    run_world(story)


def test_34_a_simple_commit_makes_a_group() -> None:
    async def story(world: GroupWorld) -> None:
        assert await world.commit_code(42) is ErrorCode.none
        assert [tuple(group) for group in world.groups.list_groups([], [])] == [(GROUP, "", "Empty", "classic")]
        assert len(world.log.records()) == 1  # the group itself is in memory only
        assert await world.fetch_offset() == 42

    run_world(story)


def test_35_commits_in_each_state() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.stable_group(2)
        assert await world.commit_code(1, leader) is ErrorCode.none
        assert await world.commit_code(1, leader, generation=2) is ErrorCode.illegal_generation
        assert await world.commit_code(1, leader, member_id="m") is ErrorCode.unknown_member_id
        rejoin = world.join(leader.member_id)
        await settle()
        assert world.describe() == ("PreparingRebalance", 2)
        assert await world.commit_code(2, follower) is ErrorCode.none
        world.join(follower.member_id)
        joined = await rejoin
        assert world.describe() == ("CompletingRebalance", 2)
        assert await world.commit_code(3, joined) is ErrorCode.rebalance_in_progress
        assert await world.fetch_offset() == 2

    run_world(story)


def test_35_a_member_of_no_group() -> None:
    async def story(world: GroupWorld) -> None:
        assert await world.commit_code(generation=1, member_id="m") is ErrorCode.illegal_generation
        code = await world.commit_code(generation=1, member_id="m", knows_group_id_not_found=True)
        assert code is ErrorCode.group_id_not_found
        await world.commit()
        assert await world.commit_code(generation=1, member_id="m") is ErrorCode.unknown_member_id
        assert await world.commit_code(member_id="whatever") is ErrorCode.none

    run_world(story)


def test_35_a_commit_is_a_sign_of_life() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        for offset in range(3):
            await after(9000)
            assert await world.commit_code(offset, joined) is ErrorCode.none
        assert world.describe() == ("Stable", 1)

    run_world(story)


def test_36_metadata_has_a_length() -> None:
    async def story(world: GroupWorld) -> None:
        offsets = (
            OffsetToCommit(TOPIC, 0, 1, -1, "x" * 4096),
            OffsetToCommit(TOPIC, 1, 1, -1, "x" * 4097),
            OffsetToCommit(TOPIC, 2, 1, -1, "😀" * 2048),  # two UTF-16 units each
            OffsetToCommit(TOPIC, 3, 1, -1, "😀" * 2049),
            OffsetToCommit(TOPIC, 4, 1, -1, None),
        )
        results = await world.groups.commit_offsets(
            OffsetCommitRequest(group_id=GROUP, generation=-1, member_id="", offsets=offsets)
        )
        too_large = ErrorCode.offset_metadata_too_large
        assert [result.error for result in results] == [
            ErrorCode.none,
            too_large,
            ErrorCode.none,
            too_large,
            ErrorCode.none,
        ]
        fetched = (await world.fetch({TOPIC: (0, 1, 2, 3, 4)})).topics[TOPIC]
        assert [offset.offset for offset in fetched] == [1, -1, 1, -1, 1]
        assert [len(offset.metadata) for offset in fetched] == [4096, 0, 2048, 0, 0]

    run_world(story)


def test_36_nothing_is_written_when_nothing_is_left() -> None:
    async def story(world: GroupWorld) -> None:
        assert await world.commit_code(metadata="x" * 5000) is ErrorCode.offset_metadata_too_large
        assert world.log.records() == []

    run_world(story)


def test_37_the_leader_epoch_comes_back() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1, leader_epoch=5)
        await world.commit(2, partition=1)
        for _ in range(2):
            fetched = (await world.fetch({TOPIC: (0, 1, 2)})).topics[TOPIC]
            assert [(each.offset, each.leader_epoch) for each in fetched] == [(1, 5), (2, -1), (-1, -1)]
            await world.restart()

    run_world(story)


def test_38_pending_offsets_of_a_transaction() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        transactional_commit(world, 2)
        await world.restart()
        unstable = (await world.fetch({TOPIC: (0, 1)}, require_stable=True)).topics[TOPIC]
        assert [(each.offset, each.error) for each in unstable] == [
            (-1, ErrorCode.unstable_offset_commit),
            (-1, ErrorCode.none),
        ]
        assert await world.fetch_offset() == 1
        end_transaction(world, ControlRecordType.COMMIT)
        await world.restart()
        assert await world.fetch_offset(require_stable=True) == 2
        transactional_commit(world, 3)
        end_transaction(world, ControlRecordType.ABORT)
        await world.restart()
        assert await world.fetch_offset(require_stable=True) == 2

    run_world(story)


def test_38_a_later_plain_commit_survives() -> None:
    async def story(world: GroupWorld) -> None:
        transactional_commit(world, 2)
        await world.restart()
        await world.commit(3)
        end_transaction(world, ControlRecordType.COMMIT)
        await world.restart()
        assert await world.fetch_offset(require_stable=True) == 3

    run_world(story)


def test_39_all_topics_and_unknown_groups() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        await world.commit(2, topic="u", partition=3)
        everything = (await world.fetch(None)).topics
        assert {topic: [(each.partition, each.offset) for each in found] for topic, found in everything.items()} == {
            "t": [(0, 1)],
            "u": [(3, 2)],
        }
        unknown = await world.fetch(None, group_id="unknown")
        assert (unknown.error, dict(unknown.topics)) == (ErrorCode.none, {})
        assert await world.fetch_offset(group_id="unknown") == -1

    run_world(story)


def test_40_an_empty_group_expires_after_its_last_member() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group(session_timeout_ms=1_800_000)
        await world.commit(1, joined)
        world.clock.jump(RETENTION)
        await pass_expiry(world)
        assert await world.fetch_offset() == 1  # subscribed: never
        await world.leave(joined.member_id)
        world.clock.jump(RETENTION - 1)
        await pass_expiry(world)
        assert await world.fetch_offset() == 1
        world.clock.jump(1)
        await pass_expiry(world)
        assert await world.fetch_offset() == -1
        assert world.groups.list_groups([], []) == []
        await world.restart()
        assert world.groups.list_groups([], []) == []

    run_world(story)


def test_40_a_simple_group_expires_after_its_commit() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        world.clock.jump(HOUR)
        await world.commit(2, partition=1)
        world.clock.jump(RETENTION - HOUR)
        await pass_expiry(world)
        fetched = (await world.fetch({TOPIC: (0, 1)})).topics[TOPIC]
        assert [each.offset for each in fetched] == [-1, 2]
        world.clock.jump(HOUR)
        await pass_expiry(world)
        assert world.groups.list_groups([], []) == []

    run_world(story)


def test_40_a_stable_group_keeps_only_its_topics() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group(session_timeout_ms=1_800_000)
        await world.commit(1, joined)
        await world.commit(2, joined, topic="unsubscribed")
        world.clock.jump(RETENTION)
        await pass_expiry(world)
        assert list((await world.fetch(None)).topics) == ["t"]
        assert world.describe() == ("Stable", 1)

    run_world(story)


def test_40_nothing_expires_while_rebalancing_or_for_other_protocols() -> None:
    async def story(world: GroupWorld) -> None:
        leader, _ = await world.stable_group(2, session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
        await world.commit(1, leader, topic="unsubscribed")
        world.join(leader.member_id, rebalance_timeout_ms=1_800_000)
        await settle()
        world.clock.jump(RETENTION)
        await pass_expiry(world)
        assert list((await world.fetch(None)).topics) == ["unsubscribed"]
        connect = await world.stable_group(1, group_id="k", protocol_type="connect", session_timeout_ms=1_800_000)
        await world.commit(1, connect[0], group_id="k", topic="unsubscribed")
        world.clock.jump(RETENTION)
        await pass_expiry(world)
        assert list((await world.fetch(None, group_id="k")).topics) == ["unsubscribed"]

    # `stable_group` syncs for the default group; the connect group has one of its own.
    async def prepared(world: GroupWorld) -> None:
        sync = world.sync
        world.sync = lambda joined, **changes: sync(  # type: ignore[method-assign]
            joined, **({"group_id": "k"} if joined.protocol_type == "connect" else {}), **changes
        )
        await story(world)

    run_world(prepared)


def test_40_the_pass_runs_by_itself() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1, retention_time_ms=HOUR)
        await after(HOUR - 1000)
        assert await world.fetch_offset() == 1
        await after(600_000)
        assert await world.fetch_offset() == -1

    run_world(story)


def test_40_an_expiry_of_its_own_is_stored_as_version_1() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1, retention_time_ms=1000)
        (record,) = world.log.records()
        assert record.key is not None and record.value is not None and record.value[:2] == b"\0\1"
        decoded = decode(record.key, record.value)
        assert decoded is not None and isinstance(decoded[1], OffsetCommitValue)
        assert decoded[1].expire_timestamp == EPOCH_MS + 1000

    run_world(story)


def test_40_a_group_with_an_open_transaction_stays() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        transactional_commit(world, 2)
        await world.restart()
        world.clock.jump(RETENTION)
        await pass_expiry(world)
        assert await world.fetch_offset() == 1
        end_transaction(world, ControlRecordType.ABORT)
        await world.restart()
        await pass_expiry(world)
        assert world.groups.list_groups([], []) == []

    run_world(story)


def test_40_a_group_with_only_a_transaction_open_stays() -> None:
    async def story(world: GroupWorld) -> None:
        transactional_commit(world, 2)
        await world.restart()
        await pass_expiry(world)
        assert len(world.groups.list_groups([], [])) == 1

    run_world(story)


def test_40_an_empty_group_without_offsets_goes_unless_somebody_is_about_to_join() -> None:
    async def story(world: GroupWorld) -> None:
        pending = await world.join(session_timeout_ms=6000)
        await pass_expiry(world)
        assert world.describe() == ("Empty", 0)
        await world.leave(pending.member_id)
        await pass_expiry(world)
        assert world.describe() == ("Dead", 0)

    run_world(story)


def test_40_a_failed_pass_is_tried_again() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1, retention_time_ms=0)
        world.log.append_error = NotEnoughReplicasError("too few")
        await after(600_000)
        assert await world.fetch_offset() == 1
        world.log.append_error = None
        await after(600_000)
        assert await world.fetch_offset() == -1

    run_world(story)


def test_41_deleting_offsets() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        await world.commit(1, joined)
        await world.commit(2, joined, topic="unsubscribed")
        result = await world.groups.delete_offsets(GROUP, [(TOPIC, 0), ("unsubscribed", 0), ("unsubscribed", 9)])
        assert result.error is ErrorCode.none
        assert [each.error for each in result.partitions] == [
            ErrorCode.group_subscribed_to_topic,
            ErrorCode.none,
            ErrorCode.none,
        ]
        assert list((await world.fetch(None)).topics) == ["t"]
        count = len(world.log.records())
        await world.groups.delete_offsets(GROUP, [("unsubscribed", 0)])
        assert len(world.log.records()) == count  # what is not there needs no record

    run_world(story)


def test_41_an_unknown_subscription_is_one_to_everything() -> None:
    async def story(world: GroupWorld) -> None:
        from broker.coordinator.group.group_messages import MemberProtocol

        await world.stable_group(1, protocols=(MemberProtocol("range", b"not a subscription"),))
        result = await world.groups.delete_offsets(GROUP, [("any", 0)])
        assert [each.error for each in result.partitions] == [ErrorCode.group_subscribed_to_topic]

    run_world(story)


def test_41_another_protocol_must_be_empty() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group(1, protocol_type="connect")
        assert (await world.groups.delete_offsets(GROUP, [(TOPIC, 0)])).error is ErrorCode.non_empty_group
        await world.leave(joined.member_id)
        assert (await world.groups.delete_offsets(GROUP, [(TOPIC, 0)])).error is ErrorCode.none
        assert (await world.groups.delete_offsets("absent", [])).error is ErrorCode.group_id_not_found

    run_world(story)


def test_42_deleting_groups() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        await world.commit(1, joined)
        await world.commit(7, group_id="simple")
        outcome = await world.groups.delete_groups([GROUP, "absent", "simple", "simple"])
        assert outcome == {
            GROUP: ErrorCode.non_empty_group,
            "absent": ErrorCode.group_id_not_found,
            "simple": ErrorCode.none,
        }
        await world.leave(joined.member_id)
        assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.none}
        assert await world.fetch_offset() == -1
        assert [record.value for record in world.log.records()[-2:]] == [None, None]
        await world.restart()
        assert world.groups.list_groups([], []) == [] and await world.fetch_offset() == -1

    run_world(story)


def test_42_deleting_a_group_drops_what_a_transaction_wants_to_commit() -> None:
    async def story(world: GroupWorld) -> None:
        transactional_commit(world, 2)
        await world.restart()
        assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.none}
        end_transaction(world, ControlRecordType.COMMIT)
        await world.restart()
        assert await world.fetch_offset() == -1

    run_world(story)


def test_45_a_commit_is_answered_and_seen_when_it_is_committed() -> None:
    async def story(world: GroupWorld) -> None:
        import asyncio

        await world.commit(1)
        world.log.commits_at_once = False
        commit = asyncio.create_task(world.commit_code(2))
        stable = asyncio.create_task(world.fetch_offset(require_stable=True))
        await settle()
        assert not commit.done() and not stable.done()
        assert await world.fetch_offset() == 1
        assert list((await world.fetch(None)).topics) == ["t"]
        world.log.commit()
        assert (await commit, await stable, await world.fetch_offset()) == (ErrorCode.none, 2, 2)

    run_world(story)


def test_45_a_commit_that_times_out_may_still_come() -> None:
    async def story(world: GroupWorld) -> None:
        world.log.commits_at_once = False
        assert await world.commit_code(1) is ErrorCode.coordinator_not_available
        stable = await world.fetch({TOPIC: (0,)}, require_stable=True)
        assert stable.error is ErrorCode.not_coordinator
        world.log.commit()
        assert await world.fetch_offset() == 1

    run_world(story)


def test_45_a_refused_commit_changes_nothing() -> None:
    async def story(world: GroupWorld) -> None:
        world.log.append_error = NotEnoughReplicasError("too few")
        assert await world.commit_code(1) is ErrorCode.coordinator_not_available
        world.log.append_error = None
        assert await world.fetch_offset() == -1
        assert world.groups.list_groups([], []) == []

    run_world(story)


def test_offsets_of_deleted_topics_go() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        await world.commit(2, topic="u")
        await world.commit(3, group_id="h")
        world.groups.on_topics_deleted(["t"])
        assert list((await world.fetch(None)).topics) == ["u"]
        assert dict((await world.fetch(None, group_id="h")).topics) == {}
        await world.restart()
        assert list((await world.fetch(None)).topics) == ["u"]

    run_world(story)


def test_38_the_greatest_metadata_is_a_setting() -> None:
    async def story(world: GroupWorld) -> None:
        assert await world.commit_code(metadata="x" * 5) is ErrorCode.none
        assert await world.commit_code(metadata="x" * 6) is ErrorCode.offset_metadata_too_large

    run_world(story, offset_metadata_max_bytes="5")


def test_40_the_time_offsets_are_kept_and_looked_at_are_settings() -> None:
    async def story(world: GroupWorld) -> None:
        await world.commit(1)
        await after(119_000)
        assert await world.fetch_offset() == 1
        await after(2_000)  # the pass comes every 30 seconds
        assert await world.fetch_offset() == -1

    run_world(story, offsets_retention_minutes="2", offsets_retention_check_interval_ms="30000")
