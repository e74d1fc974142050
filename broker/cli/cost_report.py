"""What `wherry cost` prints: the same figures as tables and as JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from broker.common.chance import Chance
from broker.config.price_book import PriceBook
from broker.cost_model.bill import OF_REPLICATION, Architecture, Bill, Item, bill_of, break_even_mbps, traffic_at
from broker.cost_model.plan import Plan
from broker.cost_model.traffic import BrokerBytes, Traffic, broker_bytes
from broker.cost_model.upload_simulation import SimulatedBroker, UploadSimulation

WIDTH: Final = 110  # where there is no terminal
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say of a plan."""

    plan: Plan
    book: PriceBook
    traffic: Traffic
    bills: Mapping[Architecture, Bill]
    break_even: Mapping[Architecture, float | None]  # of those through buckets, in MB/s
    simulated: SimulatedBroker | None


def report_of(plan: Plan, book: PriceBook, *, simulate_seconds: float | None = None) -> Report:
    """ConfigError for a store that has no prices."""
    traffic = traffic_at(plan, book)
    simulated = None
    if simulate_seconds is not None:
        limits = replace(plan.upload, linger_ms=traffic.objects.linger_ms)
        simulated = UploadSimulation(plan, limits, Chance(_SEED)).run(simulate_seconds)
    return Report(
        plan,
        book,
        traffic,
        {each: bill_of(traffic, each, book) for each in Architecture},
        {
            each: break_even_mbps(plan, book, is_tiered=each.is_tiered)
            for each in Architecture
            if each.is_through_buckets
        },
        simulated,
    )


def write(report: Report, output: TextIO, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_object(report), indent=1), file=output)
        return
    console = Console(file=output, highlight=False, width=None if output.isatty() else WIDTH)
    plan = report.plan
    console.print(
        f"{plan.mbps:g} MB/s in {plan.partitions:,} partitions on {plan.brokers:,} brokers in {plan.zones} zones, "
        f"replication factor {plan.replication_factor}, acks={plan.acks}; an object every "
        f"{report.traffic.objects.interval_ms:.1f} ms\n"
        f"dollars in 30 days, prices of {report.book.region} of {report.book.as_of}, buckets {plan.store}\n"
    )
    for table in (_bills(report), _rates(report), _brokers(report)):
        console.print(table)
        console.print()
    for sentence in _sentences(report):
        console.print(sentence)


def as_object(report: Report) -> dict[str, Any]:
    """For JSON."""
    plan = asdict(report.plan)
    plan |= {"policy": report.plan.policy.value, "object_retention": report.plan.object_retention.value}
    return {
        "prices": {"as_of": report.book.as_of.isoformat(), "region": report.book.region},
        "plan": plan,
        "dollars_per_month": {
            each.value: {
                **{item.value: bill.items[item] for item in Item},
                "replication": bill.replication,
                "total": bill.total,
            }
            for each, bill in report.bills.items()
        },
        "break_even_mbps": {each.value: load for each, load in report.break_even.items()},
        "per_second": rates(report.traffic),
        "broker_bytes_per_second": {
            "classic": asdict(broker_bytes(report.traffic, through_buckets=False)),
            "buckets": asdict(broker_bytes(report.traffic, through_buckets=True)),
        },
        "simulated": None if report.simulated is None else simulated_rates(report.simulated),
    }


def rates(traffic: Traffic) -> dict[str, float]:
    """Of the cluster through buckets, per second or per object."""
    return {
        "objects_per_broker": traffic.objects.per_second,
        "slices_per_object": traffic.objects.slices,
        "object_bytes": traffic.objects.record_bytes + traffic.metadata.table_bytes,
        "gets_per_object": traffic.reads.gets,
        "bytes_got_per_byte_wanted": traffic.reads.amplification,
        "puts": traffic.puts,
        "gets": traffic.gets,
        "metadata_records": traffic.metadata.records,
        "metadata_bytes": traffic.metadata.bytes,
        "metadata_partitions_read_by_broker": traffic.metadata.partitions_read,
        "metadata_records_read_by_broker": traffic.metadata.records_read,
    }


def simulated_rates(broker: SimulatedBroker) -> dict[str, float]:
    """Under the names of `rates`, as far as one broker shows them."""
    return {
        "objects_per_broker": broker.objects_per_second,
        "slices_per_object": broker.slices_per_object,
        "object_bytes": broker.object_bytes / broker.objects,
        "gets_per_object": broker.gets_per_object,
        "bytes_got_per_byte_wanted": broker.amplification,
    }


_RATE_NAMES: Final = {
    "objects_per_broker": "objects stored by a broker, per second",
    "slices_per_object": "slices in an object",
    "object_bytes": "bytes of an object",
    "gets_per_object": "GETs for an object",
    "bytes_got_per_byte_wanted": "bytes got for a byte wanted",
    "puts": "PUTs per second",
    "gets": "GETs per second",
    "metadata_records": "metadata records per second",
    "metadata_bytes": "metadata bytes per second",
    "metadata_partitions_read_by_broker": "metadata partitions read by each broker",
    "metadata_records_read_by_broker": "metadata records read by each broker, per second",
}


def _bills(report: Report) -> Table:
    table = _table("", *(each.value for each in Architecture))
    bills = [report.bills[each] for each in Architecture]
    for item in Item:
        if any(bill.items[item] for bill in bills):
            table.add_row(item.value, *(_dollars(bill.items[item]) for bill in bills))
        if item is OF_REPLICATION[-1]:
            table.add_row(
                "replication", *(_dollars(bill.replication) for bill in bills), style="bold", end_section=True
            )
    table.add_section()
    table.add_row("total", *(_dollars(bill.total) for bill in bills), style="bold")
    return table


def _rates(report: Report) -> Table:
    simulated = {} if report.simulated is None else simulated_rates(report.simulated)
    table = _table("through buckets", "formula", *(["simulated"] if simulated else []))
    for name, value in rates(report.traffic).items():
        cells = [_number(simulated[name]) if name in simulated else ""] if simulated else []
        table.add_row(_RATE_NAMES[name], _number(value), *cells)
    return table


def _brokers(report: Report) -> Table:
    table = _table("bytes per second of each broker", "classic", "buckets")
    classic, wal = (broker_bytes(report.traffic, through_buckets=each) for each in (False, True))
    for name in BrokerBytes.__dataclass_fields__:
        table.add_row(name.replace("_", " "), _number(getattr(classic, name)), _number(getattr(wal, name)))
    return table


def _sentences(report: Report) -> Iterable[str]:
    for each, load in report.break_even.items():
        name = "Tiered, buckets" if each.is_tiered else "Buckets"
        if load is None:
            yield f"{name} are never the cheaper way to replicate on such a cluster, whatever the load."
            continue
        classic = report.bills[Architecture.CLASSIC_TIERED if each.is_tiered else Architecture.CLASSIC].replication
        ours = report.bills[each].replication
        share = f" ({(ours - classic) / classic:+.0%})" if classic else ""
        yield (
            f"{name} are the cheaper way to replicate from {load:.1f} MB/s on; "
            f"at {report.plan.mbps:g} MB/s: {_dollars(ours)} dollars{share}."
        )


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left", no_wrap=True)
    return table


def _dollars(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:,.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"
