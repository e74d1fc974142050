import pytest

from broker.demo.status import (
    bytes_text,
    dollars_text,
    milliseconds_text,
    percentiles_text,
    rate_text,
    verdict,
)
from tests.unit.demo.demo_world import figures, status


def test_numbers_are_short() -> None:
    assert [milliseconds_text(value) for value in (None, 0.26, 9.94, 123.4)] == ["-", "0.3", "9.9", "123"]
    assert percentiles_text(1, None) == "1.0/-"
    assert [bytes_text(size) for size in (0, 999, 1500, 2.5e6, 3e9)] == ["0 B", "999 B", "1.5 kB", "2.5 MB", "3.0 GB"]
    assert [dollars_text(amount) for amount in (0, -0.3, 1234.4, -5.2)] == ["$0", "$0", "$1,234", "-$5"]
    assert (rate_text(1_234_000), rate_text(float("inf"))) == ("1.23 MB/s", "no load")


def _cost(produced: int, spared: float) -> str:
    increase = (
        'broker_cost_dollars_total{item="put"} 0.001\n'
        f"broker_cost_saved_dollars_total {spared}\n"
        'broker_objectstore_requests_total{operation="put_if_absent",outcome="ok"} 200\n'
        f'kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}} {produced}\n'
    )
    return verdict(status(figures({1: "broker_cost_break_even_bytes_per_second 750000"}, increase)))


def test_at_which_load_buckets_pay() -> None:
    assert _cost(20_000_000, 0.003) == ("2.00 MB/s saves $518 a month; below the break-even of 0.75 MB/s it would not")


def test_and_at_which_they_do_not() -> None:
    assert _cost(2_000_000, 0.0003) == (
        "0.20 MB/s costs $181 a month more; it saves from the break-even of 0.75 MB/s on"
    )


@pytest.mark.parametrize("produced", [0, 5])
def test_before_anything_was_uploaded(produced: int) -> None:
    increase = f'kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}} {produced}'
    assert verdict(status(figures({1: ""}, increase))) == "break-even: known once records are uploaded"
