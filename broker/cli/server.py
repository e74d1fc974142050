"""`wherry server`: run one node until it is told to stop."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from broker.cli.configuration import add_override_option, load_config, warn_of_unknown_names
from broker.common.logging import configure_logging

LOG_LEVELS = ("debug", "info", "warning", "error")
EXIT_FAILURE = 1  # the configuration can be read, but this node cannot run with it here and now


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
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_at_once)  # until the node's own handlers: nothing is open yet
    configure_logging(arguments.log_level)
    warn_of_unknown_names(config)
    from broker import node  # late: wrong configuration is told without loading the broker

    try:
        return node.run(config, announce=announce)
    except node.NodeError as error:
        print(f"wherry: {error}", file=sys.stderr)
        return EXIT_FAILURE


def _leave_at_once(_number: int, _frame: object) -> None:
    os._exit(0)


def announce(line: str) -> None:
    """Say something to whoever started us, at once even through a pipe."""
    print(line, flush=True)
