"""Whatever a stop leaves on the disk, the log that comes back is a prefix of what was appended, and never less than
what was flushed.

`WHERRY_SEEDS` sets the number of crash stories (default 100).
"""

import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from broker.records.record_batch import RecordBatch
from tests.support.builders import parsed
from tests.unit.log.log_world import LogWorld

SEEDS = int(os.environ.get("WHERRY_SEEDS", "100"))


def check_prefix(recovered: list[RecordBatch], appended: list[bytes]) -> None:
    """Byte for byte, in order, without holes."""
    assert [bytes(batch.buffer) for batch in recovered] == appended[: len(recovered)]
    assert all(batch.is_crc_valid() for batch in recovered)


def check_indexes(world: LogWorld) -> None:
    """Each offset index entry names the last offset of the batch that starts at its position."""
    for segment in world.log.segments:
        positions = {batch.position: batch.last_offset for batch in segment.records.batch_positions(0)}
        for entry in segment.offset_index.entries():
            assert positions[entry.position] == entry.offset
        times = segment.time_index.entries()
        assert times == sorted(set(times))


@settings(max_examples=60)
@given(data=st.data())
def test_15_a_log_cut_at_any_byte_recovers_a_whole_prefix(data: st.DataObject) -> None:
    world = LogWorld(segment_bytes=700, index_interval_bytes=100)
    appended = []
    for count in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=12)):
        world.append(count, size=data.draw(st.integers(0, 60)))
    appended = [bytes(batch.buffer) for batch in world.batches()]
    victim = data.draw(st.sampled_from(list(world.log.segments)))
    size = data.draw(st.integers(0, victim.size_bytes))
    path = victim.records.path
    whole = [b for b in victim.records.batch_positions(0) if b.position + b.size <= size]
    below = sum(1 for batch in world.batches() if batch.last_offset < victim.base_offset)
    world.disk.overwrite(path, world.disk.read(path)[:size])

    log = world.reload()

    recovered = world.batches()
    check_prefix(recovered, appended)
    if size < victim.size_bytes:
        assert len(recovered) == below + len(whole)
    assert log.log_end_offset == (recovered[-1].next_offset if recovered else 0)
    check_indexes(world)
    assert world.append(1) == (recovered[-1].next_offset if recovered else 0)


@settings(max_examples=40)
@given(data=st.data())
def test_16_a_flipped_byte_above_the_recovery_point_cuts_the_log_there(data: st.DataObject) -> None:
    world = LogWorld(segment_bytes=100_000, index_interval_bytes=100)
    for _ in range(6):
        world.append(2, size=30)
    appended = [bytes(batch.buffer) for batch in world.batches()]
    path = world.path(0, ".log")
    content = bytearray(world.disk.read(path))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    world.disk.overwrite(path, bytes(content))
    world.reload()
    recovered = world.batches()
    hit = at // len(appended[0])
    within = at % len(appended[0])
    if within >= 17:  # the CRC and what it covers; base offset and epoch are outside it
        check_prefix(recovered, appended)
        assert len(recovered) == hit
    assert all(batch.is_crc_valid() for batch in recovered)


class CrashStory:
    """Appends, rolls, truncations and power cuts, with `flush.messages=1`: what was acknowledged must come back."""

    def __init__(self, seed: int, **config: Any) -> None:
        self.chance = Chance(seed)
        self.world = LogWorld(
            segment_bytes=600 + self.chance.below(2000), index_interval_bytes=self.chance.below(400), **config
        )
        self.appended: list[bytes] = []
        self.acknowledged = 0
        self.refused: list[bytes] = []  # since the last success; one may be whole on the device, its cut lost
        self.recovery_point = 0
        self.log_start_offset = 0
        self.sequences: dict[int, int] = {}
        self.epoch = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.crash()

    def step(self) -> None:
        kind = self.chance.below(20)
        if kind < 14:
            self.append()
        elif kind < 15:
            self.flush_in_background()
        elif kind < 16:
            self.checkpoint()
        elif kind < 17:
            self.epoch += 1
        elif kind < 18:
            self.world.disk.budget_bytes = self.world.disk.used_bytes() + self.chance.below(300)
        elif kind < 19:
            self.world.disk.heal()
        else:
            self.crash()

    def append(self) -> None:
        producer_id = self.chance.below(3)
        count = 1 + self.chance.below(3)
        sequence = self.sequences.get(producer_id, 0)
        batch = self.world.batch(
            count,
            size=self.chance.below(120),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        (result,) = self.world.log.append_as_leader(parsed(batch), self.epoch)
        if result.error is not None:
            assert isinstance(result.error, StorageFailure), result.error
            self.refused.append(bytes(batch))
            return
        self.refused.clear()
        self.sequences[producer_id] = sequence + count
        self.appended.append(bytes(batch))
        self.world.log.update_high_watermark(self.world.log.log_end_offset)
        if self.world.config.flush_messages == 1:
            self.acknowledged = len(self.appended)

    def flush_in_background(self) -> None:
        try:
            self.world.log.flush()
        except StorageFailure:
            return
        self.acknowledged = len(self.appended)

    def checkpoint(self) -> None:
        self.recovery_point = self.world.log.recovery_point

    def crash(self) -> None:
        self.world.disk.crash(self.chance)
        if self.chance.below(3) == 0:  # full when it comes back
            self.world.disk.budget_bytes = self.world.disk.used_bytes() + self.chance.below(200)
        log = self.world.reload(recovery_point=self.recovery_point, log_start_offset=self.log_start_offset, close=False)
        recovered = self.recovered()
        whole = [bytes(batch.buffer) for batch in recovered]
        if whole[: len(self.appended)] == self.appended and whole[len(self.appended) :]:
            assert whole[len(self.appended) :] in [[refused] for refused in self.refused]
            self.appended.append(whole[-1])
        self.refused.clear()
        check_prefix(recovered, self.appended)
        assert len(recovered) >= self.acknowledged, f"{len(recovered)} of {self.acknowledged} acknowledged came back"
        check_indexes(self.world)
        self.appended = self.appended[: len(recovered)]
        self.recovery_point = min(self.recovery_point, log.recovery_point)
        self.check_producers(recovered)
        log.update_high_watermark(log.log_end_offset)

    def recovered(self) -> list[RecordBatch]:
        return self.world.batches()

    def check_producers(self, recovered: list[RecordBatch]) -> None:
        self.sequences = {}
        for batch in recovered:
            self.sequences[batch.producer_id] = batch.last_sequence + 1
        known = self.world.log.producer_state_manager.producers
        assert {each: entry.last_sequence + 1 for each, entry in known.items()} == self.sequences
        epochs: dict[int, int] = {}
        for batch in recovered:
            epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
        assert {entry.epoch: entry.start_offset for entry in self.world.log.leader_epochs.entries} == epochs


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_batches_survive_power_cuts_with_flush_messages_1(seed: int) -> None:
    CrashStory(seed, flush_messages=1).run(60)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_flush_a_power_cut_leaves_a_prefix(seed: int) -> None:
    CrashStory(100_000 + seed).run(60)


class TieredCrashStory(CrashStory):
    """The same with remote storage, which keeps what was copied: local retention, deleted records, and checkpoints of
    the log start as they come."""

    def __init__(self, seed: int, **config: Any) -> None:
        super().__init__(seed, tiered=True, local_retention_bytes=Chance(seed).below(3000), **config)
        self.copied_end = 0
        self.has_drained = False

    def step(self) -> None:
        kind = self.chance.below(12)
        if kind < 7:
            super().step()
        elif kind < 9:
            self.copy()
        elif kind < 10:
            self.retain()
        elif kind < 11:
            self.log_start_offset = self.world.checkpoint_log_start()
        elif self.chance.below(4) == 0:
            self.delete_records()

    def copy(self) -> None:
        """Some of the closed segments, in order."""
        bases = self.world.log.segments.base_offsets
        self.copied_end = max(self.copied_end, bases[self.chance.below(len(bases))])
        self.world.log.update_highest_remote_offset(self.copied_end - 1)

    def retain(self) -> None:
        if self.chance.below(4):
            self.flush_in_background()
        log = self.world.log
        log.delete_old_segments()
        self.has_drained = self.has_drained or log.local_log_start_offset > log.log_start_offset
        assert log.local_log_start_offset <= max(self.copied_end, log.log_start_offset)

    def delete_records(self) -> None:
        if self.acknowledged:
            end_offset = RecordBatch.parse(self.appended[self.acknowledged - 1]).next_offset
            self.world.log.maybe_increment_log_start_offset(self.chance.below(end_offset + 1), "delete records")
            if self.chance.below(2):
                self.retain()

    def crash(self) -> None:
        copied_end, self.copied_end = self.copied_end, 0
        super().crash()
        log = self.world.log
        assert log.log_start_offset == self.log_start_offset
        assert log.local_log_start_offset <= max(copied_end, log.log_start_offset), "neither here nor there"
        self.copied_end = min(copied_end, log.log_end_offset)
        log.update_highest_remote_offset(self.copied_end - 1)

    def recovered(self) -> list[RecordBatch]:
        """What is on the disk, behind what was appended below it."""
        local_start = self.world.log.local_log_start_offset
        below = [RecordBatch.parse(each) for each in self.appended]
        return [batch for batch in below if batch.next_offset <= local_start] + self.world.batches()

    def check_producers(self, recovered: list[RecordBatch]) -> None:
        """Those whose records are all deleted may be forgotten; no epoch of the remote part is."""
        log = self.world.log
        known = {each: entry.last_sequence + 1 for each, entry in log.producer_state_manager.producers.items()}
        self.sequences = {}
        for batch in recovered:
            self.sequences[batch.producer_id] = batch.last_sequence + 1
        present = {batch.producer_id for batch in recovered if batch.next_offset > log.log_start_offset}
        assert present <= known.keys()
        assert known == {each: self.sequences[each] for each in known}
        epochs = LeaderEpochFileCache(self.world.disk, self.world.directory)
        for batch in recovered:
            epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        epochs.truncate_from_start(log.log_start_offset)
        has_records = log.log_end_offset > log.log_start_offset
        assert log.leader_epochs.entries == epochs.entries or not has_records


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_cuts_lose_nothing_of_a_tiered_log_that_is_not_copied(seed: int) -> None:
    TieredCrashStory(seed, flush_messages=1).run(120)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_flush_a_power_cut_leaves_a_prefix_of_a_tiered_log(seed: int) -> None:
    TieredCrashStory(100_000 + seed).run(120)


def test_the_stories_have_remote_parts() -> None:
    stories = [TieredCrashStory(seed, flush_messages=1) for seed in range(20)]
    for story in stories:
        story.run(120)
    assert sum(story.has_drained for story in stories) > 10
