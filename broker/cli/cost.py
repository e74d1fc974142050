"""`wherry cost`: what a cluster would do and cost, replicated between zones as ever and through zonal buckets."""

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from broker.config.price_book import SHIPPED, PriceBook, shipped_text
from broker.config.setting import ConfigError
from broker.cost_model.plan import Acks, Plan
from broker.wal.retention.object_retention import ObjectRetentionMode
from broker.wal.upload.upload_pace import CostPolicy

_DEFAULT: Final = Plan()

# Option, attribute of the plan, type and what it says.
_LOAD: Final = (
    ("--mbps", "mbps", float, "record values produced in a second, in units of 1,000,000 bytes, over all partitions"),
    ("--record-bytes", "record_bytes", int, "of one record's value"),
    ("--batch-bytes", "batch_bytes_max", int, "of a producer's batch at most (batch.size)"),
    ("--producer-linger-ms", "producer_linger_ms", float, "how long a batch waits for records (linger.ms)"),
    ("--producers", "producers", int, "that write to the same partition"),
    ("--consumers", "consumers", float, "how often each record is read"),
)
_CLUSTER: Final = (
    ("--brokers", "brokers", int, "of the cluster"),
    ("--zones", "zones", int, "over which brokers and replicas are spread"),
    ("--partitions", "partitions", int, "of all topics"),
    ("--replication-factor", "replication_factor", int, "of the topics"),
    ("--metadata-partitions", "metadata_partitions", int, "of __remote_wal_log_metadata"),
)
_RETENTION: Final = (
    ("--retention-hours", "retention_hours", float, "of the topics"),
    ("--local-retention-hours", "local_retention_hours", float, "of the topics, where they are tiered"),
    ("--segment-bytes", "segment_bytes", int, "of a closed segment"),
    ("--economy-linger-ms", "economy_linger_ms", int, "remote.wal.combine.economy.linger.ms"),
)
_UPLOAD: Final = (
    ("--interval-ms", "interval_ms", "least time between the begins of two objects (remote.wal.combine.interval.ms)"),
    ("--linger-ms", "linger_ms", "how long few bytes wait for more (remote.wal.combine.max.linger.ms)"),
    ("--min-object-bytes", "min_bytes", "that need not wait (remote.wal.combine.min.bytes)"),
    ("--max-object-bytes", "max_bytes", "of an object (remote.wal.combine.max.bytes)"),
)


def add_command(commands: "argparse._SubParsersAction[Any]") -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "cost",
        help="what a cluster would cost: replicated between zones, and through buckets",
        description="Plan a cluster: dollars in 30 days by architecture and item, requests, metadata records and bytes "
        "per second, and the load from which on buckets are cheaper. The formulas are in docs/scaling.md.",
    )
    for options in (_LOAD, _CLUSTER, _RETENTION):
        for option, attribute, kind, text in options:
            _add_number(parser, option, attribute, kind, text, getattr(_DEFAULT, attribute))
    for option, attribute, text in _UPLOAD:
        _add_number(parser, option, f"upload_{attribute}", int, text, getattr(_DEFAULT.upload, attribute))
    _add_choices(parser)
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="prices other than those of `wherry cost --show-prices`"
    )
    parser.add_argument("--show-prices", action="store_true", help="print the file of prices, to be edited, and end")
    parser.add_argument(
        "--simulate", type=float, metavar="SECONDS", help="run one broker's queue in virtual time beside the formulas"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _add_number(
    parser: argparse.ArgumentParser, option: str, attribute: str, kind: type[float], text: str, default: float
) -> None:
    parser.add_argument(
        option, dest=attribute, type=kind, default=default, metavar="N", help=f"{text}; default %(default)s"
    )


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--acks", choices=list(Acks), default=_DEFAULT.acks, help="of producers; default %(default)s")
    parser.add_argument(
        "--rack-aware-consumers", action="store_true", help="consumers have client.rack and read in their zone"
    )
    parser.add_argument(
        "--store", default=_DEFAULT.store, metavar="NAME", help="prices of the buckets; default %(default)s"
    )
    parser.add_argument(
        "--policy",
        choices=[each.value for each in CostPolicy],
        default=_DEFAULT.policy.value,
        help="remote.wal.cost.policy; default %(default)s",
    )
    parser.add_argument(
        "--object-retention",
        choices=[each.value for each in ObjectRetentionMode],
        default=_DEFAULT.object_retention.value,
        help="remote.wal.object.retention.mode; default %(default)s",
    )
    parser.add_argument(
        "--no-slice-events", action="store_true", help="remote.wal.metadata.slice.events.enable=false on all brokers"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.show_prices:
        print(shipped_text(), end="")
        return 0
    plan, book = plan_of(arguments), book_of(arguments.prices)
    seconds: float | None = arguments.simulate
    if seconds is not None and not 0 < seconds <= 600:
        raise ConfigError(f"--simulate {seconds:g}: valid values are (0,...,600].")
    from broker.cli import cost_report  # late: what draws tables takes a tenth of a second to load

    report = cost_report.report_of(plan, book, simulate_seconds=seconds)
    cost_report.write(report, sys.stdout, as_json=arguments.json)
    return 0


def plan_of(arguments: argparse.Namespace) -> Plan:
    """ConfigError when it cannot be."""
    given = vars(arguments)
    upload = {attribute: given[f"upload_{attribute}"] for _, attribute, _ in _UPLOAD}
    wrong = [
        f"{option}={upload[attribute]}: it must be above 0."
        for option, attribute, _ in _UPLOAD
        if upload[attribute] <= 0
    ]
    if wrong:
        raise ConfigError(*wrong)
    numbers = {attribute: given[attribute] for part in (_LOAD, _CLUSTER, _RETENTION) for _, attribute, _, _ in part}
    if any(math.isnan(value) for value in numbers.values()):
        raise ConfigError("nan is no number to plan with.")
    return Plan(
        **numbers,
        acks=Acks(arguments.acks),
        rack_aware_consumers=arguments.rack_aware_consumers,
        store=arguments.store,
        upload=replace(_DEFAULT.upload, **upload),
        policy=CostPolicy(arguments.policy),
        object_retention=ObjectRetentionMode(arguments.object_retention),
        slice_events=not arguments.no_slice_events,
    )


def book_of(path: Path | None) -> PriceBook:
    """The file's prices, or those that came with us.  ConfigError."""
    if path is None:
        return SHIPPED
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a UTF-8 text file.") from error
    return PriceBook.parse(text, str(path))
