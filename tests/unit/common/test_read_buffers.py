from broker.common.read_buffers import KEPT_BYTES_MAX, LARGEST_BYTES, SMALLEST_BYTES, ReadBuffers


def test_a_buffer_is_lent_again_once_nobody_looks_at_it() -> None:
    buffers = ReadBuffers()
    first = buffers.lend(20_000)
    first[:4] = b"read"
    part = first[2:4]
    second = buffers.lend(30_000)
    assert (len(first), len(second)) == (20_000, 30_000)
    assert second.obj is not first.obj
    memory = first.obj
    del first
    assert buffers.lend(20_000).obj is not memory  # a part of it is still looked at
    assert bytes(part) == b"ad"
    del part
    again = {id(buffers.lend(32_768).obj) for _ in range(3)}
    assert id(memory) in again
    assert len(again) <= 3


def test_sizes_that_gain_nothing_are_not_kept() -> None:
    buffers = ReadBuffers()
    assert (len(buffers.lend(0)), len(buffers.lend(SMALLEST_BYTES - 1)), len(buffers.lend(LARGEST_BYTES + 1))) == (
        0,
        SMALLEST_BYTES - 1,
        LARGEST_BYTES + 1,
    )
    assert buffers.kept_bytes == 0


def test_what_is_kept_is_bounded_what_is_lent_is_not() -> None:
    buffers = ReadBuffers()
    lent = [buffers.lend(LARGEST_BYTES) for _ in range(20)]
    assert len({id(view.obj) for view in lent}) == 20
    assert buffers.kept_bytes == KEPT_BYTES_MAX
