"""What we call a buffer: bytes that are passed along without being copied."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
MutableBuffer: TypeAlias = bytearray | memoryview  # a memoryview here is one over a bytearray: offsets are set in place
