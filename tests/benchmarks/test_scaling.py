"""What `make bench-scaling` says without brokers: tables, errors, and that formulas and queue agree."""

import pytest

from benchmarks import scaling
from benchmarks.wal import Scrape
from broker.config.price_book import SHIPPED
from broker.cost_model.bill import traffic_at
from broker.cost_model.plan import Plan


def test_errors_are_shares_of_what_was_measured() -> None:
    assert scaling.error(110, 100) == pytest.approx(0.1)
    assert scaling.pair(110, 100) == "110 / 100 (+10.0%)"
    assert scaling.pair(1.5, 2) == "1.50 / 2.00 (-25.0%)"
    rows = [{"name": "small", "pairs": {"PUT/s": (99.0, 100.0), "GET/s": (80.0, 100.0)}}]
    figure, off = scaling.worst(rows)
    assert (figure, off) == ("GET/s, small", pytest.approx(-0.2))


def test_what_is_predicted_is_what_is_counted() -> None:
    """Every figure reads something of the model and of a scrape, in the same unit."""
    traffic = traffic_at(Plan(mbps=1, partitions=12), SHIPPED)
    assert all(each.predicted(traffic) > 0 for each in scaling.FIGURES)
    assert all(each.counted(Scrape({})) == 0 for each in scaling.FIGURES)
    labels = (("operation", "put_if_absent"), ("outcome", "ok"))
    counted = Scrape({"broker_objectstore_requests_total": {labels: 7.0}})
    assert {each.name: each.counted(counted) for each in scaling.FIGURES if each.counted(counted)} == {"PUT/s": 7.0}


def test_sizes_past_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "PLANS", (Plan(mbps=10), Plan(mbps=10, zones=1)))
    rows = scaling.plans()
    lines = scaling.plans_table(rows).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| 3 brokers, 60 partitions, 10 MB/s | ")
    assert lines[3].endswith("| never |")
    assert max(plan.brokers for plan in (Plan(), *scaling.QUEUES)) >= 1000


def test_the_queue_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "QUEUES", (Plan(mbps=5, partitions=6),))
    rows = scaling.queues(5)
    assert all(abs(scaling.error(*values)) < 0.1 for values in rows[0]["pairs"].values())
    assert "in virtual time" in scaling.pairs_table(rows, "in virtual time").splitlines()[0]
