import json
from pathlib import Path

import pytest

from broker.common.file_system import OsFileSystem
from broker.controller.quorum_state import QuorumState, QuorumStateError, read_quorum_state, write_quorum_state


def test_no_file_means_there_never_was_a_leader(tmp_path: Path) -> None:
    assert read_quorum_state(OsFileSystem(), tmp_path) is None


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    write_quorum_state(OsFileSystem(), tmp_path, QuorumState(3000, 7))
    expected = (
        '{"clusterId":"","leaderId":3000,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":3000}],"data_version":0}'
    )
    assert (tmp_path / "quorum-state").read_text() == expected
    assert read_quorum_state(OsFileSystem(), tmp_path) == QuorumState(3000, 7)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data_version": 1}, "data_version 1"),
        ({"currentVoters": [{"voterId": 1}, {"voterId": 2}]}, r"voters \[1, 2\]"),
        ({"leaderEpoch": "x"}, "cannot be read"),
    ],
)
def test_files_of_other_quorums_are_refused(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    write_quorum_state(OsFileSystem(), tmp_path, QuorumState(1, 7))
    path = tmp_path / "quorum-state"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(QuorumStateError, match=reason):
        read_quorum_state(OsFileSystem(), tmp_path)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_text("{")
    with pytest.raises(QuorumStateError):
        read_quorum_state(OsFileSystem(), tmp_path)
