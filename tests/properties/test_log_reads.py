"""Reads against a dumb twin: any offset, size and upper bound answer whole batches, the right ones, and enough."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.file_records import read
from broker.records.record_batch import batches
from tests.unit.log.log_world import LogWorld


@settings(max_examples=80)
@given(data=st.data())
def test_reads_against_a_dumb_twin(data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from([0, 100, 300, 4096]))
    segment_bytes = data.draw(st.sampled_from([600, 1000, 10**6]))
    world = LogWorld(compact=True, segment_bytes=segment_bytes, index_interval_bytes=interval)  # gaps are allowed
    twin: list[tuple[int, int, bytes]] = []
    for count, size in data.draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 60)), min_size=1, max_size=25)):
        gap = data.draw(st.sampled_from([0, 0, 0, 3]))
        base = world.log.log_end_offset + gap
        batch = bytes(world.batch(count, size=size, base_offset=base, partition_leader_epoch=0))
        world.log.append_as_follower(batch, 0)
        twin.append((base, base + count - 1, batch))
    if data.draw(st.booleans()):
        world.reload(clean=data.draw(st.booleans()))
    end = world.log.log_end_offset
    for _ in range(8):
        offset = data.draw(st.integers(0, end))
        upper = data.draw(st.integers(0, end))
        size_max = data.draw(st.integers(1, 2000))
        min_one = data.draw(st.booleans())
        answer = world.log.read(offset, size_max, upper, min_one_batch=min_one)
        wanted = [batch for base, last, batch in twin if last >= offset and last < upper]
        found = b"" if answer.file_slice is None else bytes(read(answer.file_slice))
        assert b"".join(wanted).startswith(found)
        assert sum(batch.size_bytes for batch in batches(found)) == len(found)
        if offset >= upper or not wanted:
            assert found == b""
        elif min_one or len(wanted[0]) <= size_max:
            assert len(found) >= len(wanted[0])
            assert len(found) <= max(size_max, len(wanted[0]))
        else:
            assert answer.first_entry_incomplete
