"""meta.properties: which cluster, which node and which directory this is (Kafka's MetaProperties, version 1)."""

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import RESERVED_UUID_COUNT, uuid_from_text, uuid_to_text
from broker.config.properties import format_properties, parse_properties
from broker.config.setting import ConfigError

META_PROPERTIES_FILE: Final = "meta.properties"

_VERSION: Final = "1"
_IGNORED_WHEN_EMPTY: Final = ("lost+found",)  # what mkfs leaves in a fresh file system


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of one data directory; it never changes once written."""

    cluster_id: str
    node_id: int
    directory_id: UUID


def read_meta_properties(file_system: FileSystem, directory: Path) -> MetaProperties | None:
    """The identity of a directory, None when it has none yet; ConfigError when it cannot be understood.

    `directory_id` is the zero uuid in files older than Kafka 3.7, which did not write it.
    """
    path = directory / META_PROPERTIES_FILE
    try:
        text = read_file(file_system, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    properties = parse_properties(text)
    version = properties.get("version", "0").strip()
    if version != _VERSION:
        raise ConfigError(f"{path}: version={version!r} is not supported; this broker reads version {_VERSION}.")
    return MetaProperties(
        cluster_id=_required(path, properties, "cluster.id"),
        node_id=_node_id(path, _required(path, properties, "node.id")),
        directory_id=_directory_id(path, properties.get("directory.id")),
    )


def write_meta_properties(file_system: FileSystem, clock: Clock, directory: Path, meta: MetaProperties) -> None:
    """Write it durably: a crash leaves the old file or the new one."""
    written_at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    properties = {
        "cluster.id": meta.cluster_id,
        "directory.id": uuid_to_text(meta.directory_id),
        "node.id": str(meta.node_id),
        "version": _VERSION,
    }
    text = format_properties(properties, comments=("", written_at))
    write_file_atomically(file_system, directory / META_PROPERTIES_FILE, text.encode("ascii"))


def check_meta_properties(
    directory: Path, meta: MetaProperties, *, node_id: int, cluster_id: str | None = None
) -> None:
    """Refuse (ConfigError) a directory of another node, or of another cluster when that is known."""
    path = directory / META_PROPERTIES_FILE
    if meta.node_id != node_id:
        raise ConfigError(
            f"{path} belongs to node.id={meta.node_id}, but node.id={node_id} is configured: "
            "correct node.id or log.dirs."
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise ConfigError(
            f"{path} belongs to cluster.id={meta.cluster_id}, but the cluster is cluster.id={cluster_id}: "
            "this data is of another cluster."
        )


def format_directory(
    file_system: FileSystem, clock: Clock, chance: Chance, directory: Path, *, node_id: int, cluster_id: str
) -> MetaProperties:
    """Give an empty directory its identity.  ConfigError when it is not empty: its data would be taken over."""
    file_system.make_directories(directory)
    _make_names_durable(file_system, directory)
    strangers = [
        name
        for name in file_system.list_directory(directory)
        if not name.startswith(".") and name not in _IGNORED_WHEN_EMPTY and name != META_PROPERTIES_FILE + ".tmp"
    ]
    if strangers:
        raise ConfigError(
            f"{directory} has no meta.properties but is not empty ({', '.join(strangers[:3])}): "
            "give an empty directory, or restore that file."
        )
    meta = MetaProperties(cluster_id, node_id, chance.uuid())
    write_meta_properties(file_system, clock, directory, meta)
    return meta


def _make_names_durable(file_system: FileSystem, directory: Path) -> None:
    """What is about to be written must not lose its directory, nor one above it, to a power cut."""
    for above in directory.parents:
        with contextlib.suppress(StorageFailure):  # one we may not read is none we have made
            file_system.sync_directory(above)


def load_or_format(
    file_system: FileSystem, clock: Clock, chance: Chance, directory: Path, *, node_id: int, cluster_id: str | None
) -> MetaProperties:
    """The identity of a directory, checked against the configuration; an empty directory formats itself.

    `cluster_id` is what is known of the cluster; None makes a new cluster id when the directory has none.
    """
    meta = read_meta_properties(file_system, directory)
    if meta is None:
        return format_directory(
            file_system,
            clock,
            chance,
            directory,
            node_id=node_id,
            cluster_id=cluster_id if cluster_id is not None else uuid_to_text(chance.uuid()),
        )
    check_meta_properties(directory, meta, node_id=node_id, cluster_id=cluster_id)
    if meta.directory_id.int == 0:
        meta = MetaProperties(meta.cluster_id, meta.node_id, chance.uuid())
        write_meta_properties(file_system, clock, directory, meta)
    return meta


def _required(path: Path, properties: dict[str, str], name: str) -> str:
    value = properties.get(name, "").strip()
    if not value:
        raise ConfigError(f"{path}: {name} is missing.")
    return value


def _node_id(path: Path, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"{path}: node.id={text!r} is not a number of at least 0.")
    return int(text)


def _directory_id(path: Path, text: str | None) -> UUID:
    if text is None:
        return UUID(int=0)
    try:
        directory_id = uuid_from_text(text.strip())
    except ValueError as error:
        raise ConfigError(f"{path}: directory.id: {error}.") from error
    if directory_id.int < RESERVED_UUID_COUNT:
        raise ConfigError(f"{path}: directory.id={text!r} is one of the ids Kafka reserves.")
    return directory_id
