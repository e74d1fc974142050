"""`wherry wal`: look into a bucket through which brokers replicate (KIP-1176): list it, show an object, verify all.

Nothing is written, neither to the bucket nor to the cluster.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "wal",
        help="look into a bucket of the replication through buckets",
        description="Look into a bucket through which brokers replicate. Nothing is changed.",
    )
    looks = parser.add_subparsers(required=True, metavar="WHAT")
    _add_ls(looks)
    _add_show(looks)
    _add_verify(looks)


def _add_ls(looks: "argparse._SubParsersAction[Any]") -> None:
    parser = _look(looks, "ls", "list objects: age in seconds, bytes, broker, slices and key")
    parser.add_argument(
        "--no-slices", action="store_true", help="do not read the objects' tables, which takes requests"
    )


def _add_show(looks: "argparse._SubParsersAction[Any]") -> None:
    parser = _look(looks, "show", "print what one object says of its slices, and whether their bytes are whole")
    parser.add_argument("key", metavar="KEY", help="the object's key, as `wherry wal ls` prints it")


def _add_verify(looks: "argparse._SubParsersAction[Any]") -> None:
    parser = _look(looks, "verify", "check every object; exit code 1 when something is wrong")
    parser.add_argument(
        "--bootstrap-server", metavar="HOST:PORT,...", help="compare with the metadata topic of this cluster"
    )
    parser.add_argument(
        "--log-dir",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="compare with the logs in a broker's data directory; may be repeated",
    )
    parser.add_argument(
        "--orphan-age",
        type=int,
        default=600,
        metavar="SECONDS",
        help="an object without a pointer is an orphan from this age on; default %(default)s",
    )
    parser.add_argument(
        "--min-life",
        type=int,
        default=600,
        metavar="SECONDS",
        help="an object that is missing is a problem while its pointer is younger; default %(default)s, as "
        "remote.wal.object.min.retention.ms",
    )
    parser.add_argument("--quiet", action="store_true", help="print problems only")


def _look(looks: "argparse._SubParsersAction[Any]", name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = looks.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument("bucket", metavar="BUCKET", help="s3://bucket, file:///directory, or the path of a directory")
    parser.add_argument("--key-prefix", default="", metavar="PREFIX", help="rwsm.config.key.prefix of the brokers")
    parser.add_argument("--endpoint-url", metavar="URL", help="of a store that is compatible with S3")
    parser.add_argument("--region", help="of the bucket; keys come from the environment, as AWS's tools read it")
    parser.add_argument("--path-style", action="store_true", help="the bucket's name is part of the path")
    parser.set_defaults(run=partial(run, name))
    return parser


def run(look: str, arguments: argparse.Namespace) -> int:
    from broker.cli import wal_looks  # late: what the other commands do not need takes a third of a second to load

    return wal_looks.run(look, arguments)
