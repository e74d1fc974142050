"""Lines: the status without a terminal, a line for each second; the same values as on the board."""

from broker.demo.figures import FALLBACK, FETCH, WAL
from broker.demo.layout import CLASSIC_TOPIC, WAL_TOPIC
from broker.demo.status import Status, percentiles_text


def line_of(status: Status) -> str:
    """`name=value` with the units in the names; totals are those of the brokers' counters."""
    figures, cost = status.figures, status.figures.cost
    wal, fallback = figures.path(WAL_TOPIC, WAL), figures.path(WAL_TOPIC, FALLBACK)
    classic = figures.path(CLASSIC_TOPIC, FETCH)
    values = {
        "t_s": f"{status.up_seconds:.0f}",
        "brokers": f"{figures.ready}/{len(figures.brokers)}",
        "leaders": "/".join(str(row.leaders) for row in figures.brokers),
        "in_sync": figures.in_sync,
        "broken": ",".join(map(str, status.broken)) or "-",
        "wal_bytes": f"{wal.total_bytes:.0f}",
        "wal_mb_s": f"{wal.bytes_per_second / 1e6:.2f}",
        "wal_lag_records": f"{wal.lag_records:.0f}",
        "wal_lag_s": f"{wal.lag_seconds:.2f}",
        "puts_s": f"{figures.puts_per_second:.1f}",
        "gets_s": f"{figures.gets_per_second:.1f}",
        "fallback_bytes": f"{fallback.total_bytes:.0f}",
        "fallback_mb_s": f"{fallback.bytes_per_second / 1e6:.2f}",
        "fallback_partitions": str(sum(row.fallback_partitions for row in figures.brokers)),
        "fallback_lag_records": f"{fallback.lag_records:.0f}",
        "circuits_open": str(sum(row.open_circuits for row in figures.brokers)),
        "classic_bytes": f"{classic.total_bytes:.0f}",
        "classic_mb_s": f"{classic.bytes_per_second / 1e6:.2f}",
        "classic_lag_records": f"{classic.lag_records:.0f}",
        "orders_read_ms": percentiles_text(status.wal_latency.read_p50, status.wal_latency.read_p99),
        "classic_read_ms": percentiles_text(status.classic_latency.read_p50, status.classic_latency.read_p99),
        "put_ms": percentiles_text(figures.hop("put").p50_ms, figures.hop("put").p99_ms),
        "end_to_end_ms": percentiles_text(figures.hop("end_to_end").p50_ms, figures.hop("end_to_end").p99_ms),
        "here_usd_month": f"{cost.here:.2f}",
        "fallback_usd_month": f"{cost.items.get(FALLBACK, 0.0):.2f}",
        "classic_usd_month": f"{cost.classic_here:.2f}",
        "break_even_mb_s": f"{cost.break_even / 1e6:.2f}",
        "orders_mb_s": f"{cost.produced / 1e6:.2f}",
        "tiered_bytes": f"{figures.tiered.in_bucket:.0f}",
    }
    return " ".join(f"{name}={value}" for name, value in values.items())
