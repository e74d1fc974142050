from prometheus_client import generate_latest

from broker.metrics.registry import RECENT_MAX, MetricsRegistry
from broker.metrics.request_metrics import IDLE, RequestMetrics


def test_phases_of_an_answer_that_waited() -> None:
    metrics = RequestMetrics(MetricsRegistry())
    route = metrics.route("Fetch", 12)
    route.observe(received_at=1.0, started_at=1.5, returned_at=2.5, filled_at=4.5, sent_at=8.5)
    sums = {phase: route.phase(phase).total for phase in ("queue", "local", "remote", "response", "total")}
    assert sums == {"queue": 0.5, "local": 1.0, "remote": 2.0, "response": 4.0, "total": 7.5}
    assert route.count == 1


def test_phases_of_an_answer_within_its_handler() -> None:
    metrics = RequestMetrics(MetricsRegistry())
    route = metrics.route("Produce", 9)
    route.observe(received_at=1.0, started_at=1.0, returned_at=2.0, filled_at=1.5, sent_at=3.0)
    assert (route.phase("local").total, route.phase("remote").total, route.phase("remote").count) == (0.5, 0.0, 1)
    assert (route.phase("response").total, route.phase("total").total) == (1.5, 2.0)


def test_versions_share_the_histograms_of_their_api() -> None:
    metrics = RequestMetrics(MetricsRegistry())
    old, new = metrics.route("Produce", 3), metrics.route("Produce", 13)
    for route in (old, new):
        route.observe(0.0, 0.0, 1.0, 1.0, 1.0)
    assert old.phase("total") is new.phase("total")
    assert (old.count, new.count, new.phase("total").count) == (1, 1, 2)


def test_requests_are_counted_many_at_once_and_whenever_somebody_looks() -> None:
    metrics = RequestMetrics(MetricsRegistry())
    old, new = metrics.route("Produce", 3), metrics.route("Produce", 13)
    for number in range(RECENT_MAX + 10):
        old.observe(0.0, 0.0, 1.0, 1.0, 1.0)
        new.observe(0.0, 0.0, 0.0, 2.0, number % 2 + 2.0)
    looked_at = new.phase("response")
    assert (looked_at.count, looked_at.total) == (2 * (RECENT_MAX + 10), (RECENT_MAX + 10) / 2)
    assert (new.phase("remote").total, new.phase("local").total) == (2.0 * (RECENT_MAX + 10), 1.0 * (RECENT_MAX + 10))


def test_an_api_and_version_is_counted_in_one_place() -> None:
    metrics = RequestMetrics(MetricsRegistry())
    assert metrics.route("Fetch", 12) is metrics.route("Fetch", 12)


def test_nothing_is_shown_of_what_nobody_used() -> None:
    registry = MetricsRegistry()
    RequestMetrics(registry).route("Produce", 9)
    assert 'request="Produce"' not in generate_latest(registry.prometheus).decode()


def test_what_a_scrape_shows() -> None:
    registry = MetricsRegistry()
    metrics = RequestMetrics(registry)
    metrics.route("Produce", 9).observe(0.0, 0.0, 0.001, 0.001, 0.002)
    metrics.route("Produce", 9).count_error("NOT_LEADER_OR_FOLLOWER", 3)
    metrics.count_error("Fetch", "OFFSET_OUT_OF_RANGE")
    metrics.unexpected_errors.labels("Metadata").increment()
    metrics.connections["PLAINTEXT"] = 4
    metrics.connections_opened.labels("PLAINTEXT").increment()
    metrics.connections_refused.labels("PLAINTEXT", "max.connections").increment()
    metrics.frames.labels("CONTROLLER").increment()
    metrics.count_closed(IDLE)
    metrics.count_closed("acks=0: NOT_LEADER_OR_FOLLOWER")
    metrics.in_flight_bytes += [lambda: 70, lambda: 7]
    metrics.unsent_bytes += [lambda: 5, lambda: 50]
    text = generate_latest(registry.prometheus).decode()
    for line in (
        'broker_request_seconds_count{phase="total",request="Produce"} 1.0',
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 1.0',
        'kafka_network_requestmetrics_errors_total{error="NOT_LEADER_OR_FOLLOWER",request="Produce"} 3.0',
        'kafka_network_requestmetrics_errors_total{error="OFFSET_OUT_OF_RANGE",request="Fetch"} 1.0',
        'broker_request_handler_failures_total{request="Metadata"} 1.0',
        'kafka_server_socketservermetrics_connectioncount{listener="PLAINTEXT"} 4.0',
        'broker_frames_received_total{listener="CONTROLLER"} 1.0',
        'broker_connections_opened_total{listener="PLAINTEXT"} 1.0',
        'broker_connections_refused_total{listener="PLAINTEXT",reason="max.connections"} 1.0',
        'broker_connections_closed_total{reason="idle"} 1.0',
        'broker_connections_closed_total{reason="refused_silently"} 1.0',
        "broker_requests_in_flight_bytes 77.0",
        "broker_unsent_response_bytes 55.0",
    ):
        assert line in text, line
