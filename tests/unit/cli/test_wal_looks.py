from pathlib import Path
from uuid import UUID

import pytest

from broker.cli import main
from broker.cli.wal_looks import summary
from broker.cli.wal_verification import VerificationCounts
from broker.common.identifiers import TopicIdPartition
from tests.support.wal_directory import WalDirectory, wal_slice
from tests.unit.wal.wal_world import log_bytes

from .test_wal_logs import write_log

FOO = TopicIdPartition(UUID(int=0xF00), "foo", 0)
RECORDS = log_bytes((0, 3), (1, 2))


@pytest.fixture
def directory(tmp_path: Path) -> WalDirectory:
    return WalDirectory(tmp_path / "bucket")


def test_list_show_and_verify(directory: WalDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    combined = directory.store(wal_slice(FOO, 1, RECORDS, leader_epoch=1))
    key, bucket = combined.metadata.object_key, str(directory.path)
    assert main(["wal", "ls", bucket]) == 0
    age, *others = capsys.readouterr().out.splitlines()[1].split()
    assert 0 <= int(age) < 600
    assert others == [str(combined.size), "1", "1", key]
    assert main(["wal", "show", bucket, key]) == 0
    assert "foo-0 " in capsys.readouterr().out
    assert main(["wal", "verify", bucket]) == 0
    assert capsys.readouterr().out == f"1 objects, 1 slices, {combined.size} bytes; 0 problems\n"
    write_log(tmp_path / "data", FOO, {0: RECORDS})
    assert main(["wal", "verify", bucket, "--log-dir", str(tmp_path / "data")]) == 0
    assert "batches in logs: 2 equal, 0 superseded, 0 absent; 0 problems" in capsys.readouterr().out


def test_problems_are_printed_and_end_with_1(directory: WalDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    combined = directory.store(wal_slice(FOO, 1, RECORDS, leader_epoch=1))
    key, bucket = combined.metadata.object_key, directory.url
    data = bytearray(directory.file(combined).read_bytes())
    data[5] ^= 1
    directory.file(combined).write_bytes(data)
    (directory.path / "readme.txt").write_text("hello")
    assert main(["wal", "show", bucket, key]) == 1
    capsys.readouterr()
    assert main(["wal", "verify", "--quiet", bucket]) == 1
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines[0].startswith(f"corrupt   {key}: Slice 0 to 4 of foo-0")
    assert lines[1:] == ["foreign   readme.txt: no key of an object of the WAL"]


def test_what_cannot_be_looked_at_ends_with_2(
    directory: WalDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = str(directory.path)
    for arguments, sentence in (
        (["ls", str(tmp_path / "none")], "none"),
        (["ls", "gs://b"], "'gs://b' is not a bucket"),
        (["show", bucket, "none"], "none"),
        (["verify", bucket, "--log-dir", str(tmp_path / "none")], "there is no such directory"),
        (["verify", bucket, "--bootstrap-server", "here"], "--bootstrap-server: 'here' is not of the form host:port"),
        (["verify", bucket, "--bootstrap-server", "127.0.0.1:1"], "127.0.0.1:1: "),
    ):
        assert main(["wal", *arguments]) == 2
        assert sentence in capsys.readouterr().err


def test_the_summary_names_what_was_no_problem() -> None:
    counts = VerificationCounts(objects=3, slices=9, bytes_read=100, gone=1, pending=2, expired=4, equal_batches=5)
    assert summary(counts, 6, with_pointers=True, with_logs=True) == (
        "3 objects, 9 slices, 100 bytes; 2 not yet announced, 4 pointers to objects that have expired; "
        "1 deleted meanwhile; batches in logs: 5 equal, 0 superseded, 0 absent; 6 problems"
    )
