from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.log.unified_log import UnifiedLog
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch
from broker.replication.action_queue import ActionQueue
from broker.replication.append_request import AppendRequest
from broker.replication.group_commit import STAGED_BATCH_BYTES_MAX, GroupCommit
from tests.support.builders import ReplicaWorld, ToldAppend, batch, settle
from tests.support.sim_loop import SimLoop, simulate


class Turn:
    """A group commit over one partition; `calls` are the sizes of its appends."""

    def __init__(self, tmp_path: Path, **topic: object) -> None:
        self.world = ReplicaWorld(tmp_path)
        self.world.create_topic(**topic)  # type: ignore[arg-type]
        self.partition = self.world.partition()
        self.actions = ActionQueue()
        self.is_fenced = False
        self.group_commit = GroupCommit(self.actions, lambda: self.is_fenced)
        self.done: list[AppendRequest] = []

    def append(self, data: bytearray, acks: int = 1, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendRequest:
        request = ToldAppend(lambda results: None, acks, origin=origin)
        request.begin(1, self.done.append)
        self.group_commit.append(self.partition, RecordBatch.parse(data), request, 0)
        return request

    @property
    def end_offset(self) -> int:
        return self.partition.log.log_end_offset


def test_small_batches_wait_for_the_end_of_the_turn(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path)
        requests = [turn.append(batch("a")), turn.append(batch("b", "c"))]
        assert (turn.end_offset, turn.done) == (0, [])
        await settle()
        assert (turn.end_offset, turn.done) == (3, requests)
        assert [request.results[0].base_offset for request in requests] == [0, 1]
        assert turn.partition.staged == []

    simulate(story)


def test_a_large_batch_is_written_at_once_after_what_was_staged(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path)
        small = turn.append(batch("a"))
        large = turn.append(batch(b"x" * (STAGED_BATCH_BYTES_MAX + 1)))
        assert turn.done == [small, large]
        assert [request.results[0].base_offset for request in turn.done] == [0, 1]
        last = turn.append(batch("b"))
        await settle()
        assert turn.done == [small, large, last]
        assert last.results[0].base_offset == 2

    simulate(story)


def test_a_refused_batch_does_not_hold_the_others(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path)
        broken = batch("b")
        broken[-1] ^= 1
        turn.append(batch("a")), turn.append(broken), turn.append(batch("c"))
        await settle()
        assert [(each.results[0].error, each.results[0].base_offset) for each in turn.done] == [
            (ErrorCode.none, 0),
            (ErrorCode.corrupt_message, -1),
            (ErrorCode.none, 1),
        ]

    simulate(story)


def test_leadership_is_looked_at_when_the_batch_is_written(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path, replicas=(1, 2))
        turn.append(batch("a")), turn.append(batch("b"))
        turn.world.place(leader=2, leader_epoch=1)
        await settle()
        assert [each.results[0].error for each in turn.done] == [ErrorCode.not_leader_or_follower] * 2
        turn.partition.is_offline = True
        turn.append(batch("c"))
        await settle()
        assert turn.done[-1].results[0].error is ErrorCode.kafka_storage_error
        assert turn.end_offset == 0

    simulate(story)


def test_fencing_is_looked_at_when_a_client_s_batch_is_written(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path)
        turn.append(batch("a"))
        turn.is_fenced = True
        turn.append(batch("b", base_offset=0), origin=AppendOrigin.COORDINATOR)
        await settle()
        assert [each.results[0].error for each in turn.done] == [ErrorCode.not_leader_or_follower, ErrorCode.none]
        assert turn.end_offset == 1

    simulate(story)


def test_acks_all_needs_enough_replicas_acks_one_does_not(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path, replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
        turn.append(batch("a"), acks=-1), turn.append(batch("b"), acks=1)
        await settle()
        assert [each.results[0].error for each in turn.done] == [ErrorCode.not_enough_replicas, ErrorCode.none]
        assert turn.end_offset == 1

    simulate(story)


def test_origins_are_written_apart_in_order(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path)
        turn.append(batch("a"))
        turn.append(batch("b", base_offset=0), origin=AppendOrigin.COORDINATOR)
        turn.append(batch("c"))
        await settle()
        assert [each.results[0].base_offset for each in turn.done] == [0, 1, 2]

    simulate(story)


def test_a_defect_answers_its_requests_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(loop: SimLoop) -> None:
        turn = Turn(tmp_path, partitions=2)
        other = turn.world.partition("t", 1)
        request = turn.append(batch("a"))
        turn.partition = other
        innocent = turn.append(batch("b"))

        def append_as_leader(self: UnifiedLog, *arguments: Any, **options: Any) -> Any:
            if self is turn.world.partition().log:
                raise RuntimeError("defect")
            return append(self, *arguments, **options)

        monkeypatch.setattr(UnifiedLog, "append_as_leader", append_as_leader)
        await settle()
        assert request.results[0].error is ErrorCode.unknown_server_error
        assert innocent.results[0].error is ErrorCode.none

    append = UnifiedLog.append_as_leader
    simulate(story)
