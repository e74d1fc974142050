from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.metrics.fetcher_metrics import FetcherMetrics
from broker.metrics.registry import MetricsRegistry
from broker.metrics.replication_metrics import ReplicationMetrics
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.replication.follower_world import records
from tests.unit.replication.test_replica_fetcher_manager import ManagerWorld

MANAGER = "kafka_server_replicafetchermanager"


def test_before_anything_is_observed_all_is_zero_or_absent() -> None:
    registry = MetricsRegistry()
    FetcherMetrics(registry)
    values = {name: registry.prometheus.get_sample_value(f"{MANAGER}_{name}") for name in ("maxlag", "minfetchrate")}
    assert values == {"maxlag": 0, "minfetchrate": 0}
    assert registry.prometheus.get_sample_value("kafka_server_followerreplication_byte_rate") == 0
    assert registry.prometheus.get_sample_value("kafka_server_fetcherstats_requests_total", {"leader": "2"}) is None


def test_what_following_moves(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = ManagerWorld(tmp_path)
        registry = MetricsRegistry()
        metrics = FetcherMetrics(registry)
        metrics.observe(world.manager)
        topics = ReplicationMetrics(registry)
        topics.observe(world.replicas)
        value = registry.prometheus.get_sample_value
        async with world.manager.running():
            configs = {"follower.replication.throttled.replicas": "*"}
            world.create_topic(replicas=(2, 1), leader=2, configs=configs)
            sent = records(0, "a", "b")
            world.leaders[0].answer_one(records=sent, high_watermark=7)
            await settle()
            assert value(f"{MANAGER}_maxlag") == 5
            labels = {"clientId": "ReplicaFetcherThread-0-2", "topic": "t", "partition": "0"}
            assert value("kafka_server_fetcherlagmetrics_consumerlag", labels) == 5
            assert value("kafka_server_fetcherstats_requests_total", {"leader": "2"}) == 2
            assert value("kafka_server_fetcherstats_bytes_total", {"leader": "2"}) == len(sent)
            assert value("kafka_server_brokertopicmetrics_replicationbytesin_total", {"topic": "t"}) == len(sent)
            assert value("kafka_server_followerreplication_byte_rate") == len(sent)
            loop.advance(10)
            assert value(f"{MANAGER}_minfetchrate") == pytest.approx(0.2)
            world.leaders[0].answer_one(error=ErrorCode.fenced_leader_epoch)
            await settle()
            assert value(f"{MANAGER}_failedpartitionscount") == 1
            assert value(f"{MANAGER}_maxlag") == 0

    simulate(story)
