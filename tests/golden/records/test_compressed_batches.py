"""Compressed batches between Apache Kafka and us: each reads what the other wrote."""

import os
from pathlib import Path

import pytest

from broker.records.compression import CompressionType
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record import Header, Record
from broker.records.record_batch import RecordBatch
from tests.golden.vectors import lines_of
from tests.support import java_tools

NOW = 1700000000000
WORDS = b"the same words again; " * 2000
BATCHES = lines_of(Path(__file__).with_name("compressed_batches.txt"))


def test_every_codec_is_there() -> None:
    assert [name for name, _ in BATCHES] == ["gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize(("name", "text"), BATCHES)
def test_we_read_the_batches_of_apache_kafka(name: str, text: str) -> None:
    batch = RecordBatch.parse(bytes.fromhex(text))
    batch.ensure_valid()
    assert batch.compression is CompressionType.of(name)
    assert list(batch.records()) == [
        Record(40, NOW, b"k1", WORDS, (Header("h", b"x"), Header("h", None)), 10),
        Record(41, NOW + 5, None, b"v2", (), 11),
    ]


@pytest.mark.java
@pytest.mark.skipif(java_tools.why_not_available() is not None, reason=str(java_tools.why_not_available()))
def test_apache_kafka_reads_our_batches(tmp_path: Path) -> None:
    incompressible = os.urandom(70_000)
    segment = bytearray()
    for codec in CompressionType:
        builder = MemoryRecordsBuilder(3 * codec, compression=codec)
        for value in (b"v", WORDS, incompressible):
            builder.append(NOW, b"key", value, [("h", None)])
        segment += builder.build()
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / f"{0:020}.log"
    path.write_bytes(segment)

    lines = java_tools.run("DumpLogSegments", "--files", str(path), "--deep-iteration").splitlines()

    records = [line.split() for line in lines if line.startswith("| offset:")]
    assert [(int(words[2]), int(words[8])) for words in records] == [
        (offset, (1, len(WORDS), len(incompressible))[offset % 3]) for offset in range(15)
    ]
    codecs = [line.partition("compresscodec: ")[2].split()[0] for line in lines if line.startswith("baseOffset:")]
    assert codecs == [codec.label for codec in CompressionType]
    assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset:"))
