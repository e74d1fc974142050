import gzip
import struct
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from broker.common.errors import InvalidRecordError
from broker.records.compression import CompressionType, compress, decompress

TEXT = b"the same words, again and again; " * 4000  # 132,000 bytes: several blocks for every codec
CODECS = [codec for codec in CompressionType if codec is not CompressionType.NONE]
ROOMY = 10 * len(TEXT)


@pytest.mark.parametrize("codec", CompressionType)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one byte", "long"])
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_round_trip(codec: CompressionType, data: bytes, view: type) -> None:
    packed = compress(codec, view(data))
    assert decompress(codec, view(packed), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_above_the_limit_is_refused(codec: CompressionType) -> None:
    packed = compress(codec, TEXT)
    assert len(packed) < len(TEXT) / 10
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(InvalidRecordError, match="more than"):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_concatenated_frames_are_one_payload(codec: CompressionType) -> None:
    packed = compress(codec, TEXT) + compress(codec, b"tail")
    assert decompress(codec, packed, ROOMY) == TEXT + b"tail"
    with pytest.raises(InvalidRecordError, match="more than"):
        decompress(codec, packed, len(TEXT) + 3)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_refused(codec: CompressionType) -> None:
    with pytest.raises(InvalidRecordError, match=f"unpacked as {codec.label}"):
        decompress(codec, b"\x01no codec makes this", ROOMY)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_cut_short_is_refused_or_incomplete(codec: CompressionType) -> None:
    packed = compress(codec, TEXT)
    for size in (1, 9, len(packed) // 2, len(packed) - 1):
        try:
            assert len(decompress(codec, packed[:size], ROOMY)) < len(TEXT)
            assert codec in (CompressionType.ZSTD, CompressionType.SNAPPY)
        except InvalidRecordError:
            pass


@pytest.mark.parametrize(
    ("codec", "best"), [(CompressionType.GZIP, 9), (CompressionType.LZ4, 12), (CompressionType.ZSTD, 19)]
)
def test_levels_change_the_size(codec: CompressionType, best: int) -> None:
    words = b"".join(b"%d squared is %d; " % (number, number * number) for number in range(20_000))
    fast, small = compress(codec, words, 1), compress(codec, words, best)
    assert len(small) < len(fast)
    assert decompress(codec, small, ROOMY) == words


def test_other_encoders_are_read() -> None:
    assert decompress(CompressionType.GZIP, gzip.compress(TEXT), ROOMY) == TEXT
    assert decompress(CompressionType.LZ4, lz4.frame.compress(TEXT), ROOMY) == TEXT
    streamed = zstandard.ZstdCompressor().compressobj()
    without_size = streamed.compress(TEXT) + streamed.flush()
    assert decompress(CompressionType.ZSTD, without_size, ROOMY) == TEXT
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), ROOMY) == TEXT


def test_other_decoders_read_ours() -> None:
    assert gzip.decompress(compress(CompressionType.GZIP, TEXT)) == TEXT
    assert lz4.frame.decompress(compress(CompressionType.LZ4, TEXT)) == TEXT
    assert zstandard.ZstdDecompressor().decompress(compress(CompressionType.ZSTD, TEXT)) == TEXT


def test_lz4_blocks_are_independent() -> None:
    info = lz4.frame.get_frame_info(compress(CompressionType.LZ4, TEXT))
    assert (info["block_linked"], info["block_size"]) == (False, 65536)


def test_snappy_is_framed_as_java_frames_it() -> None:
    packed = compress(CompressionType.SNAPPY, TEXT)
    assert packed[:16].hex() == "82534e41505059000000000100000001"
    first = struct.unpack_from(">i", packed, 16)[0]
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first])) == TEXT[:32768]


@pytest.mark.parametrize("block", [struct.pack(">i", 100) + b"short", struct.pack(">i", -5), b"\x00\x00"])
def test_snappy_blocks_must_be_whole(block: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="no whole block"):
        decompress(CompressionType.SNAPPY, compress(CompressionType.SNAPPY, b"") + block, ROOMY)


def test_a_payload_that_would_fill_the_memory_is_refused_early() -> None:
    bomb = zlib.compress(bytes(50_000_000), wbits=31)
    with pytest.raises(InvalidRecordError, match="more than 1000 bytes"):
        decompress(CompressionType.GZIP, bomb, 1000)
    claim = bytes.fromhex("ffffffff0f") + b"\x00"  # a snappy block that says it holds 4 GiB
    with pytest.raises(InvalidRecordError):
        decompress(CompressionType.SNAPPY, claim, 1000)


def test_names() -> None:
    assert [codec.label for codec in CompressionType] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [CompressionType.of(codec.label) for codec in CompressionType] == list(CompressionType)
    assert CompressionType.of("uncompressed") is CompressionType.NONE
    with pytest.raises(ValueError, match="'brotli'"):
        CompressionType.of("brotli")
