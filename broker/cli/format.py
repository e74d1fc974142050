"""`wherry format`: give a data directory its identity before the first start, for those who want to choose it.

A start does the same by itself; this is for clusters whose id is known beforehand (Kafka's `kafka-storage format`).
"""

import argparse
import os
from pathlib import Path
from typing import Any

from broker.cli.configuration import add_override_option, load_config
from broker.common.chance import Chance
from broker.common.clock import SystemClock
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import RESERVED_UUID_COUNT, uuid_from_text, uuid_to_text
from broker.config.setting import ConfigError
from broker.server.meta_properties import check_meta_properties, format_directory, read_meta_properties


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "format",
        help="write meta.properties into an empty data directory",
        description="Write meta.properties into the data directory that FILE names.",
    )
    parser.add_argument("--cluster-id", required=True, metavar="ID", help="the cluster's id, 22 characters of base64")
    parser.add_argument("--ignore-formatted", action="store_true", help="succeed when it is formatted for this cluster")
    parser.add_argument("file", type=Path, metavar="FILE", help="a Kafka properties file")
    add_override_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    cluster_id = _checked_cluster_id(arguments.cluster_id)
    config = load_config(arguments.file, os.environ, arguments.override)
    file_system = OsFileSystem()
    meta = read_meta_properties(file_system, config.log_dir)
    if meta is not None:
        check_meta_properties(config.log_dir, meta, node_id=config.node_id, cluster_id=cluster_id)
        if not arguments.ignore_formatted:
            raise ConfigError(f"{config.log_dir} is already formatted; --ignore-formatted accepts that.")
        print(f"{config.log_dir} is already formatted.")
        return 0
    meta = format_directory(
        file_system, SystemClock(), Chance(), config.log_dir, node_id=config.node_id, cluster_id=cluster_id
    )
    print(
        f"Formatted {config.log_dir}: cluster.id={meta.cluster_id} node.id={meta.node_id} "
        f"directory.id={uuid_to_text(meta.directory_id)}"
    )
    return 0


def _checked_cluster_id(text: str) -> str:
    try:
        value = uuid_from_text(text)
    except ValueError as error:
        raise ConfigError(f"--cluster-id={text!r}: {error}.") from error
    if value.int < RESERVED_UUID_COUNT:
        raise ConfigError(f"--cluster-id={text!r}: this is one of the ids Kafka reserves.")
    return text
