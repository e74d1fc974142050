"""Tiered topics of our brokers under Apache Kafka's controllers, who decide which settings topics may have."""

from collections.abc import Iterator

import pytest

from tests.support import java_tools
from tests.support.apache_controllers import ApacheControllers
from tests.support.tiered_cluster import TieredCluster, assert_readable, produce, tiered_cluster

from .apache_versions import need

pytestmark = [pytest.mark.interop, pytest.mark.java]

FIRST, SECOND = 1, 2
THEIRS = {"remote.log.storage.system.enable": "true"}  # what they go by, whatever brokers have


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    version = java_tools.VERSION  # 4.0 does not know internal.segment.bytes, and so no segments below 1 MiB
    need(version)
    directory = tmp_path_factory.mktemp(f"tiered-{version}")
    with (
        ApacheControllers(directory / "controllers", version, voters=1, settings=THEIRS) as controllers,
        tiered_cluster(
            "directory", directory, controllers=controllers.bootstrap, settings=controllers.broker_settings
        ) as processes,
    ):
        yield processes


def test_a_topic_is_tiered_and_read_whoever_leads(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("theirs", per_segment=2, config={})
    produce(cluster, topic, range(5))
    entity = ("--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", "local.retention.bytes=1")
    java_tools.run("ConfigCommand", "--bootstrap-server", cluster.bootstrap, *entity)
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, range(5, 7))
    cluster.wait_for_tiers(topic, remote=[0, 2, 4], local=[6])
    assert cluster.offsets(topic) == (0, 6, 5, 7)
    with cluster.remote_fetches(topic, 3, by=SECOND):
        assert_readable(cluster, topic, range(7))


def test_a_killed_leader_is_replaced_and_copies_go_on(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("killed")
    produce(cluster, topic, range(3))
    cluster.kill(FIRST)
    produce(cluster, topic, range(3, 5))
    cluster.restart(FIRST)
    cluster.wait_for_full_isr(topic)
    cluster.wait_for_offsets(topic, 0, 4, 3, 5)
    assert_readable(cluster, topic, range(5))


def test_tiering_ends_and_topics_are_deleted_with_what_is_remote(cluster: TieredCluster) -> None:
    ended, deleted = (cluster.tiered_topic(name) for name in ("ended", "deleted"))
    for topic in (ended, deleted):
        produce(cluster, topic, range(3))
        cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.alter(ended, remote_storage_enable="false", remote_log_delete_on_disable="true", local_retention_bytes=None)
    cluster.wait_for_tiers(ended, remote=[])
    cluster.wait_for_offsets(ended, 2, 2, -1, 3)
    cluster.delete_topic(deleted)
    cluster.wait_for_tiers(deleted, remote=[])
