from pathlib import Path
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import uuid_from_text, uuid_to_text
from broker.config.setting import ConfigError
from broker.server.meta_properties import (
    MetaProperties,
    check_meta_properties,
    format_directory,
    load_or_format,
    read_meta_properties,
    write_meta_properties,
)
from tests.support.sim_disk import SimFileSystem

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
DIRECTORY_ID = uuid_from_text("LTNojMnBShS6ELDEP2qStQ")
FILES = OsFileSystem()


class FixedClock:
    def now_ms(self) -> int:
        return 1_795_980_000_000


def write(directory: Path, text: str) -> None:
    (directory / "meta.properties").write_text(text)


def load(directory: Path, *, node_id: int = 1, cluster_id: str | None = None) -> MetaProperties:
    return load_or_format(FILES, FixedClock(), Chance(7), directory, node_id=node_id, cluster_id=cluster_id)


def test_the_file_has_kafkas_form(tmp_path: Path) -> None:
    write_meta_properties(FILES, FixedClock(), tmp_path, MetaProperties(CLUSTER_ID, 3, DIRECTORY_ID))
    assert (tmp_path / "meta.properties").read_text() == (
        "#\n#Sun Nov 29 19:20:00 UTC 2026\n"
        f"cluster.id={CLUSTER_ID}\ndirectory.id=LTNojMnBShS6ELDEP2qStQ\nnode.id=3\nversion=1\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.properties"]


def test_what_kafka_writes_is_read(tmp_path: Path) -> None:
    write(tmp_path, f"#\n#a date\nversion=1\nnode.id = 3\ncluster.id\\={CLUSTER_ID}\n".replace("\\=", "="))
    assert read_meta_properties(FILES, tmp_path) == MetaProperties(CLUSTER_ID, 3, UUID(int=0))
    write(tmp_path, f"version=1\nnode.id=3\ncluster.id:{CLUSTER_ID}\ndirectory.id=LTNojMnBShS6ELDEP2qStQ\n")
    assert read_meta_properties(FILES, tmp_path) == MetaProperties(CLUSTER_ID, 3, DIRECTORY_ID)


def test_nothing_is_read_where_nothing_is(tmp_path: Path) -> None:
    assert read_meta_properties(FILES, tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("broker.id=1\ncluster.id=x\n", "version='0' is not supported; this broker reads version 1."),
        ("version=2\n", "version='2' is not supported; this broker reads version 1."),
        ("version=1\nnode.id=1\n", "cluster.id is missing."),
        ("version=1\ncluster.id=x\n", "node.id is missing."),
        ("version=1\ncluster.id=x\nnode.id=-1\n", "node.id='-1' is not a number of at least 0."),
        (
            "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
            "directory.id='AAAAAAAAAAAAAAAAAAAAAQ' is one of the ids Kafka reserves.",
        ),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=abcd\n", "directory.id: 'abcd' decodes to 3 bytes"),
    ],
)
def test_files_that_cannot_be_understood_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        read_meta_properties(FILES, tmp_path)
    assert str(refused.value).startswith(f"{tmp_path}/meta.properties: {sentence}")


def test_an_empty_directory_formats_itself(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "server"
    first = load(directory)
    assert first.node_id == 1
    assert uuid_to_text(uuid_from_text(first.cluster_id)) == first.cluster_id
    assert load(directory) == first
    assert load(directory, cluster_id=first.cluster_id) == first


def test_a_known_cluster_id_is_taken_over(tmp_path: Path) -> None:
    assert load(tmp_path, cluster_id=CLUSTER_ID).cluster_id == CLUSTER_ID


def test_lock_and_leftovers_do_not_count_as_data(tmp_path: Path) -> None:
    for name in (".lock", "lost+found", "meta.properties.tmp"):
        (tmp_path / name).touch()
    assert load(tmp_path).node_id == 1


def test_data_without_identity_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    with pytest.raises(ConfigError, match=r"has no meta\.properties but is not empty \(topic-0\)"):
        format_directory(FILES, FixedClock(), Chance(7), tmp_path, node_id=1, cluster_id=CLUSTER_ID)


def test_another_node_or_cluster_is_refused_naming_both() -> None:
    meta = MetaProperties(CLUSTER_ID, 1, DIRECTORY_ID)
    check_meta_properties(Path("data"), meta, node_id=1, cluster_id=CLUSTER_ID)
    with pytest.raises(ConfigError, match=r"belongs to node\.id=1, but node\.id=2 is configured"):
        check_meta_properties(Path("data"), meta, node_id=2)
    with pytest.raises(
        ConfigError, match=rf"belongs to cluster\.id={CLUSTER_ID}, but the cluster is cluster\.id=other"
    ):
        check_meta_properties(Path("data"), meta, node_id=1, cluster_id="other")


def test_a_directory_without_an_id_is_given_one_for_good(tmp_path: Path) -> None:
    write(tmp_path, f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n")
    meta = load(tmp_path)
    assert meta.directory_id.int >= 100
    assert load_or_format(FILES, FixedClock(), Chance(8), tmp_path, node_id=1, cluster_id=None) == meta


@pytest.mark.parametrize("seed", range(20))
def test_an_identity_once_written_survives_a_power_cut_with_the_directories_above_it(seed: int) -> None:
    disk = SimFileSystem()
    disk.make_directories(Path("mount"))
    disk.sync_everything()
    directory = Path("mount/new/server")
    meta = load_or_format(disk, FixedClock(), Chance(1), directory, node_id=1, cluster_id=None)
    disk.crash(Chance(seed))
    assert read_meta_properties(disk, directory) == meta
