"""What a person sees who opens a broker's page in a browser while the cluster is at work."""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.demo.layout import CLASSIC_TOPIC, METRICS_PORT_OFFSET, WAL_TOPIC
from tests.support.broker_process import BrokerProcess
from tests.support.chromium import Chromium
from tests.support.cluster_process import ClusterProcess
from tests.support.demo_process import DemoProcess
from tests.support.patience import PATIENCE_S, eventually

pytestmark = [pytest.mark.interop, pytest.mark.browser]

HOSTILE = "<img id=injected src=x onerror=\"document.body.id='taken'\"> &amp; 'zone'"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoProcess]:
    with DemoProcess(tmp_path_factory.mktemp("demo"), "--mbps", "0.5") as process:
        yield process
        assert process.end() == 0


def page_of(broker: BrokerProcess | DemoProcess) -> str:
    """Of the demonstration's first broker, which is in zone-a."""
    port = broker.port + METRICS_PORT_OFFSET if isinstance(broker, DemoProcess) else broker.metrics_port
    return f"http://127.0.0.1:{port}/"


def status_of(broker: BrokerProcess) -> dict[str, object]:
    with urllib.request.urlopen(f"{page_of(broker)}status", timeout=PATIENCE_S) as answer:
        return dict(json.loads(answer.read()))


def set_faults(demo: DemoProcess, order: dict[str, str]) -> None:
    urllib.request.urlopen(f"{page_of(demo)}faults", data=json.dumps(order).encode(), timeout=PATIENCE_S).close()


def has(*words: str) -> Callable[[str], bool]:
    return lambda text: all(word in text for word in words)


def line_of(text: str, name: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(name)), "")


def moves(name: str) -> Callable[[str], bool]:
    """Whether the line of that name has a rate that is not nothing."""
    return lambda text: re.search(r"[1-9][\d.]* [kM]?B/s", line_of(text, name)) is not None


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, text, re.MULTILINE) is not None


async def test_the_page_shows_the_cluster_its_paths_hops_and_costs(demo: DemoProcess, tmp_path: Path) -> None:
    async with Chromium(tmp_path) as browser:
        await browser.open(page_of(demo))
        await browser.text_when(has("node 1 in zone-a, broker", "ready"), "header")
        await browser.text_when(has("3 of 3 brokers serve, controller 3", "0 without a leader"), "#cluster-summary")
        for number, zone in enumerate(("zone-a", "zone-b", "zone-c")):
            address = f"127.0.0.1:{demo.port + number}"
            await browser.text_when(matches(rf"\t{zone}\t{address}\tserving\t\d+\t12\t12$"), "#brokers")
        await browser.text_when(moves(f"{WAL_TOPIC}\t"), "#topics")
        await browser.text_when(matches(rf"^{WAL_TOPIC}\tbucket\ttiered\t3\t3\tgood\t"), "#topics")
        await browser.text_when(matches(rf"^{CLASSIC_TOPIC}\tleaders\tlocal\t3\t3\tgood\t"), "#topics")
        for path in ("through the bucket", "from the leader\t"):
            await browser.text_when(moves(path), "#paths")
        await browser.text_when(has("of the last"), "#hops-since")
        for hop in ("put into the bucket", "announce", "get from the bucket", "append to committed", "end to end"):
            await browser.text_when(matches(rf"^{hop}\t[\d.,]+ m?s\t[\d.,]+ m?s\t[1-9]"), "#hops")
        assert await browser.evaluate("document.querySelectorAll('#hops svg rect').length") == 20
        await browser.text_when(
            matches(r"\$[1-9][\d,.]* through buckets, \$[1-9][\d,.]* for the same"), "#cost-summary"
        )
        await browser.text_when(matches(r"^put\t\$[1-9][\d,.]*\t\$0\.\d{4}$"), "#costs")
        await browser.text_when(
            matches(r"^The bucket pays from [1-9][\d.]* [kM]B/s on; uploaded now: [1-9]"), "#break-even"
        )
        await browser.text_when(matches(r"^in the bucket, of what this broker leads\t[\d.]+ [kM]B$"), "#tiered")
        await browser.text_when(lambda text: text.count("in use") == 4, "#buckets")
        assert matches(r"^disk free\t[\d.]+ [GT]B, \d+ %")(await browser.text("#clients"))
        assert browser.complaints == []


async def test_a_bucket_that_breaks_is_seen_and_told_of(demo: DemoProcess, tmp_path: Path) -> None:
    async with Chromium(tmp_path) as browser:
        await browser.open(page_of(demo))
        await browser.text_when(has("this page was opened"), "#events")
        await browser.text_when(matches(r"^\d+ partitions in fallback"), "#buckets-summary")
        set_faults(demo, {"down": "reset"})
        try:
            await browser.text_when(matches(r"^[1-9]\d* partitions in fallback"), "#buckets-summary")
            await browser.text_when(matches(r"zone-a\tleft alone\t"), "#buckets")
            await browser.text_when(has("zone-a: in use → left alone"), "#events")
        finally:
            set_faults(demo, {})
        await browser.text_when(has("zone-a: left alone → in use"), "#events")
        assert browser.complaints == []


async def test_a_broker_that_goes_away_is_told_of_by_the_page_of_another(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path / "cluster") as cluster:
        cluster.create_topic("replicated")
        async with Chromium(tmp_path) as browser:
            await browser.open(page_of(cluster.brokers[0]))
            await browser.text_when(has("3 of 3 brokers serve"), "#cluster-summary")
            await browser.text_when(matches("^replicated\t.*\tgood\t"), "#topics")
            assert cluster.graceful_stop(3) == 0
            await browser.text_when(has("2 of 3 brokers serve"), "#cluster-summary")
            await browser.text_when(has("1 under-replicated"), "#topics")
            await browser.text_when(has("broker 3: serving → "), "#events")
            cluster.restart(3)
            await browser.text_when(has("3 of 3 brokers serve"), "#cluster-summary")
            await browser.text_when(matches("^replicated\t.*\tgood\t"), "#topics")


async def test_a_page_whose_own_broker_goes_away_says_so(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    async with Chromium(tmp_path) as browser:
        await browser.open(page_of(broker))
        await browser.text_when(has("ready"), "#state")
        assert broker.stop() == 0
        await browser.text_when(has("no answer since"), "#state")
        broker.start()
        await browser.text_when(has("ready"), "#state")
        assert "this broker answers again" in await browser.text_when(has("answers again"), "#events")


async def test_what_things_are_called_is_shown_and_never_becomes_part_of_the_page(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker({"broker.rack": HOSTILE})
    assert status_of(broker)["rack"] == HOSTILE
    async with Chromium(tmp_path) as browser:
        await browser.open(page_of(broker))
        await browser.text_when(has(HOSTILE), "#who")
        await browser.text_when(has(HOSTILE), "#brokers")
        assert await browser.evaluate("document.getElementById('injected') === null && document.body.id === ''")
        assert await browser.text("#cost-summary") == "This broker has no bucket, and reckons no costs."
        assert browser.complaints == []
        # Even if it did: nothing but the page's own scripts runs there.
        planted = '<img src=http://elsewhere.example/x onerror="document.body.id=1">'
        await browser.evaluate(f"document.body.insertAdjacentHTML('beforeend', '{planted}')")

        async def is_refused() -> bool:
            await browser.evaluate("0")  # what it complains of comes before the answer
            return any("Content Security Policy" in complaint for complaint in browser.complaints)

        await eventually(is_refused, "the page's policy refuses it", lambda: browser.complaints)
        await browser.text_when(has("controller 1"), "#cluster-summary")
        assert await browser.evaluate("document.body.id") == ""


async def test_the_script_reads_samples_as_prometheus_does(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    text = "\n".join(
        [
            "# HELP t_total Things.",
            't_total{store="a",name="quote \\" slash \\\\ {x=\\"1\\"}, comma"} 3.0',
            't_total{store="b",name="line\\nfeed"} 4e3',
            "level -0.5",
            "most +Inf",
            *(f'h_bucket{{le="{bound}"}} {count}' for bound, count in (("0.1", 10), ("0.2", 30), ("+Inf", 40))),
            "h_count 40",
            'kafka_cluster_partition_underminisr{topic="t",partition="0"} 1',
            "",
        ]
    )
    later = (
        text.replace(" 3.0", " 13.0")
        .replace(" 4e3", " 1")
        .replace('"+Inf"} 40', '"+Inf"} 60')
        .replace('0.2"} 30', '0.2"} 50')
    )
    broker = own_broker()
    async with Chromium(tmp_path) as browser:
        await browser.open(page_of(broker))
        await browser.text_when(has("ready"), "#state")
        found = await browser.evaluate(
            f"""import("/metrics.js").then(({{ Scrape }}) => {{
              const [one, two] = [new Scrape({json.dumps(text)}, 1000), new Scrape({json.dumps(later)}, 3000)];
              return {{
                names: one.valuesOf("name", "t_total"), sum: one.sum("t_total"), of: one.sum("t_total", {{store: "a"}}),
                level: one.sum("level"), most: String(one.highest("most")),
                kept: one.has("kafka_cluster_partition_underminisr"),
                rate: two.rate("t_total", {{store: "a"}}, one), anew: two.increase("t_total", {{store: "b"}}, one),
                first: two.rate("t_total", {{}}, undefined),
                median: one.quantile("h", 0.5, {{}}), beyond: one.quantile("h", 0.99, {{}}),
                since: two.quantile("h", 0.5, {{}}, one), none: one.quantile("nothing", 0.5, {{}}),
              }};
            }})"""
        )
    assert found == {
        "names": ["line\nfeed", 'quote " slash \\ {x="1"}, comma'],
        "sum": 4003,
        "of": 3,
        "level": -0.5,
        "most": "Infinity",
        "kept": False,
        "rate": 5,
        "anew": 1,  # its process began anew
        "first": 0,
        "median": pytest.approx(0.15),
        "beyond": pytest.approx(0.2),
        "since": pytest.approx(0.15),
        "none": None,
    }
