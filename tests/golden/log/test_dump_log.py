"""Apache Kafka's own DumpLogSegments reads the files of our log without a complaint (behaviours 3, 4 and 5)."""

from pathlib import Path

import pytest

from broker.common.file_system import OsFileSystem
from broker.records.compression import CompressionType
from tests.support import java_tools
from tests.support.builders import parsed
from tests.unit.log.log_world import NOW_MS, LogWorld

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> LogWorld:
    """Three segments: every codec, two producers, an aborted and a committed transaction, multi-batch appends."""
    world = LogWorld(OsFileSystem(), tmp_path_factory.mktemp("data"), segment_bytes=30_000, index_interval_bytes=500)
    for number, codec in enumerate(CompressionType):
        world.append(20, size=50, compression=codec, epoch=3, timestamp=NOW_MS + number)
    for number in range(200):
        world.log.append_as_leader(
            parsed(*(world.batch(1 + each, size=40, timestamp=NOW_MS + 10 + number) for each in range(4))), 4
        )
    for sequence, producer_id, commit in ((0, 7, False), (0, 8, True), (1, 7, False)):
        world.append(producer_id=producer_id, producer_epoch=1, base_sequence=sequence, is_transactional=True, epoch=5)
        world.marker(producer_id, commit=commit, producer_epoch=1, coordinator_epoch=2, epoch=5)
    world.append(2, producer_id=9, producer_epoch=0, base_sequence=5, epoch=5)
    world.log.update_high_watermark(world.log.log_end_offset)
    world.close()
    return world


def dump(paths: list[Path], *options: str) -> str:
    output = java_tools.run("DumpLogSegments", "--files", ",".join(map(str, paths)), *options)
    for complaint in ("Mismatches", "not found", "Exception", "corrupt", "isvalid: false", "Index timestamp of"):
        assert complaint not in output, output[-3000:]
    return output


def files(world: LogWorld, suffix: str) -> list[Path]:
    return [world.directory / name for name in world.names() if name.endswith(suffix)]


def test_3_deep_iteration_of_every_segment(world: LogWorld) -> None:
    output = dump(files(world, ".log"), "--deep-iteration")
    assert output.count("baseOffset: ") == len(world.batches())
    for expected in ("compresscodec: zstd", "producerId: 7", "endTxnMarker: ABORT", "endTxnMarker: COMMIT"):
        assert expected in output
    assert f"lastOffset: {world.log.log_end_offset - 1} " in output


def test_4_indexes_agree_with_the_log(world: LogWorld) -> None:
    assert len(files(world, ".index")) >= 3
    for option in ("--verify-index-only", "--index-sanity-check"):
        dump(files(world, ".index") + files(world, ".timeindex"), option)


def test_5_snapshots_and_the_transaction_index(world: LogWorld) -> None:
    snapshot = dump(files(world, ".snapshot")[-1:])
    assert "producerId: 9 producerEpoch: 0" in snapshot
    assert "lastSequence: 6" in snapshot
    (index,) = files(world, ".txnindex")
    output = dump([index])
    assert output.count("producerId: 7") == 2
    assert "producerId: 8" not in output
