from broker.demo.layout import DemoNode
from broker.demo.watch import ClusterWatch
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.demo.demo_world import FakeHttp, layout, scrape

NODES: tuple[DemoNode, ...] = layout().nodes


def _watch(http: FakeHttp) -> ClusterWatch:
    return ClusterWatch(NODES, {"c_total"}, http.get)


def test_brokers_that_do_not_answer_are_left_out() -> None:
    http = FakeHttp()
    for port, status in ((9404, 200), (9406, 503)):
        http.serve(port, "/metrics", body=b"c_total 5\nother 1\n")
        http.serve(port, "/readyz", status)

    async def story(_: SimLoop) -> None:
        view = await _watch(http).look()
        assert (set(view.brokers), view.ready) == ({1, 3}, {1})
        assert view.now.total("c_total") == 10
        assert view.now.total("other") == 0, "nobody wants it"
        assert (view.seconds, view.rate("c_total")) == (0, 0)

    simulate(story)


def test_rates_are_of_the_last_seconds() -> None:
    watch = _watch(FakeHttp())
    for second in range(30):
        view = watch.note({1: scrape(f"c_total {second * (1 if second < 15 else 3)}")}, frozenset(), float(second))
    assert 9 <= view.seconds <= 10
    assert view.rate("c_total") == 3, "what was before is forgotten"


def test_a_broker_that_comes_or_begins_anew_adds_what_it_counted_meanwhile_alone() -> None:
    watch = _watch(FakeHttp())
    watch.note({1: scrape("c_total 100")}, frozenset(), 0.0)
    watch.note({1: scrape("c_total 101"), 2: scrape("c_total 5000")}, frozenset(), 1.0)
    view = watch.note({1: scrape("c_total 3"), 2: scrape("c_total 5001")}, frozenset(), 2.0)
    assert view.increase.total("c_total") == 1 + 3 + 1
