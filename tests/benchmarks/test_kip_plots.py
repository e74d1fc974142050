"""The plots of `make bench-kip` are drawn from the file it writes; nothing is measured here."""

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: it belongs to the bench extra")

from benchmarks import kip_plots

HOPS = {hop: {"count": 10, "mean_ms": 5.0, "p50_ms": 4.0, "p99_ms": 9.0} for hop in kip_plots.HOPS_IN_ORDER}
FIGURES = {"p50_ms": 3.0, "p95_ms": 10.0, "p99_ms": 20.0, "p999_ms": 40.0}
RESULT: dict[str, Any] = {
    "commit": "abc1234",
    "date": "2026-11-30T06:00+00:00",
    "is_short": True,
    "paths": [
        {"name": "standard topic", "acks": "1", "figures": FIGURES, "hops": {}},
        {"name": "WAL topic", "acks": "all", "figures": FIGURES, "hops": HOPS},
    ],
    "intervals": [
        {"interval_ms": 10, "p50_ms": 30.0, "p95_ms": 40.0, "p99_ms": 60.0, "puts_per_s": 45.0},
        {"interval_ms": 50, "p50_ms": 70.0, "p95_ms": 90.0, "p99_ms": 110.0, "puts_per_s": 15.0},
    ],
}


def test_every_plot_is_a_picture(tmp_path: Path) -> None:
    drawn = kip_plots.draw(RESULT, tmp_path / "images")
    assert [path.name for path in drawn] == ["kip-latency.png", "kip-hops.png", "kip-interval.png", "kip-cost.png"]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 10_000


def test_a_plot_shows_what_was_measured(tmp_path: Path) -> None:
    (latency, hops, *_), others = (
        [path.read_bytes() for path in kip_plots.draw(each, tmp_path)] for each in (RESULT, _slower())
    )
    assert others[0] != latency
    assert others[1] != hops


def _slower() -> dict[str, Any]:
    slower = copy.deepcopy(RESULT)
    slower["paths"][0]["figures"]["p99_ms"] = 500.0
    slower["paths"][1]["hops"]["get"]["mean_ms"] = 50.0
    return slower
