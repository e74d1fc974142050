"""`wherry demo`: three brokers in three zones on this machine, a load, and a board of what they do and cost."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from broker.cli.configuration import add_override_option
from broker.common.logging import configure_logging
from broker.config.properties import parse_overrides
from broker.config.setting import ConfigError

EXIT_FAILURE: Final = 1
MEGABYTES_PER_SECOND: Final = 2.0


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = commands.add_parser(
        "demo",
        help="show a cluster at work: three zones, buckets, a load, and what it costs",
        description="Start brokers in three zones, each a process of its own, put a light load on a topic that is "
        "replicated through buckets and on one that is not, and show what they do and cost. Ctrl-C leaves nothing "
        "running.",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data/demo"), metavar="DIR", help="for all state; default %(default)s"
    )
    parser.add_argument(
        "--port", type=int, default=9092, metavar="N", help="the first broker's; others follow from it; default 9092"
    )
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="how many, 1 to 9; default 3")
    parser.add_argument(
        "--store",
        metavar="DIR|s3://BUCKET",
        help="where all buckets are; default below --data",
    )
    parser.add_argument("--no-load", action="store_true", help="produce nothing and read nothing")
    parser.add_argument(
        "--mbps",
        type=float,
        default=MEGABYTES_PER_SECOND,
        metavar="N",
        help="megabytes a second to each of the two topics; default %(default)g",
    )
    parser.add_argument(
        "--break",
        dest="breaks",
        action="append",
        default=[],
        metavar="WHAT[:AFTER[:FOR]]",
        help="break bucket-a, broker-1, zone-a or another one, so many seconds after the start, for so many seconds; "
        "may be repeated",
    )
    add_override_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.mbps <= 1000:
        raise ConfigError(f"--mbps {arguments.mbps:g}: valid values are (0,...,1000].")
    from broker.demo.layout import DemoError, Layout
    from broker.demo.target import PlannedBreak

    layout = Layout(
        arguments.data,
        port=arguments.port,
        brokers=arguments.brokers,
        store=arguments.store,
        overrides=parse_overrides(arguments.override),
    )
    breaks = [PlannedBreak.parse(text, layout.targets()) for text in arguments.breaks]
    configure_logging("critical")  # what is to be known is on the board
    from broker.demo import demonstration  # late: wrong arguments are told without loading it

    options = demonstration.DemoOptions(layout, None if arguments.no_load else arguments.mbps, breaks)
    try:
        return demonstration.run(options, tell=announce)
    except DemoError as error:
        print(f"wherry: {error}", file=sys.stderr)
        return EXIT_FAILURE
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            _forget_standard_output()


def announce(line: str) -> None:
    """To standard output, at once; OSError once when nobody reads it, or its terminal has gone."""
    try:
        print(line)
        sys.stdout.flush()
    except OSError:
        _forget_standard_output()
        raise


def _forget_standard_output() -> None:
    """What is left in its buffer would be complained of by the interpreter, at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
