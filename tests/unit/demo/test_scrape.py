import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from broker.demo.scrape import Scrape
from tests.unit.demo.demo_world import scrape

TEXT = """\
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total{store="a",operation="put"} 3
requests_total{store="b",operation="put"} 4
requests_total{store="b",operation="get"} 1e+06
other{x="1"} 5
plain 2.5
"""


def test_wanted_samples_are_kept() -> None:
    found = Scrape.parse(TEXT, {"requests_total", "plain"})
    assert found.samples.keys() == {"requests_total", "plain"}
    assert found.total("requests_total") == 1_000_007
    assert found.total("requests_total", operation="put") == 7
    assert found.by("requests_total", "store", operation="put") == {("a",): 3, ("b",): 4}
    assert (found.total("plain"), found.total("other")) == (2.5, 0)


def test_labels_with_quotes_and_braces() -> None:
    assert scrape('a{path="x\\"},y",n="1"} 2').by("a", "n") == {("1",): 2}


def test_what_the_client_library_writes_is_read() -> None:
    registry = CollectorRegistry()
    Counter("hits", "Hits.", ["who"], registry=registry).labels("me").inc(7)
    seconds = Histogram("seconds", "Seconds.", ["hop"], buckets=(0.1, 0.2, 0.4), registry=registry)
    for value in (0.05, 0.15, 0.15, 0.3):
        seconds.labels("put").observe(value)
    text = generate_latest(registry).decode()
    found = Scrape.parse(text, {"hits_total", "seconds"})
    assert Scrape.parse(text).samples.items() >= found.samples.items()  # without names: all
    assert found.total("hits_total", who="me") == 7
    assert found.total("seconds_count") == 4
    assert found.quantile("seconds", 0.5, hop="put") == pytest.approx(0.15)
    assert found.quantile("seconds", 1.0, hop="put") == pytest.approx(0.4)
    assert found.quantile("seconds", 0.5, hop="get") is None


def test_beyond_the_last_bound_nothing_is_known_but_the_bound() -> None:
    found = scrape('s_bucket{le="0.1"} 0\ns_bucket{le="+Inf"} 2')
    assert found.quantile("s", 0.5) == 0.1


def test_sums_and_highest() -> None:
    both = Scrape.sum_of([scrape('lag{t="a"} 3\nlag{t="b"} 9'), scrape('lag{t="a"} 4')])
    assert both.by("lag", "t") == {("a",): 7, ("b",): 9}
    assert (both.highest("lag"), both.highest("lag", t="a"), both.highest("lag", t="c")) == (9, 7, 0)


def test_counters_that_began_anew() -> None:
    before, after = scrape('c{x="1"} 10\nc{x="2"} 10'), scrape('c{x="1"} 12\nc{x="2"} 4\nc{x="3"} 1')
    assert after.increase_since(before).by("c", "x") == {("1",): 2, ("2",): 4, ("3",): 1}
