import asyncio
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Throttled, Unavailable
from broker.objectstore.failing_object_store import Fault, Latency
from broker.objectstore.fault_switch import FaultSwitch, is_loopback
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate

HEALTHY = {"probabilities": {}, "latency_ms": {"all": [0, 0]}, "down": None, "black_hole_ms": 2000}


def test_a_bucket_is_healthy_until_told_otherwise_and_again_after() -> None:
    async def story(loop: SimLoop) -> None:
        switch = FaultSwitch(Chance(1))
        store = switch.around(MemoryObjectStore("memory://a"))
        await store.put("k", b"v")
        assert loop.time() == 0
        switch.set({"down": "slow_down", "latency_ms": {"all": 40}})
        with pytest.raises(Throttled):
            await store.put("k", b"v")
        assert loop.time() == pytest.approx(0.04)
        described = {**HEALTHY, "down": "slow_down", "latency_ms": {"all": [40, 0]}}
        assert switch.describe() == {
            "all": described,
            "buckets": {"memory://a": {**described, "occurred": {"slow_down": 1}}},
        }
        switch.set({})
        await store.put("k", b"v")
        assert loop.time() == pytest.approx(0.04)
        assert switch.describe() == {
            "all": HEALTHY,
            "buckets": {"memory://a": {**HEALTHY, "occurred": {"slow_down": 1}}},
        }

    simulate(story)


def test_one_bucket_alone_and_those_opened_later() -> None:
    async def story(loop: SimLoop) -> None:
        switch = FaultSwitch(Chance(1))
        first, second = (switch.around(MemoryObjectStore(f"memory://{name}")) for name in "ab")
        switch.set({"bucket": "memory://a", "down": "reset"})
        with pytest.raises(Unavailable):
            await first.head("k")
        await second.put("k", b"v")
        switch.set({"bucket": "memory://c", "latency_ms": {"head": [10, 30], "all": 5}})
        again = switch.around(MemoryObjectStore("memory://a"))
        with pytest.raises(Unavailable):
            await again.probe()
        assert switch.describe()["buckets"]["memory://a"]["occurred"] == {"reset": 2}
        third = switch.around(MemoryObjectStore("memory://c"))
        await third.probe()
        assert loop.time() == pytest.approx(0.005)
        switch.set({"latency_ms": {"all": 20}})
        await switch.around(MemoryObjectStore("memory://d")).probe()
        assert loop.time() == pytest.approx(0.025)

    simulate(story)


def test_every_part_of_an_order_reaches_the_plan() -> None:
    switch = FaultSwitch(Chance(1))
    store: Any = switch.around(MemoryObjectStore("memory://a"))
    switch.set(
        {
            "probabilities": {"lost_reply": 0.25, "torn_put": 1},
            "latency_ms": {"all": [5, 9], "get_range": [4, 15]},
            "black_hole_ms": 500,
        }
    )
    assert store.plan.probabilities == {Fault.LOST_REPLY: 0.25, Fault.TORN_PUT: 1.0}
    assert store.plan.latency == Latency(0.005, 0.009)
    assert store.plan.latencies == {Operation.GET_RANGE: Latency(0.004, 0.015)}
    assert store.plan.black_hole_seconds == 0.5
    switch.set({"latency": "s3-express"})
    assert store.plan.latency_of(Operation.PUT_IF_ABSENT) == Latency(0.006, 0.020)
    assert store.plan.latency_of(Operation.GET_RANGE) == Latency(0.004, 0.015)
    assert store.plan.probabilities == {}
    switch.set({"latency": "s3-standard"})
    assert store.plan.latency_of(Operation.PUT_IF_ABSENT) == Latency(0.070, 0.250)


def test_what_is_shown_can_be_set_again() -> None:
    switch, other = FaultSwitch(Chance(1)), FaultSwitch(Chance(1))
    switch.set({"latency": "s3-standard", "probabilities": {"reset": 0.1}, "down": "black_hole"})
    other.set(switch.describe()["all"])
    assert other.describe() == switch.describe()


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([], "expected a JSON object with some of black_hole_ms, bucket, "),
        ({"latencies": {}}, "expected a JSON object with some of "),
        ({"bucket": 7}, "bucket: expected a text"),
        ({"probabilities": []}, "probabilities: expected an object"),
        ({"probabilities": {"fire": 1}}, "there is no fault 'fire': slow_down, "),
        ({"probabilities": {"reset": 1.5}}, "reset=1.5: valid values are"),
        ({"probabilities": {"reset": True}}, "reset=True: valid values are"),
        ({"latency": "azure"}, "latency='azure': valid values are s3-express, s3-standard"),
        ({"latency_ms": {"get": 5}}, "there is no operation 'get': all, put, "),
        ({"latency_ms": {"put": [1, 2, 3]}}, "put: expected a median"),
        ({"latency_ms": {"put": -1}}, "put=-1: valid values are"),
        ({"down": "flipped_byte"}, "down='flipped_byte': what can befall every request is black_hole, "),
        ({"down": 7}, "there is no fault 7"),
        ({"black_hole_ms": 1e9}, "black_hole_ms=1000000000.0: valid values are"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(wanted: Any, sentence: str) -> None:
    switch = FaultSwitch(Chance(1))
    switch.set({"down": "reset"})
    with pytest.raises(ValueError) as refused:  # the whole text is compared below
        switch.set(wanted)
    assert str(refused.value).startswith(sentence)
    assert switch.describe()["all"]["down"] == "reset"


def test_buckets_are_bounded() -> None:
    switch = FaultSwitch(Chance(1))
    for number in range(100):
        switch.set({"bucket": f"s3://b{number}"})
    with pytest.raises(ValueError, match="faults of 100 buckets are known"):
        switch.set({"bucket": "s3://one-more"})


def test_a_black_hole_waits_as_long_as_was_said() -> None:
    async def story(loop: SimLoop) -> None:
        switch = FaultSwitch(Chance(1))
        store = switch.around(MemoryObjectStore())
        switch.set({"down": "black_hole", "black_hole_ms": 300})
        with pytest.raises(Unavailable):
            async with asyncio.timeout(5):
                await store.head("k")
        assert loop.time() == pytest.approx(0.3)

    simulate(story)


def test_listings_are_kept_only_while_some_shall_be_stale() -> None:
    async def story(loop: SimLoop) -> None:
        switch = FaultSwitch(Chance(1))
        store: Any = switch.around(MemoryObjectStore())
        await store.put("dir/a", b"v")
        await store.list_page("dir/")
        assert store._listings == {}
        switch.set({"probabilities": {"stale_list": 0}})
        await store.list_page("dir/")
        await store.put("dir/b", b"v")
        switch.set({"probabilities": {"stale_list": 1}})
        assert [each.key for each in (await store.list_page("dir/")).objects] == ["dir/a"]
        switch.set({})
        assert len((await store.list_page("dir/")).objects) == 2
        assert store._listings == {}

    simulate(story)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("", False),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("broker-1", False),
    ],
)
def test_what_is_out_of_reach(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
