"""The codecs of a record batch's payload, with an upper bound on what a payload may unpack to."""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame
import zstandard

from broker.common.buffers import Buffer
from broker.common.errors import InvalidRecordError

# Kafka streams and has no bound. A batch of max.message.bytes (1 MiB) of zeros is about 1 GiB under zstd; real data
# stays far below 100:1, and a refused batch is better than a broker that is out of memory.
DECOMPRESSED_SIZE_MAX: Final = 128 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
_XERIAL_BLOCK_SIZE: Final = 32 * 1024  # SnappyOutputStream.DEFAULT_BLOCK_SIZE, which Kafka's reader expects at most
_INT32: Final = struct.Struct(">i")
_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS  # a gzip header is required


class CompressionType(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in configurations and metrics: "gzip"."""
        return self.name.lower()

    @classmethod
    def of(cls, label: str) -> "CompressionType":
        """The codec of a configured name ("uncompressed", as topics spell it, is NONE); ValueError when unknown."""
        if label == "uncompressed":
            return cls.NONE
        for codec in cls:
            if codec.label == label:
                return codec
        raise ValueError(f"unknown compression type {label!r}")


def compress(codec: CompressionType, data: Buffer, level: int | None = None) -> bytes:
    """`data` as one payload of `codec`.  `level` is the codec's own scale; None is its default, snappy has none."""
    return _COMPRESSORS[codec](data, level)


def decompress(codec: CompressionType, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """The records inside a payload.

    Several gzip, lz4 or zstd frames in a row are one payload.  InvalidRecordError when the payload is not of this
    codec, is cut short, or would unpack to more than `size_max` bytes (hardly more is ever allocated).  A zstd frame
    cut short gives what it holds: the reader of the records misses the rest.
    """
    return _DECOMPRESSORS[codec](data, size_max)


def _too_large(size_max: int) -> InvalidRecordError:
    return InvalidRecordError(f"A batch's records unpack to more than {size_max} bytes")


def _unreadable(codec: CompressionType, reason: object) -> InvalidRecordError:
    return InvalidRecordError(f"A batch's records cannot be unpacked as {codec.label}: {reason}")


def _compress_none(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


def _decompress_none(data: Buffer, size_max: int) -> bytes:
    if len(data) > size_max:
        raise _too_large(size_max)
    return bytes(data)


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    output = bytearray()
    rest: Buffer = data
    while rest:
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            output += member.decompress(rest, size_max - len(output) + 1)
        except zlib.error as error:
            raise _unreadable(CompressionType.GZIP, error) from error
        if len(output) > size_max:
            raise _too_large(size_max)
        if not member.eof:
            raise _unreadable(CompressionType.GZIP, "the stream is cut short")
        rest = member.unused_data
    return bytes(output)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    """Snappy in xerial framing, the only form Java's readers accept."""
    output = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for position in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(bytes(view[position : position + _XERIAL_BLOCK_SIZE])))
        output += _INT32.pack(len(block))
        output += block
    return bytes(output)


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    """Snappy in xerial framing; a bare block, which some C clients send, is accepted too (SnappyInputStream)."""
    payload = bytes(data)
    if not payload.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(payload, size_max)
    output = bytearray()
    position = 0
    while position < len(payload):
        if payload.startswith(_XERIAL_MAGIC, position):  # the start, and where streams were concatenated
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        length = _INT32.unpack_from(payload, position)[0] if start <= len(payload) else -1
        if not 0 <= length <= len(payload) - start:
            raise _unreadable(CompressionType.SNAPPY, f"no whole block at byte {position}")
        position = start + length
        output += _decompress_snappy_block(payload[start:position], size_max - len(output))
    return bytes(output)


def _decompress_snappy_block(block: bytes, size_max: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > size_max:  # checked before memory is taken for it
            raise _unreadable(CompressionType.SNAPPY, f"a block holds more than the {size_max} bytes allowed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _unreadable(CompressionType.SNAPPY, error) from error


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # Kafka's Lz4BlockInputStream refuses linked blocks.
    compressed: bytes = lz4.frame.compress(
        bytes(data),
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, size_max: int) -> bytes:
    output = bytearray()
    rest: bytes | None = bytes(data)
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        try:
            output += frame.decompress(rest, size_max - len(output) + 1)
        except RuntimeError as error:
            raise _unreadable(CompressionType.LZ4, error) from error
        if len(output) > size_max:
            raise _too_large(size_max)
        if not frame.eof:
            raise _unreadable(CompressionType.LZ4, "the frame is cut short")
        rest = frame.unused_data
    return bytes(output)


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _decompress_zstd(data: Buffer, size_max: int) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            output = reader.read(size_max + 1)
    except zstandard.ZstdError as error:
        raise _unreadable(CompressionType.ZSTD, error) from error
    if len(output) > size_max:
        raise _too_large(size_max)
    return output


_COMPRESSORS: Final[dict[CompressionType, Callable[[Buffer, int | None], bytes]]] = {
    CompressionType.NONE: _compress_none,
    CompressionType.GZIP: _compress_gzip,
    CompressionType.SNAPPY: _compress_snappy,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[CompressionType, Callable[[Buffer, int], bytes]]] = {
    CompressionType.NONE: _decompress_none,
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
