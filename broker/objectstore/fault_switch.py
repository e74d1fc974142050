"""FaultSwitch: makes the buckets of a running broker slow or faulty, for drills and demonstrations.

What is asked for is a JSON object; what is left out is as if nothing were wrong, so `{}` heals everything:

    {"bucket": "s3://wal",                      only this one; without it all, also those that are opened later
     "probabilities": {"slow_down": 0.05},      faults by name (`Fault`), each of so many requests
     "latency_ms": {"put_if_absent": [6, 20]},  median and 99th percentile by operation (`Operation`), or "all"
     "latency": "s3-express",                   or "s3-standard": usual times of such a store, instead of latency_ms
     "down": "reset",                           every request ends like this
     "black_hole_ms": 2000}                     how long a request waits that is never answered
"""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import structlog

from broker.common.chance import Chance
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import (
    BEFALLS_EVERY_OPERATION,
    FailingObjectStore,
    Fault,
    FaultPlan,
    Latency,
)
from broker.objectstore.object_store import ObjectStore

log = structlog.get_logger(__name__)

BUCKETS_MAX: Final = 100  # that faults are set for or have occurred in
SECONDS_MAX: Final = 60.0  # longer than any deadline of a client

_ALL: Final = "all"
_WRITES: Final = (Operation.PUT, Operation.PUT_IF_ABSENT, Operation.UPLOAD_PART)
_KEYS: Final = frozenset({"bucket", "probabilities", "latency_ms", "latency", "down", "black_hole_ms"})

# First and usual times of requests of some 100 KB from within the region, as published figures have them.
LATENCIES: Final[Mapping[str, tuple[Latency, Latency]]] = {  # of reads, of writes
    "s3-express": (Latency(0.004, 0.015), Latency(0.006, 0.020)),
    "s3-standard": (Latency(0.030, 0.150), Latency(0.070, 0.250)),
}


def is_loopback(host: str) -> bool:
    """Whether a listener on this host is out of reach of other machines."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class FaultSwitch:
    """Stores that pass through `around` have the faults that were set last."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._for_all = FaultPlan()
        self._plans: dict[str, FaultPlan] = {}  # by URL; an entry stays, for stores hold it
        self._occurred: dict[str, Counter[Fault]] = {}

    def around(self, store: ObjectStore) -> ObjectStore:
        """The store with the faults of its bucket, none at first."""
        faulty = FailingObjectStore(store, self._chance, self._plan_of(store.name), keeps_listings=False)
        faulty.occurred = self._occurred.setdefault(store.name, faulty.occurred)
        return faulty

    def set(self, wanted: Any) -> None:
        """Do from now on what the decoded JSON says; ValueError with a sentence when it makes no sense."""
        if not isinstance(wanted, dict) or not wanted.keys() <= _KEYS:
            raise ValueError(f"expected a JSON object with some of {', '.join(sorted(_KEYS))}")
        plan = _plan(wanted)
        bucket = wanted.get("bucket")
        if bucket is None:
            self._for_all = plan
            for each in self._plans.values():
                _take_over(each, plan)
        else:
            _take_over(self._plan_of(_text(bucket, "bucket")), plan)
        log.warning("bucket_faults_set", bucket=bucket or _ALL, faults=_described(plan))

    def describe(self) -> dict[str, Any]:
        """What is set, as `set` would take it, and how often each fault has occurred."""
        buckets = {
            url: {**_described(plan), "occurred": dict(self._occurred.get(url, {}))}
            for url, plan in self._plans.items()
        }
        return {_ALL: _described(self._for_all), "buckets": buckets}

    def _plan_of(self, url: str) -> FaultPlan:
        plan = self._plans.get(url)
        if plan is None:
            plan = FaultPlan()
            _take_over(plan, self._for_all)
            if len(self._plans) >= BUCKETS_MAX:
                raise ValueError(f"faults of {BUCKETS_MAX} buckets are known already")
            self._plans[url] = plan
        return plan


def _plan(wanted: Mapping[str, Any]) -> FaultPlan:
    plan = FaultPlan()
    for name, probability in _object(wanted, "probabilities").items():
        plan.probabilities[_fault(name)] = _number(probability, name, 1.0)
    if "latency" in wanted:
        name = _text(wanted["latency"], "latency")
        if name not in LATENCIES:
            raise ValueError(f"latency={name!r}: valid values are {', '.join(LATENCIES)}")
        plan.latency, written = LATENCIES[name]
        plan.latencies = dict.fromkeys(_WRITES, written)
    for name, milliseconds in _object(wanted, "latency_ms").items():
        latency = _latency(name, milliseconds)
        if name == _ALL:
            plan.latency = latency
        else:
            plan.latencies[_operation(name)] = latency
    if wanted.get("down") is not None:
        plan.down = _fault(wanted["down"])
        if plan.down not in BEFALLS_EVERY_OPERATION:
            names = ", ".join(sorted(BEFALLS_EVERY_OPERATION))
            raise ValueError(f"down={plan.down.value!r}: what can befall every request is {names}")
    if "black_hole_ms" in wanted:
        plan.black_hole_seconds = _number(wanted["black_hole_ms"], "black_hole_ms", SECONDS_MAX * 1000) / 1000
    return plan


def _take_over(plan: FaultPlan, other: FaultPlan) -> None:
    plan.probabilities = dict(other.probabilities)
    plan.latency = other.latency
    plan.latencies = dict(other.latencies)
    plan.black_hole_seconds = other.black_hole_seconds
    plan.down = other.down


def _described(plan: FaultPlan) -> dict[str, Any]:
    latencies = {operation.value: latency for operation, latency in plan.latencies.items()}
    return {
        "probabilities": {fault.value: probability for fault, probability in plan.probabilities.items()},
        "latency_ms": {
            name: [round(latency.median * 1000, 3), round(latency.p99 * 1000, 3)]
            for name, latency in {_ALL: plan.latency, **latencies}.items()
        },
        "down": None if plan.down is None else plan.down.value,
        "black_hole_ms": round(plan.black_hole_seconds * 1000, 3),
    }


def _object(wanted: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = wanted.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: expected a text")
    return value


def _number(value: Any, name: str, maximum: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= maximum:
        raise ValueError(f"{name}={value!r}: valid values are [0,...,{maximum:g}]")
    return float(value)


def _latency(name: str, milliseconds: Any) -> Latency:
    both = milliseconds if isinstance(milliseconds, list) else [milliseconds, 0]
    if len(both) != 2:
        raise ValueError(f"{name}: expected a median, or a median and a 99th percentile")
    median, p99 = (_number(each, name, SECONDS_MAX * 1000) / 1000 for each in both)
    return Latency(median, p99)


def _fault(name: Any) -> Fault:
    try:
        return Fault(name)
    except ValueError:
        raise ValueError(f"there is no fault {name!r}: {', '.join(Fault)}") from None


def _operation(name: str) -> Operation:
    try:
        return Operation(name)
    except ValueError:
        raise ValueError(f"there is no operation {name!r}: {_ALL}, {', '.join(Operation)}") from None
