"""Plots of a run of `make bench-kip`, and of what the cost model says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from broker.config.price_book import SHIPPED
from broker.cost_model.bill import Architecture, bill_of, break_even_mbps, traffic_at
from broker.cost_model.plan import Plan

TIMES: Final = ("mean_ms", "p50_ms", "p99_ms")
PERCENTILES: Final = (("p50", "p50_ms"), ("p95", "p95_ms"), ("p99", "p99_ms"), ("p99.9", "p999_ms"))
# One after the other; PUT is within the delivery of metadata, which counts from the making of an object.
HOPS_IN_ORDER: Final = (
    "leader_append",
    "combine_wait",
    "put",
    "metadata_delivery",
    "get",
    "follower_append",
    "follower_fetch",
)
LOADS: Final = tuple(10 ** (step / 8) for step in range(-8, 25))  # 0.1 to 1000 MB/s
INTERVALS_MS: Final = (10, 20, 50, 100)
SIZE: Final = (8, 4.5)
DPI: Final = 110


def draw(result: Mapping[str, Any], directory: Path) -> list[Path]:
    """All plots, as files in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = [
        _save(directory / "kip-latency.png", result, latency, result["paths"]),
        _save(directory / "kip-hops.png", result, hops, result["paths"]),
        _save(directory / "kip-interval.png", result, interval, result["intervals"]),
    ]
    return [*drawn, _save(directory / "kip-cost.png", None, cost, Plan(partitions=60))]


def _save(path: Path, result: Mapping[str, Any] | None, plot: Any, data: Any) -> Path:
    figure, axes = pyplot.subplots(figsize=SIZE, dpi=DPI, layout="constrained")
    plot(axes, data)
    if result is not None:
        note = ", a look on a busy machine" if result["is_short"] else ""
        figure.supxlabel(f"{result['commit']}, {result['date'][:10]}{note}", fontsize=7, x=0.99, ha="right")
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)
    return path


def latency(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Of producers at the rate, by path: a group for each percentile."""
    width = 0.8 / max(len(rows), 1)
    for index, row in enumerate(rows):
        values = [row["figures"].get(key, 0.0) for _, key in PERCENTILES]
        places = [group + index * width for group in range(len(PERCENTILES))]
        axes.bar(places, [max(value, 0.1) for value in values], width, label=f"{row['name']}, acks={row['acks']}")
    axes.set_yscale("log")
    axes.set_xticks([group + 0.4 - width / 2 for group in range(len(PERCENTILES))], [name for name, _ in PERCENTILES])
    axes.set_ylabel("ms until acknowledged")
    axes.set_title("Produce latency by path")
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def hops(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Where the time of a record goes on its way through the bucket, on average."""
    through = [row for row in rows if row["hops"]]
    left = [0.0] * len(through)
    for hop in HOPS_IN_ORDER:
        means = [_alone(row["hops"], hop) for row in through]
        axes.barh([f"acks={row['acks']}" for row in through], means, left=left, label=hop)
        left = [one + other for one, other in zip(left, means, strict=True)]
    axes.set_xlabel("mean ms, one hop after the other")
    axes.set_title("Hops of a topic replicated through buckets")
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.15))


def _alone(hops_of_row: Mapping[str, Mapping[str, float]], hop: str) -> float:
    mean = hops_of_row.get(hop, {}).get("mean_ms", 0.0)
    if hop == "metadata_delivery":
        return max(mean - hops_of_row.get("put", {}).get("mean_ms", 0.0), 0.0)
    return mean


def interval(axes: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    """Of single records with acks=all, and the requests that it takes."""
    places = [row["interval_ms"] for row in rows]
    for key in ("p50_ms", "p95_ms", "p99_ms"):
        axes.plot(places, [row[key] for row in rows], marker="o", label=key.removesuffix("_ms"))
    axes.set_xlabel("interval and linger of uploads, ms")
    axes.set_ylabel("ms until acknowledged by all")
    axes.set_ylim(bottom=0)
    axes.set_title("Latency against the interval of uploads")
    axes.legend(fontsize=8, loc="upper center")
    requests = axes.twinx()
    requests.plot(places, [row["puts_per_s"] for row in rows], color="gray", linestyle=":", marker=".")
    requests.set_ylabel("objects stored per second (dotted)")
    requests.set_ylim(bottom=0)


def cost(axes: Axes, plan: Plan) -> None:
    """Dollars of replication in a month against the load, with the break-even of each interval."""
    classic = [_replication(replace(plan, mbps=load), Architecture.CLASSIC) for load in LOADS]
    axes.plot(LOADS, classic, color="black", label="between zones, classic")
    for milliseconds in INTERVALS_MS:
        paced = replace(plan, upload=replace(plan.upload, interval_ms=milliseconds, linger_ms=max(milliseconds, 20)))
        wal = [_replication(replace(paced, mbps=load), Architecture.WAL) for load in LOADS]
        (line,) = axes.plot(LOADS, wal, label=f"through buckets, an object every {milliseconds} ms")
        even = break_even_mbps(paced, SHIPPED)
        if even is not None:
            dollars = _replication(replace(paced, mbps=even), Architecture.WAL)
            axes.plot([even], [dollars], marker="o", color=line.get_color())
            axes.annotate(f"{even:.1f} MB/s", (even, dollars), textcoords="offset points", xytext=(6, -10), fontsize=7)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("MB/s produced")
    axes.set_ylabel("dollars in 30 days")
    axes.set_title(
        f"Cost of replication: {plan.brokers} brokers, {plan.partitions} partitions, {plan.store}, "
        f"prices of {SHIPPED.as_of}",
        fontsize=10,
    )
    axes.legend(fontsize=7)


def _replication(plan: Plan, architecture: Architecture) -> float:
    return bill_of(traffic_at(plan, SHIPPED), architecture, SHIPPED).replication
