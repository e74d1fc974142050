import io
import json
from dataclasses import replace

import pytest

from broker.cli.cost_report import Report, as_object, report_of, write
from broker.config.price_book import SHIPPED
from broker.cost_model.bill import Architecture, Item
from broker.cost_model.plan import Plan

PLAN = Plan(mbps=50, partitions=30)


def text_of(report: Report) -> str:
    output = io.StringIO()
    write(report, output, as_json=False)
    return output.getvalue()


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(PLAN, SHIPPED, simulate_seconds=1)


def test_the_tables_have_what_the_json_has(report: Report) -> None:
    text = text_of(report)
    assert max(map(len, text.splitlines())) <= 110
    for each in Architecture:
        assert each.value in text
        assert f"{report.bills[each].replication:,.0f}" in text
        assert f"{report.bills[each].total:,.0f}" in text
    for item in Item:
        assert item.value in text
    assert f"{report.traffic.metadata.records:,.0f}" in text
    assert "simulated" in text
    assert f"from {report.break_even[Architecture.WAL]:.1f} MB/s on" in text
    assert "2026-11-01" in text


def test_the_json_has_these_fields(report: Report) -> None:
    output = io.StringIO()
    write(report, output, as_json=True)
    told = json.loads(output.getvalue())
    assert told == as_object(report)
    assert set(told) == {
        "prices",
        "plan",
        "dollars_per_month",
        "break_even_mbps",
        "per_second",
        "broker_bytes_per_second",
        "simulated",
    }
    assert set(told["dollars_per_month"]) == {each.value for each in Architecture}
    for bill in told["dollars_per_month"].values():
        assert set(bill) == {*(item.value for item in Item), "replication", "total"}
        assert bill["total"] == pytest.approx(sum(bill[item.value] for item in Item))
    assert set(told["break_even_mbps"]) == {"buckets", "buckets, tiered"}
    assert all(isinstance(value, float | int) for value in told["per_second"].values())
    assert set(told["simulated"]) < set(told["per_second"])
    assert set(told["broker_bytes_per_second"]) == {"classic", "buckets"}


def test_without_a_simulation_there_is_none() -> None:
    report = report_of(PLAN, SHIPPED)
    assert as_object(report)["simulated"] is None
    assert "simulated" not in text_of(report)


def test_buckets_that_never_pay_are_told() -> None:
    report = report_of(replace(PLAN, zones=1), SHIPPED)
    assert as_object(report)["break_even_mbps"] == {"buckets": None, "buckets, tiered": None}
    assert "Buckets are never the cheaper way to replicate on such a cluster, whatever the load." in text_of(report)
