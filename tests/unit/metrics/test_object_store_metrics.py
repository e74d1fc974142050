"""ObjectStoreMetrics: each metric is moved by what it counts."""

from prometheus_client import generate_latest

from broker.common.chance import Chance
from broker.metrics.object_store_metrics import ObjectStoreMetrics
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.failing_object_store import FailingObjectStore, FaultPlan, Latency
from broker.objectstore.instrumented import InstrumentedObjectStore
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate


def test_a_request_moves_them_all() -> None:
    registry = MetricsRegistry()

    async def story(loop: SimLoop) -> None:
        slow = FailingObjectStore(MemoryObjectStore("s3://wal"), Chance(1), FaultPlan(latency=Latency(0.25)))
        await InstrumentedObjectStore(slow, ObjectStoreMetrics(registry)).put("a", b"x" * 300)

    simulate(story)
    text = generate_latest(registry.prometheus).decode()
    assert 'broker_objectstore_requests_total{operation="put",outcome="ok",store="s3://wal"} 1.0' in text
    assert 'broker_objectstore_bytes_total{operation="put",store="s3://wal"} 300.0' in text
    assert 'broker_objectstore_request_seconds_sum{operation="put",store="s3://wal"} 0.25' in text
    assert 'broker_objectstore_request_seconds_count{operation="put",store="s3://wal"} 1.0' in text
