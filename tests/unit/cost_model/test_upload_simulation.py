import pytest

from broker.common.chance import Chance
from broker.cost_model.objects import objects_of
from broker.cost_model.plan import Plan
from broker.cost_model.traffic import traffic_of
from broker.cost_model.upload_simulation import UploadSimulation


@pytest.mark.parametrize(
    "plan",
    [
        Plan(mbps=0.5),
        Plan(mbps=2, partitions=6),
        Plan(mbps=20, partitions=30),
        Plan(mbps=50),
        Plan(mbps=300, partitions=6),
        Plan(mbps=25, brokers=12, partitions=600),
    ],
)
def test_the_queue_does_what_the_formulas_say(plan: Plan) -> None:
    broker = UploadSimulation(plan, plan.upload, Chance(1)).run(8)
    traffic = traffic_of(plan)
    assert traffic.objects.per_second == pytest.approx(broker.objects_per_second, rel=0.07)
    assert traffic.objects.slices == pytest.approx(broker.slices_per_object, rel=0.07)
    assert traffic.reads.gets == pytest.approx(broker.gets_per_object, rel=0.07)
    assert traffic.reads.amplification == pytest.approx(broker.amplification, rel=0.1)
    assert plan.log_bytes_per_second / plan.brokers == pytest.approx(broker.record_bytes / broker.seconds, rel=0.07)
    told = traffic.metadata.records / plan.brokers
    assert told == pytest.approx(broker.metadata_records_per_second, rel=0.07)


def test_objects_have_a_table_behind_their_slices() -> None:
    plan = Plan(mbps=5, partitions=6)
    broker = UploadSimulation(plan, plan.upload, Chance(1)).run(2)
    table = (broker.object_bytes - broker.record_bytes) / broker.objects
    assert traffic_of(plan).metadata.table_bytes == pytest.approx(table, abs=90), "its key is shorter here"


def test_a_run_goes_on_and_repeats() -> None:
    plan = Plan(mbps=5, partitions=6)
    once, twice = (UploadSimulation(plan, plan.upload, Chance(7)) for _ in range(2))
    once.run(1)
    assert once.run(1).seconds == 2
    twice.run(1)
    assert twice.run(1) == once.broker
    assert once.broker.objects > objects_of(plan).per_second


def test_batches_that_do_not_fit_behind_others_wait_for_the_next_object() -> None:
    plan = Plan(mbps=200, record_bytes=300_000, batch_bytes_max=300_000, partitions=6)
    broker = UploadSimulation(plan, plan.upload, Chance(1)).run(2)
    assert broker.slices_per_object == 1
