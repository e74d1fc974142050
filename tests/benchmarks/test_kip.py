"""The tables and the file of `make bench-kip`; nothing is measured here."""

import json
import re

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is missing: it belongs to the bench extra")

from benchmarks import kip
from benchmarks.wal import HOPS, Scrape
from tests.benchmarks.test_kip_plots import FIGURES, RESULT
from tests.benchmarks.test_kip_plots import HOPS as HOP_FIGURES

ROWS = [
    {"name": kip.STANDARD, "acks": "1", "figures": {**FIGURES, "full_mb_per_s": 40.06}, "hops": {}},
    {"name": kip.WAL, "acks": "all", "figures": FIGURES, "hops": HOP_FIGURES},
]


def test_the_table_has_a_column_for_each_path() -> None:
    lines = kip.table(ROWS).splitlines()
    assert lines[0] == "| | standard topic, acks=1 | WAL topic, acks=all |"
    assert lines[2] == "| produce, full speed, MB/s | 40.1 | - |"
    assert "| p99 ms | 20 | 20 |" in lines
    assert len(lines) == 2 + len(kip.ROWS)


def test_hops_and_intervals() -> None:
    assert "| get | 5.0 / 4.0 / 9.0 |" in kip.hops_table(ROWS).splitlines()
    assert "| high_watermark | - |" in kip.hops_table(ROWS).splitlines()
    assert kip.intervals_table(RESULT["intervals"]).splitlines()[2] == "| 10 | 30 | 40 | 60 | 45 |"


def test_hops_of_what_was_counted() -> None:
    labels = (("hop", "get"),)
    scrape = Scrape(
        {
            f"{HOPS}_count": {labels: 4.0},
            f"{HOPS}_sum": {labels: 0.02},
            f"{HOPS}_bucket": {(*labels, ("le", "0.005")): 2.0, (*labels, ("le", "+Inf")): 4.0},
        }
    )
    assert kip.hops_of(scrape) == {"get": {"count": 4.0, "mean_ms": 5.0, "p50_ms": 5.0, "p99_ms": 5.0}}


def test_the_last_run_is_kept_with_its_commit_and_tells_no_names() -> None:
    """The file behind the plots of the documentation."""
    text = kip.RESULT.read_text()
    result = json.loads(text)
    assert result["schema"] == kip.SCHEMA
    assert re.fullmatch(r"[0-9a-f]{7,}", result["commit"])
    assert set(result["machine"]) == {"architecture", "processors", "python", "load_before"}
    assert not re.search(r"/(tmp|home|root|work)\b", text)
    assert {row["acks"] for row in result["paths"]} == {"1", "all"}
    assert not result["is_short"]
    assert {kip.STANDARD, kip.WAL, kip.KAFKA} == {row["name"] for row in result["paths"]}
    for row in result["paths"]:
        assert {"p50_ms", "p99_ms", "full_mb_per_s"} <= set(row["figures"])
        assert bool(row["hops"]) == (row["name"] == kip.WAL)
    for name in ("kip-latency.png", "kip-hops.png", "kip-interval.png", "kip-cost.png"):
        assert (kip.IMAGES / name).read_bytes().startswith(b"\x89PNG")
