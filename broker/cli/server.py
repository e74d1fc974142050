"""`wherry server`: run one node until it is told to stop."""

import argparse
import os
from pathlib import Path
from typing import Any

from broker.cli.configuration import add_override_option, load_config, warn_of_unknown_names
from broker.common.logging import configure_logging

LOG_LEVELS = ("debug", "info", "warning", "error")


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "server",
        help="run a broker, a controller, or both",
        description="Run one node. Without FILE: a cluster of one on 127.0.0.1:9092, data under ./data/server.",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a Kafka properties file")
    add_override_option(parser)
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="what is logged; default %(default)s")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    config = load_config(arguments.file, os.environ, arguments.override)
    configure_logging(arguments.log_level)
    warn_of_unknown_names(config)
    from broker.node import run as run_node  # late: wrong configuration is told without loading the broker

    return run_node(config, announce=announce)


def announce(line: str) -> None:
    """Say something to whoever started us, at once even through a pipe."""
    print(line, flush=True)
