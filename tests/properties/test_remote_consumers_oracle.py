"""Consumers of a log in a bucket and on a disk, against the list of what was written: transactions across both."""

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.errors import ErrorCode
from broker.records.control_record import ControlRecordType
from broker.records.record_batch import batches
from broker.replication.fetch_params import FetchParams
from tests.support.builders import batch, values_of
from tests.unit.tiering.access_world import COMMITTED, CONSUMER, AccessWorld, reading, transactional

PRODUCERS = (1, 2, 3)
OPS = ("plain", "transactional", "commit", "abort", "roll", "move", "new epoch")


class Op(NamedTuple):
    kind: str
    producer: int


class Written:
    """What a log should show."""

    def __init__(self) -> None:
        self.everything: list[bytes] = []
        self.decided: dict[bytes, bool] = {}  # not yet: its transaction is open
        self.open: dict[int, list[bytes]] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    def add(self, producer: int | None) -> bytes:
        value = f"{len(self.everything)}".encode()
        self.everything.append(value)
        if producer is None:
            self.decided[value] = True
        else:
            self.open.setdefault(producer, []).append(value)
        return value

    def end(self, producer: int, *, is_committed: bool) -> None:
        self.decided |= dict.fromkeys(self.open.pop(producer), is_committed)

    @property
    def committed(self) -> list[bytes]:
        return [value for value in self.everything if self.decided[value]]


async def write(world: AccessWorld, written: Written, op: Op) -> None:
    match op.kind:
        case "plain":
            world.replicas.append(batch(written.add(None)))
        case "transactional":
            value = written.add(op.producer).decode()
            world.replicas.append(transactional(value, op.producer, written.sequences[op.producer]))
            written.sequences[op.producer] += 1
        case "commit" | "abort" if op.producer in written.open:
            is_committed = op.kind == "commit"
            world.end(op.producer, ControlRecordType.COMMIT if is_committed else ControlRecordType.ABORT)
            written.end(op.producer, is_committed=is_committed)
        case "roll":
            world.log.roll()
        case "move":
            await world.move()
        case "new epoch":
            world.replicas.place(leader_epoch=world.replicas.partition().leader_epoch + 1)


async def consume(world: AccessWorld, params: FetchParams, size_max: int) -> list[bytes | None]:
    """As a client does: it leaves out what the list of aborted transactions tells it to, until their markers."""
    offset, values = world.log.log_start_offset, []
    while offset < world.log.last_stable_offset:
        result = await world.fetch_one(offset, params, size_max)
        assert result.error is ErrorCode.none and result.records, (offset, result.error)
        to_come = sorted(result.aborted_transactions or (), key=lambda each: each.first_offset)
        aborted: set[int] = set()
        for each in batches(result.records):
            while to_come and to_come[0].first_offset <= each.last_offset:
                aborted.add(to_come.pop(0).producer_id)
            if each.is_control:
                aborted.discard(each.producer_id)
            elif each.base_offset >= offset and not (each.is_transactional and each.producer_id in aborted):
                values += values_of(each.buffer)
            offset = each.next_offset
    return values


@settings(max_examples=40)
@given(
    ops=st.lists(st.builds(Op, st.sampled_from(OPS), st.sampled_from(PRODUCERS)), max_size=40),
    size_max=st.sampled_from([1, 200, 100_000]),
)
def test_what_is_read_is_what_was_written(ops: list[Op], size_max: int) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=400)
        written = Written()
        for op in ops:
            await write(world, written, op)
        for producer in sorted(written.open):
            await write(world, written, Op("abort", producer))
        await write(world, written, Op("move", 1))
        assert await consume(world, COMMITTED, size_max) == written.committed
        assert await consume(world, CONSUMER, size_max) == written.everything
        assert world.counts.fetch_errors == 0

    with tempfile.TemporaryDirectory() as directory:
        reading(Path(directory), story)


def test_the_oracle_sees_transactions() -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=400)
        written = Written()
        for kind, producer in (("transactional", 1), ("transactional", 2), ("plain", 1), ("abort", 1), ("commit", 2)):
            await write(world, written, Op(kind, producer))
        assert written.committed == [b"1", b"2"]
        assert await consume(world, COMMITTED, 1) == [b"1", b"2"]
        assert await consume(world, CONSUMER, 1) == [b"0", b"1", b"2"]
        await asyncio.sleep(0)

    with tempfile.TemporaryDirectory() as directory:
        reading(Path(directory), story)
