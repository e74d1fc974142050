import asyncio
import json
from typing import Any

import pytest
import structlog

from broker.metrics.registry import MetricsRegistry
from broker.server import http_endpoint
from broker.server.http_endpoint import HttpEndpoint


class RecordingWriter:
    """What the endpoint does to a connection."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.is_aborted = False

    @property
    def transport(self) -> "RecordingWriter":
        return self

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


def endpoint(*, ready: bool = True, **options: Any) -> HttpEndpoint:
    registry = MetricsRegistry()
    registry.counter("sample_events_total", "Events.").increment(3)
    registry.gauge("sample_level", "Level.", lambda: 1.5)
    return HttpEndpoint("127.0.0.1", 0, registry, lambda: ready, reason=lambda: "still fenced", **options)


async def exchange(request: bytes, *, of: HttpEndpoint | None = None, ends: bool = False) -> RecordingWriter:
    reader = asyncio.StreamReader(limit=http_endpoint.REQUEST_SIZE_MAX)
    reader.feed_data(request)
    if ends:
        reader.feed_eof()
    writer = RecordingWriter()
    served = of or endpoint()
    served._accept(reader, writer)  # type: ignore[arg-type]
    while not writer.is_closed:
        await asyncio.sleep(0)
    assert served._connections == {}
    return writer


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def parts(response: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert headers["Connection"] == "close"
    return status.removeprefix("HTTP/1.1 "), headers, body


async def test_metrics_are_text_for_prometheus() -> None:
    status, headers, body = parts((await exchange(get("/metrics"))).written)
    assert status == "200 OK"
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert int(headers["Content-Length"]) == len(body)
    assert b"\nsample_events_total 3.0\n" in body
    assert b"# HELP sample_level Level.\n# TYPE sample_level gauge\nsample_level 1.5\n" in body


async def test_a_query_does_not_matter() -> None:
    assert parts((await exchange(get("/metrics?name[]=x"))).written)[0] == "200 OK"


async def test_head_has_the_length_and_no_body() -> None:
    status, headers, body = parts((await exchange(get("/healthz", "HEAD"))).written)
    assert (status, headers["Content-Length"], body) == ("200 OK", "3", b"")


async def test_health_is_that_the_loop_answers() -> None:
    assert parts((await exchange(get("/healthz"), of=endpoint(ready=False))).written)[::2] == ("200 OK", b"ok\n")


async def test_readiness_says_why_not() -> None:
    assert parts((await exchange(get("/readyz"))).written)[::2] == ("200 OK", b"ready\n")
    assert parts((await exchange(get("/readyz"), of=endpoint(ready=False))).written)[::2] == (
        "503 Service Unavailable",
        b"still fenced\n",
    )


async def test_other_paths_and_methods_are_refused() -> None:
    assert parts((await exchange(get("/favicon.ico"))).written)[0] == "404 Not Found"
    assert parts((await exchange(get("/../node.py"))).written)[0] == "404 Not Found"
    assert parts((await exchange(get("/static/page.js"))).written)[0] == "404 Not Found"
    status, headers, _ = parts((await exchange(get("/metrics", "POST"))).written)
    assert (status, headers["Allow"]) == ("405 Method Not Allowed", "GET, HEAD")
    assert parts((await exchange(b"hello\r\n\r\n")).written)[0] == "400 Bad Request"


async def test_the_page_is_made_of_its_own_files_and_may_use_nothing_else() -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, headers, body = parts((await exchange(get(path))).written)
        assert (status, headers["Content-Type"]) == ("200 OK", f"{kind}; charset=utf-8")
        assert int(headers["Content-Length"]) == len(body) > 500
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert policy.pop("img-src") == "data:"
    assert set(policy) >= {"default-src", "script-src", "style-src", "connect-src", "frame-ancestors", "base-uri"}
    assert set(policy.values()) == {"'none'", "'self'"}
    assert policy["default-src"] == "'none'"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_head_of_the_page_has_its_length_and_no_body() -> None:
    _, headers, body = parts((await exchange(get("/", "HEAD"))).written)
    assert (int(headers["Content-Length"]) > 500, body) == (True, b"")


async def test_the_status_is_json_and_no_markup_whatever_things_are_called() -> None:
    async def status() -> Any:
        return {"rack": "<script>alert(1)</script>"}

    answer, headers, body = parts((await exchange(get("/status"), of=endpoint(status=status))).written)
    assert (answer, headers["Content-Type"]) == ("200 OK", "application/json")
    assert json.loads(body) == {"rack": "<script>alert(1)</script>"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(parts((await exchange(get("/status"))).written)[2]) == {}


async def test_a_status_that_cannot_be_made_is_an_error_of_that_request_alone() -> None:
    async def status() -> Any:
        raise KeyError("broken")

    with structlog.testing.capture_logs() as events:
        assert parts((await exchange(get("/status"), of=endpoint(status=status))).written)[0] == (
            "500 Internal Server Error"
        )
    assert [event["event"] for event in events] == ["http_resource_failed"]


def post(body: bytes, *, path: str = "/faults", headers: str = "", length: str | None = None) -> bytes:
    size = str(len(body)) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:9404\r\n{headers}content-length: {size}\r\n\r\n"
    return head.encode() + body


class RecordingFaults:
    def __init__(self) -> None:
        self.wanted: list[Any] = []

    def set(self, wanted: Any) -> None:
        if wanted == "nonsense":
            raise ValueError("expected sense")
        self.wanted.append(wanted)

    def describe(self) -> Any:
        return {"set": self.wanted}


async def test_faults_are_set_and_shown() -> None:
    faults = RecordingFaults()
    served = endpoint(faults=faults)
    status, headers, body = parts((await exchange(post(b'{"down": "reset"}'), of=served)).written)
    assert (status, headers["Content-Type"]) == ("200 OK", "application/json")
    assert json.loads(body) == {"set": [{"down": "reset"}]}
    status, _, body = parts((await exchange(get("/faults"), of=served)).written)
    assert (status, json.loads(body)) == ("200 OK", {"set": [{"down": "reset"}]})
    own_page = post(b"{}", headers="Origin: http://127.0.0.1:9404\r\n")
    assert parts((await exchange(own_page, of=served)).written)[0] == "200 OK"
    assert faults.wanted == [{"down": "reset"}, {}]


@pytest.mark.parametrize(
    ("request_bytes", "status", "text"),
    [
        (post(b'"nonsense"'), "400 Bad Request", b"expected sense\n"),
        (post(b"{"), "400 Bad Request", b"Expecting property name"),
        (post(b"\xff"), "400 Bad Request", b"'utf-8' codec"),
        (post(b"{}", length="two"), "411 Length Required", b"a POST needs its Content-Length\n"),
        (post(b"{}", length="9" * 30), "413 Request Entity Too Large", b"request too large\n"),
        (post(b"{}", headers="Origin: http://evil.example\r\n"), "403 Forbidden", b"a page of another site"),
        (get("/faults", "DELETE"), "405 Method Not Allowed", b"only GET, HEAD, POST\n"),
    ],
)
async def test_what_is_no_order_sets_no_fault(request_bytes: bytes, status: str, text: bytes) -> None:
    faults = RecordingFaults()
    answer = parts((await exchange(request_bytes, of=endpoint(faults=faults))).written)
    assert answer[0] == status
    assert answer[2].startswith(text)
    assert faults.wanted == []


async def test_where_nobody_allowed_it_no_fault_is_set() -> None:
    for request in (post(b"{}"), get("/faults")):
        status, _, body = parts((await exchange(request)).written)
        assert status == "403 Forbidden"
        assert b"wherry.fault.switch.enable=true" in body


async def test_an_order_that_never_ends_is_given_up() -> None:
    faults = RecordingFaults()
    served = endpoint(faults=faults, request_timeout_s=0)
    assert (await exchange(post(b"{}", length="5"), of=served)).written == b""
    assert (await exchange(post(b"{}", length="5"), of=endpoint(faults=faults), ends=True)).written == b""
    assert faults.wanted == []


async def test_a_gauge_that_cannot_be_read_is_an_error_of_that_scrape_alone() -> None:
    served = endpoint()
    served._registry.gauge("sample_broken", "Broken.", lambda: 1 / 0)
    with structlog.testing.capture_logs() as events:
        assert parts((await exchange(get("/metrics"), of=served)).written)[0] == "500 Internal Server Error"
    assert [event["event"] for event in events] == ["http_resource_failed"]
    assert parts((await exchange(get("/healthz"), of=served)).written)[0] == "200 OK"


async def test_a_request_has_a_greatest_size() -> None:
    request = b"GET / HTTP/1.1\r\nX: " + b"x" * http_endpoint.REQUEST_SIZE_MAX + b"\r\n\r\n"
    assert parts((await exchange(request)).written)[0] == "431 Request Header Fields Too Large"


async def test_an_unfinished_request_is_given_up_without_an_answer() -> None:
    assert (await exchange(b"GET / HT", of=endpoint(request_timeout_s=0))).written == b""
    assert (await exchange(b"GET / HT", ends=True)).written == b""


async def test_connections_beyond_the_bound_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_endpoint, "CONNECTIONS_MAX", 1)
    served = endpoint()
    first, second = RecordingWriter(), RecordingWriter()
    served._accept(asyncio.StreamReader(), first)  # type: ignore[arg-type]
    served._accept(asyncio.StreamReader(), second)  # type: ignore[arg-type]
    assert (first.is_aborted, second.is_aborted) == (False, True)
    await served.close()


async def test_the_loop_runs_between_the_parts_of_a_scrape() -> None:
    registry = MetricsRegistry()
    registry.collected("sample_size", "gauge", "Sizes.", ("n",), lambda: [((str(n),), n) for n in range(3500)])
    served = HttpEndpoint("127.0.0.1", 0, registry, lambda: True)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    text = await served._metrics_text()
    counting.cancel()
    assert turns == 9  # one for the registry's own counter, eight for the rows
    assert text.count(b"sample_size{") == 3500
    assert text.count(b"# TYPE sample_size gauge\n") == 1
