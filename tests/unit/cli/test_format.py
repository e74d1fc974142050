from pathlib import Path

import pytest

from broker.cli import main
from broker.common.file_system import OsFileSystem
from broker.config.broker_config import DEFAULT_SINGLE_NODE
from broker.server.meta_properties import read_meta_properties

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
OTHER_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    values = {**DEFAULT_SINGLE_NODE, "log.dirs": str(tmp_path / "data"), "node.id": "5"}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


def test_format_writes_the_identity(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--cluster-id", CLUSTER_ID, str(file)]) == 0
    meta = read_meta_properties(OsFileSystem(), tmp_path / "data")
    assert meta is not None
    assert (meta.cluster_id, meta.node_id) == (CLUSTER_ID, 5)
    assert capsys.readouterr().out.startswith(
        f"Formatted {tmp_path}/data: cluster.id={CLUSTER_ID} node.id=5 directory.id="
    )


def test_a_formatted_directory_is_left_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--cluster-id", CLUSTER_ID, str(file)]) == 0
    assert main(["format", "--cluster-id", CLUSTER_ID, str(file)]) == 2
    assert "is already formatted; --ignore-formatted accepts that." in capsys.readouterr().err
    assert main(["format", "--ignore-formatted", "--cluster-id", CLUSTER_ID, str(file)]) == 0


def test_another_cluster_or_node_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--cluster-id", CLUSTER_ID, str(file)]) == 0
    assert main(["format", "--ignore-formatted", "--cluster-id", OTHER_CLUSTER_ID, str(file)]) == 2
    error = capsys.readouterr().err
    assert CLUSTER_ID in error and OTHER_CLUSTER_ID in error
    assert main(["format", "--cluster-id", CLUSTER_ID, str(file), "--override", "node.id=6"]) == 2
    assert "belongs to node.id=5, but node.id=6 is configured" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["short", "AAAAAAAAAAAAAAAAAAAAAA"])
def test_cluster_ids_are_uuids_that_kafka_does_not_reserve(
    text: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["format", "--cluster-id", text, str(file)]) == 2
    assert f"--cluster-id='{text}': " in capsys.readouterr().err
