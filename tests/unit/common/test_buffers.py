from typing import get_args

from broker.common.buffers import Buffer, MutableBuffer


def test_offsets_can_be_set_in_mutable_buffers_only() -> None:
    assert get_args(Buffer) == (bytes, bytearray, memoryview)
    assert get_args(MutableBuffer) == (bytearray, memoryview)
