from broker.demo.lines import line_of
from broker.demo.status import TopicLatency
from broker.demo.target import Target, TargetKind
from tests.unit.demo.demo_world import figures, status
from tests.unit.demo.test_figures import INCREASE, ONE, TWO


def test_a_line_has_the_values_of_the_board() -> None:
    line = line_of(
        status(
            figures({1: ONE, 2: TWO}, INCREASE),
            wal_latency=TopicLatency(1.0, 2.0, 80.0, 200.5),
            broken=[Target(TargetKind.BUCKET, "a"), Target(TargetKind.BROKER, "3")],
        )
    )
    values = dict(word.split("=") for word in line.split(" "))
    assert values["t_s"] == "75"
    assert (values["brokers"], values["leaders"], values["in_sync"]) == ("2/3", "4/0/0", "2/3")
    assert values["broken"] == "bucket-a,broker-3"
    assert (values["wal_bytes"], values["wal_lag_records"], values["fallback_bytes"]) == ("1200", "7", "30")
    assert (values["fallback_partitions"], values["circuits_open"]) == ("1", "1")
    assert values["orders_read_ms"] == "80/200"
    assert (values["put_ms"], values["classic_read_ms"]) == ("-/-", "-/-")
    assert (values["here_usd_month"], values["classic_usd_month"]) == ("648.00", "1166.40")
    assert (values["break_even_mb_s"], values["orders_mb_s"]) == ("0.50", "2.00")


def test_nothing_is_broken() -> None:
    assert " broken=- " in line_of(status(figures({})))
