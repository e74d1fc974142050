"""The `quorum-state` file: who leads the metadata quorum, in which epoch (Kafka's FileQuorumStateStore)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.common.file_system import FileSystem, read_file, write_file_atomically

QUORUM_STATE_FILE: Final = "quorum-state"
_DATA_VERSION: Final = 0  # static voters: kraft.version 0


class QuorumStateError(Exception):
    """The file cannot be used by this node; the message says what an operator can do."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The epoch only ever rises; each start of the controller is a new one."""

    leader_id: int
    leader_epoch: int


def read_quorum_state(file_system: FileSystem, directory: Path) -> QuorumState | None:
    """None when there is no file: the quorum never had a leader."""
    path = directory / QUORUM_STATE_FILE
    try:
        content = read_file(file_system, path)
    except FileNotFoundError:
        return None
    try:
        data = json.loads(content)
        version = data["data_version"]
        voters = [int(voter["voterId"]) for voter in data.get("currentVoters", ())]
        state = QuorumState(int(data["leaderId"]), int(data["leaderEpoch"]))
    except (ValueError, KeyError, TypeError) as error:
        raise QuorumStateError(f"{path} cannot be read: {error!r}") from error
    if version != _DATA_VERSION:
        raise QuorumStateError(f"{path} has data_version {version}; only 0 (static voters) is supported")
    if len(voters) > 1:
        raise QuorumStateError(
            f"{path} names the voters {voters}: the embedded controller is a quorum of one, "
            "larger quorums are served by Apache Kafka's controllers"
        )
    return state


def write_quorum_state(file_system: FileSystem, directory: Path, state: QuorumState) -> None:
    """Durable when it returns."""
    content = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": state.leader_id}],
        "data_version": _DATA_VERSION,
    }
    encoded = json.dumps(content, separators=(",", ":")).encode()
    write_file_atomically(file_system, directory / QUORUM_STATE_FILE, encoded)
