"""The command line: one small module per sub-command, dispatched here."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from broker.cli import cost, demo, format, server, wal
from broker.config.setting import ConfigError

EXIT_CONFIGURATION = 2  # as argparse exits for arguments it cannot read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.  Wrong configuration is a sentence on standard error, no traceback."""
    parsed = _parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except ConfigError as error:
        for sentence in error.sentences:
            print(f"wherry: {sentence}", file=sys.stderr)
        return EXIT_CONFIGURATION
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wherry", description="A broker that Apache Kafka's clients can use.")
    parser.add_argument("--version", action="version", version=f"wherry {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    server.add_command(commands)
    demo.add_command(commands)
    format.add_command(commands)
    cost.add_command(commands)
    wal.add_command(commands)
    return parser


def _version() -> str:
    try:
        return version("wherry")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "unknown"
