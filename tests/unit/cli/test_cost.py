import json
from pathlib import Path

import pytest

from broker.cli import main
from broker.config.price_book import shipped_text


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, float]]:
    assert main(["cost", "--json", *arguments]) == 0
    told: dict[str, dict[str, float]] = json.loads(capsys.readouterr().out)
    return told


def test_options_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = report(
        capsys,
        *("--mbps", "7.5", "--record-bytes", "100", "--batch-bytes", "32768", "--producer-linger-ms", "0"),
        *("--producers", "2", "--consumers", "3", "--acks", "1", "--rack-aware-consumers"),
        *("--brokers", "6", "--zones", "2", "--partitions", "12", "--replication-factor", "2"),
        *("--metadata-partitions", "10", "--retention-hours", "24", "--local-retention-hours", "2"),
        *("--segment-bytes", "1048576", "--economy-linger-ms", "200", "--interval-ms", "15", "--linger-ms", "30"),
        *("--min-object-bytes", "1000", "--max-object-bytes", "100000", "--policy", "economy"),
        *("--store", "s3-standard", "--object-retention", "replicated", "--no-slice-events"),
    )["plan"]
    expected = {
        "mbps": 7.5,
        "record_bytes": 100,
        "batch_bytes_max": 32768,
        "producer_linger_ms": 0,
        "producers": 2,
        "consumers": 3,
        "acks": "1",
        "rack_aware_consumers": True,
        "brokers": 6,
        "zones": 2,
        "partitions": 12,
        "replication_factor": 2,
        "metadata_partitions": 10,
        "retention_hours": 24,
        "local_retention_hours": 2,
        "segment_bytes": 1048576,
        "economy_linger_ms": 200,
        "policy": "economy",
        "store": "s3-standard",
        "object_retention": "replicated",
        "slice_events": False,
    }
    assert {name: plan[name] for name in expected} == expected
    upload = {"interval_ms": 15, "linger_ms": 30, "min_bytes": 1000, "max_bytes": 100_000}
    assert plan["upload"] | upload == plan["upload"]  # type: ignore[operator]


def test_prices_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--show-prices"]) == 0
    shown = capsys.readouterr().out
    assert shown == shipped_text()
    file = tmp_path / "prices.toml"
    file.write_text(shown.replace("0.02 ", "0.04 ").replace("2026-11-01", "2027-01-01"))
    usual, dearer = report(capsys), report(capsys, "--prices", str(file))
    assert dearer["prices"]["as_of"] == "2027-01-01"
    assert _replication(dearer, "classic") == pytest.approx(2 * _replication(usual, "classic"))
    assert dearer["break_even_mbps"]["buckets"] < usual["break_even_mbps"]["buckets"]


def _replication(told: dict[str, dict[str, float]], architecture: str) -> float:
    bill: dict[str, float] = told["dollars_per_month"][architecture]  # type: ignore[assignment]
    return bill["replication"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--mbps", "0"), "mbps=0.0: it must be above 0."),
        (("--mbps", "nan"), "nan is no number to plan with."),
        (("--brokers", "2"), "replication-factor=3: there are only 2 brokers."),
        (("--interval-ms", "0"), "--interval-ms=0: it must be above 0."),
        (("--simulate", "0"), "--simulate 0: valid values are (0,...,600]."),
        (("--store", "tape"), "store=tape: the prices have s3-express, s3-standard."),
        (("--prices", "missing.toml"), "missing.toml: No such file or directory."),
    ],
)
def test_what_cannot_be_is_told(
    arguments: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cost", *arguments]) == 2
    assert f"wherry: {sentence}" in capsys.readouterr().err.splitlines()


def test_a_file_of_something_else_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe")
    assert main(["cost", "--prices", str(file)]) == 2
    assert f"wherry: {file}: not a UTF-8 text file." in capsys.readouterr().err
