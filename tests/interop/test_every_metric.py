"""Every metric is moved: by something small against one running broker, or by a unit test named here."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from broker.metrics.reference import all_metrics
from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.node_ids import missing_tests
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

from . import api_questions, controller_questions
from .api_questions import NOW, SECOND, Cluster, batch, errors_of

pytestmark = pytest.mark.interop

SESSION_MS = 10_000  # the real broker must keep it on a busy machine, too
OVERRIDES = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": str(SESSION_MS),
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "200",
    "log.retention.ms": "-1",  # records are dated NOW: those of one test must not go while another one counts
    "max.connections.per.ip": "20",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}

OFFSET_METRICS = "kafka_server_group_coordinator_metrics"
GROUPS = "kafka_coordinator_group_groupmetadatamanager"
TOPIC = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"
PARTITION = "kafka_cluster_partition"
CONTROLLER = "kafka_controller_kafkacontroller"
PURGATORY = "kafka_server_delayedoperationpurgatory"
METADATA = "kafka_server_broker_metadata_metrics"
RAFT = "kafka_server_raft_metrics"
SESSIONS = "kafka_server_fetchsessioncache"
READERS = "org_apache_kafka_storage_internals_log_remotestoragethreadpool"

# What one healthy node does not show from outside, and the test that moves it at its owner.
_FOLLOWING = "tests/unit/metrics/test_fetcher_metrics.py::test_what_following_moves"
_QUOTAS = "tests/scenarios/test_client_quotas.py::{}"
_OBJECT_STORE = "tests/unit/metrics/test_object_store_metrics.py::test_a_request_moves_them_all"
_WAL = "tests/unit/metrics/test_remote_wal_metrics.py::{}"
_WAL_COUNTS = _WAL.format("test_every_count_of_a_topic_is_a_metric")
_WAL_OWNERS = _WAL.format("test_every_other_value_is_read_from_its_owner")
_WAL_TIMES = _WAL.format("test_hops_sizes_and_slices_are_histograms")
_TIERING = "tests/unit/metrics/test_remote_log_metrics.py::{}"
_TIERING_THROTTLES = _TIERING.format("test_54_throttling_and_rates")
_TIERING_TASKS = _TIERING.format("test_54_tasks_and_readers")
_TIERING_EXPIRED = _TIERING.format("test_54_requests_that_waited_in_vain")
_REMOTE_STORAGE = "tests/unit/metrics/test_remote_storage_metrics.py::test_every_value_is_read_from_its_owner"
_PATHS = "tests/unit/metrics/test_replication_path_metrics.py::{}"
_TIERED_TOPICS = "tests/unit/metrics/test_tiered_topics_metrics.py::test_topics_are_counted_where_they_are_looked_at"
_DISK = "tests/unit/metrics/test_disk_metrics.py::test_the_volume_is_asked_at_each_scrape"
_COSTS = "tests/unit/metrics/test_cost_metrics.py::test_every_value_is_read_from_the_meter"
_CLEANER = "tests/unit/metrics/test_log_metrics.py::test_what_the_cleaner_sees_and_does"
MOVED_BY_UNIT_TEST = {
    "broker_log_cleaner_failures_total": _CLEANER,
    "kafka_log_logcleanermanager_uncleanable_partitions_count": _CLEANER,
    "kafka_log_logcleanermanager_uncleanable_bytes": _CLEANER,
    "kafka_log_logcleaner_max_compaction_delay_secs": _CLEANER,
    "broker_disk_free_bytes": _DISK,
    "broker_disk_size_bytes": _DISK,
    "broker_tiering_topics_not_tiered": _TIERED_TOPICS,
    "broker_tiering_metadata_retention_violations": _TIERED_TOPICS,
    "broker_objectstore_requests_total": _OBJECT_STORE,
    "broker_objectstore_bytes_total": _OBJECT_STORE,
    "broker_objectstore_request_seconds": _OBJECT_STORE,
    **dict.fromkeys(
        (
            f"{TOPIC}_remotewal{count}_total"
            for count in (
                "copybytes",
                "copyrequests",
                "copyerrors",
                "fetchbytes",
                "fetchrequests",
                "fetcherrors",
                "deleterequests",
                "deleteerrors",
                "stalemetadata",
                "fencedmetadata",
                "corrupt",
                "fallbackbytes",
                "republishbytes",
            )
        ),
        _WAL_COUNTS,
    ),
    "broker_wal_hop_seconds": _WAL_TIMES,
    "broker_wal_object_size_bytes": _WAL_TIMES,
    "broker_wal_slices_per_object": _WAL_TIMES,
    f"{TOPIC}_remotewalfallbackpartitions": _WAL_OWNERS,
    f"{TOPIC}_remotewalcopylagbytes": _WAL_OWNERS,
    f"{TOPIC}_remotewalcopylagms": _WAL_OWNERS,
    "broker_wal_inflight_uploads": _WAL_OWNERS,
    "broker_wal_combine_interval_seconds": _WAL_OWNERS,
    "broker_wal_combine_linger_seconds": _WAL_OWNERS,
    "broker_wal_bucket_circuit_open": _WAL_OWNERS,
    "broker_wal_objects_live": _WAL_OWNERS,
    "broker_wal_objects_live_bytes": _WAL_OWNERS,
    "broker_wal_orphan_objects_deleted_total": _WAL_OWNERS,
    "broker_wal_metadata_consumer_lag_records": _WAL_OWNERS,
    "broker_wal_metadata_failures_total": _WAL_OWNERS,
    "broker_wal_metadata_retention_violations": _WAL_OWNERS,
    **dict.fromkeys(
        (
            f"{TOPIC}_{count}_total"
            for count in (
                "remotefetchbytes",
                "remotefetchrequests",
                "remotefetcherrors",
                "remotecopybytes",
                "remotecopyrequests",
                "remotecopyerrors",
                "remotedeleterequests",
                "remotedeleteerrors",
                "buildremotelogauxstaterequests",
                "buildremotelogauxstateerrors",
            )
        ),
        _TIERING.format("test_54_every_count_of_a_topic_is_a_metric_until_the_topic_is_gone"),
    ),
    **dict.fromkeys(
        (
            f"{TOPIC}_{gauge}"
            for gauge in (
                "remotecopylagbytes",
                "remotecopylagsegments",
                "remotedeletelagbytes",
                "remotedeletelagsegments",
                "remotelogmetadatacount",
                "remotelogsizebytes",
                "remotelogsizecomputationtime",
            )
        ),
        _TIERING.format("test_54_gauges_of_partitions_add_up_and_vanish_when_nothing_is_led"),
    ),
    "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent": _TIERING_TASKS,
    f"{READERS}_remotelogreadertaskqueuesize": _TIERING_TASKS,
    f"{READERS}_remotelogreaderavgidlepercent": _TIERING_TASKS,
    "broker_remote_log_read_seconds": _TIERING_TASKS,
    "broker_remote_log_throttle_seconds": _TIERING_THROTTLES,
    "broker_remote_log_throttle_longest_seconds": _TIERING_THROTTLES,
    "kafka_server_rlmcopy_byte_rate": _TIERING_THROTTLES,
    "kafka_server_rlmfetch_byte_rate": _TIERING_THROTTLES,
    "kafka_server_delayedremotefetchmetrics_expires_total": _TIERING_EXPIRED,
    "kafka_server_delayedremotelistoffsetsmetrics_expires_total": _TIERING_EXPIRED,
    "broker_remote_index_cache_bytes": _REMOTE_STORAGE,
    "broker_remote_index_cache_memory_bytes": _REMOTE_STORAGE,
    "broker_remote_index_cache_downloads_total": _REMOTE_STORAGE,
    "broker_remote_index_cache_corruptions_total": _REMOTE_STORAGE,
    "broker_remote_log_chunk_cache_bytes": _REMOTE_STORAGE,
    "broker_remote_log_chunk_fetches_total": _REMOTE_STORAGE,
    "broker_remote_log_metadata_consumer_lag_records": _REMOTE_STORAGE,
    "broker_remote_log_metadata_failures_total": _REMOTE_STORAGE,
    "broker_remote_partitions_being_removed": _REMOTE_STORAGE,
    "broker_remote_log_leaked_topics": _REMOTE_STORAGE,
    "broker_remote_log_leaked_partitions_deleted_total": _REMOTE_STORAGE,
    "broker_remote_log_sweep_errors_total": _REMOTE_STORAGE,
    "broker_replication_bytes_total": _PATHS.format("test_bytes_are_told_by_path_and_zones"),
    "broker_replication_lag_records": _PATHS.format("test_lags_are_those_of_the_follower_furthest_behind"),
    "kafka_server_brokertopicmetrics_remotewalfollowerlagbytes": _PATHS.format(
        "test_followers_of_buckets_are_also_told_of_by_topic_alone"
    ),
    "broker_replication_lag_bytes": _PATHS.format("test_lags_are_those_of_the_follower_furthest_behind"),
    "broker_replication_lag_seconds": _PATHS.format("test_lags_are_those_of_the_follower_furthest_behind"),
    "broker_cost_dollars_total": _COSTS,
    "broker_cost_saved_dollars_total": _COSTS,
    "broker_cost_break_even_bytes_per_second": _COSTS,
    "broker_cost_monthly_saving_dollars": _COSTS,
    "broker_objectstore_circuit_opened_total": (
        "tests/unit/objectstore/test_object_store_url.py::test_every_attempt_is_counted_and_the_circuit_sees_it"
    ),
    "broker_objectstore_queue_full_total": (
        "tests/unit/objectstore/test_bounded.py::test_beyond_the_queue_the_answer_is_throttled_at_once"
    ),
    "kafka_server_replicafetchermanager_maxlag": _FOLLOWING,
    "kafka_server_replicafetchermanager_minfetchrate": _FOLLOWING,
    "kafka_server_replicafetchermanager_failedpartitionscount": _FOLLOWING,
    "kafka_server_fetcherlagmetrics_consumerlag": _FOLLOWING,
    "kafka_server_fetcherstats_requests_total": _FOLLOWING,
    "kafka_server_fetcherstats_bytes_total": _FOLLOWING,
    "kafka_server_followerreplication_byte_rate": _FOLLOWING,
    f"{TOPIC}_replicationbytesin_total": _FOLLOWING,
    "broker_event_loop_lag_seconds": (
        "tests/unit/metrics/test_event_loop_metrics.py::test_what_holds_the_loop_is_measured"
    ),
    "broker_event_loop_lag_longest_seconds": (
        "tests/unit/metrics/test_event_loop_metrics.py::test_what_holds_the_loop_is_measured"
    ),
    "broker_metrics_dropped_series_total": (
        "tests/unit/metrics/test_registry.py::test_series_beyond_the_bound_are_dropped_and_counted"
    ),
    "broker_heartbeat_failures_total": (
        "tests/unit/server/test_broker_lifecycle_manager.py::test_other_errors_are_repeated_with_back_off"
    ),
    "broker_metadata_lag_records": (
        "tests/unit/server/test_metadata_observer.py::test_the_first_publication_waits_until_nothing_is_missing"
    ),
    f"{METADATA}_metadata_load_error_total": (
        "tests/unit/server/test_metadata_observer.py::test_an_unknown_record_stops_the_following_loudly"
    ),
    f"{METADATA}_metadata_apply_error_total": (
        "tests/unit/server/test_metadata_publisher.py::test_one_that_fails_keeps_nobody_else_from_hearing"
    ),
    "kafka_server_forwardingmanager_queuelength": (
        "tests/unit/server/test_node_to_controller_channel.py::test_what_waits_for_the_controller_is_counted"
    ),
    "broker_controller_storage_failures_total": (
        "tests/unit/controller/test_controller.py::test_a_refused_write_answers_an_error_changes_nothing_and_the_next_one_works"
    ),
    f"{OFFSET_METRICS}_offset_expiration_total": (
        "tests/unit/coordinator/group/test_group_coordinator_shard.py::test_expired_offsets_are_counted"
    ),
    "broker_log_storage_failures_total": (
        "tests/unit/log/test_leader_append.py::test_a_full_disk_refuses_the_batches_and_the_log_lives_on"
    ),
    "kafka_log_logmanager_remaininglogstorecover": (
        "tests/unit/log/test_log_manager.py::test_logs_still_to_load_are_counted_down"
    ),
    f"{TOPIC}_failedfetchrequests_total": (
        "tests/unit/replication/test_fetch_reader.py::test_a_failure_that_is_the_brokers_own_is_counted"
    ),
    f"{REPLICAS}_offlinereplicacount": (
        "tests/unit/metrics/test_replication_metrics.py::test_partitions_and_their_isr"
    ),
    "broker_isr_changes_waiting": (
        "tests/unit/metrics/test_broker_metrics.py::test_every_value_is_read_from_its_owner"
    ),
    "kafka_server_assignmentsmanager_queuedreplicatodirassignments": (
        "tests/unit/metrics/test_broker_metrics.py::test_every_value_is_read_from_its_owner"
    ),
    "kafka_server_leaderreplication_byte_rate": (
        "tests/unit/metrics/test_replication_metrics.py::test_what_throttled_replicas_are_sent"
    ),
    f"{REPLICAS}_isrexpands_total": "tests/unit/metrics/test_replication_metrics.py::test_changes_of_the_isr",
    f"{REPLICAS}_isrshrinks_total": "tests/unit/metrics/test_replication_metrics.py::test_changes_of_the_isr",
    f"{REPLICAS}_failedisrupdates_total": ("tests/unit/metrics/test_replication_metrics.py::test_changes_of_the_isr"),
    f"{PARTITION}_laststableoffsetlag": (
        "tests/unit/metrics/test_replication_metrics.py::"
        "test_an_open_transaction_shows_in_the_lag_of_the_last_stable_offset"
    ),
    f"{SESSIONS}_incrementalfetchsessionevictions_total": (
        "tests/unit/replication/test_fetch_session_cache.py::test_a_follower_takes_the_place_of_a_consumer"
    ),
    "broker_unsent_response_bytes": (
        "tests/unit/server/test_connection.py::test_what_a_reader_does_not_take_is_counted_until_it_does_or_has_gone"
    ),
    "broker_throttled_connections": _QUOTAS.format("test_the_delay_is_exact_and_ends_on_time"),
    "broker_client_quota_throttles_total": _QUOTAS.format("test_a_producer_at_ten_times_its_quota_is_slowed_to_it"),
    "broker_client_quota_throttle_seconds_total": _QUOTAS.format("test_the_delay_is_exact_and_ends_on_time"),
    "broker_client_quota_recorded_total": _QUOTAS.format("test_a_producer_at_ten_times_its_quota_is_slowed_to_it"),
    "broker_client_quota_entities": _QUOTAS.format("test_the_delay_is_exact_and_ends_on_time"),
    "broker_client_quota_exempt_seconds_total": _QUOTAS.format("test_followers_are_exempt"),
    "broker_request_handler_failures_total": (
        "tests/unit/server/test_dispatcher.py::test_a_defect_is_an_unknown_server_error_with_a_traceback"
    ),
}

MOVED_HERE: set[str] = set()

Test = Callable[..., None]


def moves(*names: str) -> Callable[[Test], Test]:
    """The metrics a test below must read, and does: `Watch` sees to it."""

    def decorate(test: Test) -> Test:
        test.moves = names  # type: ignore[attr-defined]
        MOVED_HERE.update(names)
        return test

    return decorate


class Scrape:
    """All samples of one moment."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in text.splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match is not None:
                labels = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                self._samples.setdefault(match[1], []).append((labels, float(match[3])))

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels; of a histogram the number of observations."""
        rows = self._samples.get(name) or self._samples.get(f"{name}_count", [])
        return sum(value for have, value in rows if have.items() >= labels.items())


@dataclass
class Watch:
    """Before and after; `before` is the moment of the last `mark`."""

    broker: BrokerProcess
    read: set[str] = field(default_factory=set)
    before: Scrape = field(default_factory=lambda: Scrape(""))

    def mark(self) -> None:
        self.before = self.scrape()

    def scrape(self) -> Scrape:
        return Scrape(self.broker.metrics())

    def value(self, name: str, **labels: str) -> float:
        self.read.add(name)
        return self.scrape().value(name, **labels)

    def moved(self, name: str, **labels: str) -> float:
        """By how much since the mark."""
        return self.value(name, **labels) - self.before.value(name, **labels)

    def becomes(
        self, name: str, expected: float, *, while_: Callable[[], object] = lambda: None, **labels: str
    ) -> None:
        """In the end; `while_` is done between the looks."""

        def is_so() -> bool:
            if self.value(name, **labels) == expected:
                return True
            while_()
            return False

        until(is_so, f"{name}{labels} is {expected}", lambda: self.value(name, **labels))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that is quick to notice what its peers and its logs do."""
    with BrokerProcess(tmp_path_factory.mktemp("metrics"), OVERRIDES) as process:
        yield process
        assert process.is_running(), f"the broker died:\n{process.log_tail()}"


@pytest.fixture
def cluster(busy: BrokerProcess) -> Iterator[Cluster]:
    with WireClient(busy.port) as client:
        yield Cluster(busy, client)


@pytest.fixture
def watch(request: pytest.FixtureRequest, busy: BrokerProcess) -> Iterator[Watch]:
    watch = Watch(busy)
    watch.mark()
    yield watch
    unread = set(request.function.moves) - watch.read
    assert not unread, f"said to be moved, and never read: {unread}"


def test_every_metric_is_moved_by_a_test() -> None:
    defined = {definition.name for _, definitions in all_metrics() for definition in definitions}
    assert defined - MOVED_HERE - MOVED_BY_UNIT_TEST.keys() == set(), "defined, and moved by no test"
    assert (MOVED_HERE | MOVED_BY_UNIT_TEST.keys()) - defined == set(), "moved, and not defined"


def test_the_unit_tests_named_here_exist() -> None:
    assert missing_tests(MOVED_BY_UNIT_TEST.values()) == []


# The cluster


@moves(
    "kafka_server_kafkaserver_brokerstate",
    "broker_fenced",
    f"{CONTROLLER}_activecontrollercount",
    f"{RAFT}_current_epoch",
)
def test_a_broker_that_serves(watch: Watch) -> None:
    """The unit tests of their owners show the other values."""
    assert watch.value("kafka_server_kafkaserver_brokerstate") == 3
    assert watch.value("broker_fenced") == 0
    assert watch.value(f"{CONTROLLER}_activecontrollercount") == 1
    assert watch.value(f"{RAFT}_current_epoch") == 1


@moves(
    "broker_forwarded_requests_total",
    "broker_controller_commands_total",
    "broker_controller_flush_seconds",
    f"{CONTROLLER}_globaltopiccount",
    f"{CONTROLLER}_globalpartitioncount",
    f"{METADATA}_last_applied_record_offset",
    f"{RAFT}_high_watermark",
    f"{RAFT}_log_end_offset",
    f"{REPLICAS}_leadercount",
    f"{REPLICAS}_partitioncount",
    f"{PARTITION}_insyncreplicascount",
    f"{PARTITION}_replicascount",
    f"{PARTITION}_atminisr",
    f"{REPLICAS}_atminisrpartitioncount",
)
def test_a_new_topic(watch: Watch, cluster: Cluster) -> None:
    name, _ = cluster.new_topic(partitions=3)
    assert watch.moved("broker_forwarded_requests_total") == 1
    assert watch.moved("broker_controller_commands_total", command="CreateTopics") == 1
    assert watch.moved("broker_controller_flush_seconds") == 1
    assert watch.moved(f"{CONTROLLER}_globaltopiccount") == 1
    assert watch.moved(f"{CONTROLLER}_globalpartitioncount") == 3
    records = watch.moved(f"{RAFT}_log_end_offset")
    assert records >= 4  # the topic and its partitions
    assert watch.moved(f"{RAFT}_high_watermark") == records
    assert watch.moved(f"{METADATA}_last_applied_record_offset") == records
    assert watch.moved(f"{REPLICAS}_leadercount") == watch.moved(f"{REPLICAS}_partitioncount") == 3
    assert watch.value(f"{PARTITION}_insyncreplicascount", topic=name) == 3
    assert watch.value(f"{PARTITION}_replicascount", topic=name) == 3
    assert watch.value(f"{PARTITION}_atminisr", topic=name, partition="0") == 1  # min.insync.replicas is 1
    assert watch.moved(f"{REPLICAS}_atminisrpartitioncount") == 3


@moves("broker_controller_snapshot_seconds", "broker_controller_snapshot_end_offset")
def test_a_snapshot_of_the_metadata(watch: Watch, cluster: Cluster) -> None:
    for _ in range(8):
        cluster.new_topic(partitions=4)
    until(lambda: watch.moved("broker_controller_snapshot_seconds") >= 1, "a snapshot")
    assert watch.moved("broker_controller_snapshot_end_offset") > 0


@moves(
    "broker_epoch",
    "broker_controller_log_size_bytes",
    "broker_log_recovered_bytes_total",
    "broker_log_recovery_cut_bytes_total",
)
def test_a_second_start(watch: Watch, own_broker: Callable[..., BrokerProcess]) -> None:
    broker = watch.broker = own_broker()
    watch.mark()
    with WireClient(broker.port) as client:
        cluster = Cluster(broker, client)
        topic, _ = cluster.new_topic()
        assert watch.moved("broker_controller_log_size_bytes") > 0
        cluster.produce(topic, batch(b"kept"))
    segment = broker.data / f"{topic}-0" / f"{0:020}.log"
    whole = segment.stat().st_size
    broker.kill()
    with segment.open("ab") as file:
        file.write(batch(b"cut")[:-1])
    broker.start()
    assert watch.value("broker_log_recovered_bytes_total") >= whole
    assert watch.value("broker_log_recovery_cut_bytes_total") == len(batch(b"cut")) - 1
    assert watch.moved("broker_epoch") > 0
    assert watch.value(f"{RAFT}_current_epoch") == 2


# Groups


@moves(
    f"{OFFSET_METRICS}_offset_commit_total",
    f"{OFFSET_METRICS}_offset_deletion_total",
    f"{OFFSET_METRICS}_num_partitions",
    "broker_group_partition_load_seconds",
    "broker_group_lag",
    f"{GROUPS}_numgroups",
    f"{GROUPS}_numoffsets",
    f"{GROUPS}_numgroupsempty",
)
def test_offsets_of_a_group(watch: Watch, cluster: Cluster) -> None:
    topic, _ = cluster.new_topic()
    cluster.produce(topic, batch(b"a", b"b", b"c"))
    find_coordinator(cluster)
    assert watch.value(f"{OFFSET_METRICS}_num_partitions", state="active") == 4  # offsets.topic.num.partitions
    assert watch.value("broker_group_partition_load_seconds") == 4
    group = cluster.fresh("group")
    watch.mark()
    cluster.commit(group, offset=1, topic=topic)
    assert watch.moved(f"{OFFSET_METRICS}_offset_commit_total") == 1
    assert watch.value("broker_group_lag", group=group, topic=topic, partition="0") == 2
    assert watch.moved(f"{GROUPS}_numgroups") == watch.moved(f"{GROUPS}_numgroupsempty") == 1
    assert watch.moved(f"{GROUPS}_numoffsets") == 1
    schema = cluster.client.request(ApiKey.OFFSET_DELETE, 0)
    row = schema.OffsetDeleteRequestTopic(
        name=topic, partitions=(schema.OffsetDeleteRequestPartition(partition_index=0),)
    )
    assert errors_of(cluster.ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=(row,))) == {"none"}
    assert watch.moved(f"{OFFSET_METRICS}_offset_deletion_total") == 1
    assert watch.moved(f"{GROUPS}_numoffsets") == 0


@moves(
    f"{OFFSET_METRICS}_group_completed_rebalance_total",
    f"{GROUPS}_numgroupspreparingrebalance",
    f"{GROUPS}_numgroupscompletingrebalance",
    f"{GROUPS}_numgroupsstable",
)
def test_the_states_of_a_group(watch: Watch, cluster: Cluster) -> None:
    find_coordinator(cluster)
    cluster.new_member(cluster.fresh("completing"))
    assert watch.moved(f"{GROUPS}_numgroupscompletingrebalance") == 1
    stable = cluster.fresh("stable")
    cluster.new_stable_member(stable)
    assert watch.moved(f"{OFFSET_METRICS}_group_completed_rebalance_total") == 1
    assert watch.moved(f"{GROUPS}_numgroupsstable") == 1
    with WireClient(cluster.broker.port) as second:
        second.send(ApiKey.JOIN_GROUP, 3, cluster.join(3, stable))  # waits for the first member to join again
        watch.becomes(f"{GROUPS}_numgroupspreparingrebalance", 1)


def find_coordinator(cluster: Cluster) -> None:
    """Until all of __consumer_offsets is coordinated here."""
    until(lambda: errors_of(cluster.ask(ApiKey.FIND_COORDINATOR, 0, key="any")) == {"none"}, "a coordinator")
    Watch(cluster.broker).becomes(f"{OFFSET_METRICS}_num_partitions", 4, state="active")


# The log


@moves(
    "broker_log_flush_seconds",
    "broker_log_segments_rolled_total",
    "broker_log_segments_deleted_total",
    f"{REPLICAS}_produceridcount",
    "kafka_log_log_size",
    "kafka_log_log_numlogsegments",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
)
def test_what_a_log_does(watch: Watch, cluster: Cluster) -> None:
    topic, _ = cluster.new_topic(configs={"flush.messages": "1", "segment.ms": "1000"})
    here = {"topic": topic, "partition": "0"}
    watch.mark()
    first, second = (
        bytes(api_questions.records_batch((NOW + age, b"key", b"value"), **idempotent))
        for age, idempotent in ((0, {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0}), (5000, {}))
    )
    assert errors_of(cluster.produce(topic, first)) == {"none"}
    assert watch.moved("broker_log_flush_seconds") == 1
    assert watch.moved(f"{REPLICAS}_produceridcount") == 1
    assert watch.value("kafka_log_log_size", **here) == len(first)
    assert watch.value("kafka_log_log_logendoffset", **here) == 1
    assert errors_of(cluster.produce(topic, second)) == {"none"}
    assert watch.moved("broker_log_segments_rolled_total") == 1
    assert watch.value("kafka_log_log_numlogsegments", **here) == 2
    schema = cluster.client.request(ApiKey.DELETE_RECORDS, 2)
    row = schema.DeleteRecordsPartition(partition_index=0, offset=1)
    deleted = schema.DeleteRecordsTopic(name=topic, partitions=(row,))
    assert errors_of(cluster.ask(ApiKey.DELETE_RECORDS, 2, topics=(deleted,), timeout=PATIENCE)) == {"none"}
    assert watch.value("kafka_log_log_logstartoffset", **here) == 1
    watch.becomes("kafka_log_log_numlogsegments", 1, **here)
    assert watch.moved("broker_log_segments_deleted_total") == 1


@moves(
    "broker_log_cleaner_passes_total",
    "broker_log_cleaner_read_bytes_total",
    "broker_log_cleaner_written_bytes_total",
    "kafka_log_logcleanermanager_max_dirty_percent",
    "kafka_log_logcleanermanager_time_since_last_run_ms",
    "kafka_log_logcleaner_cleaner_recopy_percent",
    "kafka_log_logcleaner_max_clean_time_secs",
    "kafka_log_logcleaner_max_buffer_utilization_percent",
)
def test_what_the_cleaner_does(watch: Watch, cluster: Cluster) -> None:
    settings = {"cleanup.policy": "compact", "internal.segment.bytes": "300", "min.cleanable.dirty.ratio": "0.9"}
    topic, _ = cluster.new_topic(configs=settings)
    watch.mark()
    record = bytes(api_questions.records_batch((NOW, b"key", b"v" * 50)))
    for _ in range(3):
        assert errors_of(cluster.produce(topic, record)) == {"none"}
    watch.becomes("broker_log_cleaner_passes_total", watch.before.value("broker_log_cleaner_passes_total") + 1)
    assert watch.moved("broker_log_cleaner_read_bytes_total") == 2 * watch.value(
        "broker_log_cleaner_written_bytes_total"
    )
    assert watch.value("kafka_log_logcleaner_cleaner_recopy_percent") == 50
    assert watch.value("kafka_log_logcleaner_max_clean_time_secs") > 0
    assert watch.value("kafka_log_logcleaner_max_buffer_utilization_percent") > 0
    assert watch.value("kafka_log_logcleanermanager_time_since_last_run_ms") > 0
    assert errors_of(cluster.produce(topic, record)) == {"none"}
    assert errors_of(cluster.produce(topic, record)) == {"none"}
    watch.becomes("kafka_log_logcleanermanager_max_dirty_percent", pytest.approx(200 / 3))


# Produce and fetch


@moves(
    f"{TOPIC}_messagesin_total",
    f"{TOPIC}_bytesin_total",
    f"{TOPIC}_bytesout_total",
    f"{TOPIC}_bytesrejected_total",
    f"{TOPIC}_totalproducerequests_total",
    f"{TOPIC}_totalfetchrequests_total",
    f"{TOPIC}_failedproducerequests_total",
    f"{TOPIC}_nokeycompactedtopicrecords_total",
    f"{TOPIC}_invalidmessagecrcrecords_total",
    f"{TOPIC}_invalidoffsetorsequencerecords_total",
)
def test_what_producers_and_consumers_do(watch: Watch, cluster: Cluster) -> None:
    topic, identity = cluster.new_topic(configs={"cleanup.policy": "compact", "max.message.bytes": "1000"})
    good, large = batch(b"a", b"b"), batch(b"x" * 1000)
    keyless = bytes(api_questions.records_batch((NOW, None, b"v")))
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    first, gap = (batch(b"i", producer_id=5, producer_epoch=0, base_sequence=number) for number in (0, 7))
    answers = [
        cluster.produce(topic, bytes(records)).error_code.name
        for records in (good, large, keyless, corrupt, first, gap)
    ]
    assert answers == [
        "none",
        "message_too_large",
        "invalid_record",
        "corrupt_message",
        "none",
        "out_of_order_sequence_number",
    ]
    reader = Cluster(cluster.broker, cluster.client, topic, identity)
    for version in (4, 18):
        api_questions_fetch = api_questions.fetch(reader, cluster.client.request(ApiKey.FETCH, version))
        assert errors_of(cluster.client.ask(ApiKey.FETCH, version, api_questions_fetch)) == {"none"}
    size = len(good) + len(first)
    expected = {
        "messagesin": 3,
        "bytesin": size,
        "bytesout": 2 * size,
        "bytesrejected": len(large),
        "totalproducerequests": 6,
        "totalfetchrequests": 2,
        "failedproducerequests": 2,  # without size and CRC
        "nokeycompactedtopicrecords": 1,
        "invalidmessagecrcrecords": 1,
        "invalidoffsetorsequencerecords": 1,
    }
    assert {name: watch.value(f"{TOPIC}_{name}_total", topic=topic) for name in expected} == expected


@moves(
    f"{PURGATORY}_numdelayedoperations",
    f"{PURGATORY}_purgatorysize",
    "broker_delayed_operations_expired_total",
    "kafka_server_delayedfetchmetrics_expires_total",
    "broker_requests_in_flight_bytes",
)
def test_a_fetch_that_waits_in_vain(watch: Watch, cluster: Cluster) -> None:
    topic, identity = cluster.new_topic()
    schema = cluster.client.request(ApiKey.FETCH, 18)

    def fetch(offset: int, max_wait: timedelta) -> Any:
        row = schema.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
        return schema.FetchRequest(
            max_wait=max_wait,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            topics=(schema.FetchTopic(topic_id=identity, partitions=(row,)),),
            forgotten_topics_data=(),
            rack_id="r" * 5000,
        )

    fetches = {"delayedOperation": "Fetch"}
    assert watch.value("broker_requests_in_flight_bytes") < 5000  # the broker's own fetches of metadata
    cluster.client.send(ApiKey.FETCH, 18, fetch(0, PATIENCE))
    watch.becomes(f"{PURGATORY}_numdelayedoperations", 1, **fetches)
    assert watch.value(f"{PURGATORY}_purgatorysize", **fetches) == 1
    assert watch.value("broker_requests_in_flight_bytes") > 5000
    with WireClient(cluster.broker.port) as producer:
        assert errors_of(Cluster(cluster.broker, producer).produce(topic, batch(b"waited for"))) == {"none"}
    cluster.client.receive(ApiKey.FETCH, 18)
    assert watch.value(f"{PURGATORY}_numdelayedoperations", **fetches) == 0
    assert watch.moved("broker_delayed_operations_expired_total", **fetches) == 0
    cluster.client.ask(ApiKey.FETCH, 18, fetch(1, SECOND / 10))
    assert watch.moved("broker_delayed_operations_expired_total", **fetches) == 1
    assert watch.moved("kafka_server_delayedfetchmetrics_expires_total", fetcherType="consumer") == 1
    assert watch.value(f"{PURGATORY}_numdelayedoperations", **fetches) == 0


@moves(f"{SESSIONS}_numincrementalfetchsessions", f"{SESSIONS}_numincrementalfetchpartitionscached")
def test_a_fetch_session(watch: Watch, cluster: Cluster) -> None:
    topic, identity = cluster.new_topic(partitions=2)
    schema = cluster.client.request(ApiKey.FETCH, 13)
    rows = tuple(
        schema.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1000) for partition in (0, 1)
    )
    request = schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        session_epoch=0,
        topics=(schema.FetchTopic(topic=topic, topic_id=identity, partitions=rows),),
        forgotten_topics_data=(),
    )
    assert cluster.client.ask(ApiKey.FETCH, 13, request).session_id != 0
    assert watch.moved(f"{SESSIONS}_numincrementalfetchsessions") == 1
    assert watch.moved(f"{SESSIONS}_numincrementalfetchpartitionscached") == 2


# Requests and connections


@moves(
    "broker_request_seconds",
    "kafka_network_requestmetrics_requests_total",
    "kafka_network_requestmetrics_errors_total",
    "broker_frames_received_total",
)
def test_requests_and_their_errors(watch: Watch, cluster: Cluster) -> None:
    for version in (1, 2):
        schema = cluster.client.request(ApiKey.DESCRIBE_ACLS, version)
        request = api_questions.describe_acls(cluster, schema)
        assert errors_of(cluster.client.ask(ApiKey.DESCRIBE_ACLS, version, request)) == {"security_disabled"}
    acls = {"request": "DescribeAcls"}
    assert watch.moved("kafka_network_requestmetrics_requests_total", version="1", **acls) == 1
    assert watch.moved("kafka_network_requestmetrics_requests_total", version="2", **acls) == 1
    assert watch.moved("kafka_network_requestmetrics_errors_total", error="SECURITY_DISABLED", **acls) == 2
    for phase in ("queue", "local", "remote", "response", "total"):
        assert watch.moved("broker_request_seconds", phase=phase, **acls) == 2
    assert watch.moved("broker_frames_received_total", listener="PLAINTEXT") == 2


@moves(
    "broker_connections_opened_total",
    "broker_connections_refused_total",
    "broker_connections_closed_total",
    "kafka_server_socketservermetrics_connectioncount",
)
def test_connections(watch: Watch) -> None:
    here = {"listener": "PLAINTEXT"}
    count = "kafka_server_socketservermetrics_connectioncount"
    watch.becomes(count, 0, **here)  # those of the tests before
    watch.mark()
    with contextlib.ExitStack() as stack:

        def connect(number: int) -> list[WireClient]:
            return [stack.enter_context(WireClient(watch.broker.port)) for _ in range(number)]

        client, *_ = connect(3)
        watch.becomes(count, 3, **here)
        assert watch.moved("broker_connections_opened_total", **here) == 3
        client.send_bytes(b"\xff\xff\xff\xff")
        assert client.is_closed()
        assert watch.moved("broker_connections_closed_total", reason="malformed") == 1
        connect(20)
        refused = {"reason": "max.connections.per.ip", **here}
        watch.becomes("broker_connections_refused_total", 2, **refused)
        assert watch.value(count, **here) == 20
    watch.becomes(count, 0, **here)


# A second broker, as far as the controller and the leaders can tell


class Peer:
    """Broker 2: it registers, says that it lives, and fetches; all of it only when told to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.controller = WireClient(cluster.broker.controller_port)
        properties = (cluster.broker.data / "meta.properties").read_text()
        cluster.cluster_id = re.search(r"cluster\.id=(.*)", properties)[1]  # type: ignore[index]
        request = controller_questions.registration(cluster, self.controller.request(ApiKey.BROKER_REGISTRATION, 4), 2)
        answer = self.controller.ask(ApiKey.BROKER_REGISTRATION, 4, request)
        assert errors_of(answer) == {"none"}, answer
        self.epoch = answer.broker_epoch

    def beat(self) -> Any:
        schema = self.controller.request(ApiKey.BROKER_HEARTBEAT, 1)
        request = schema.BrokerHeartbeatRequest(
            broker_id=2,
            broker_epoch=self.epoch,
            current_metadata_offset=1 << 40,
            want_fence=False,
            want_shut_down=False,
        )
        answer = self.controller.ask(ApiKey.BROKER_HEARTBEAT, 1, request)
        assert errors_of(answer) == {"none"}, answer
        return answer

    def fetch(self, identity: Any, offset: int) -> Any:
        """As a follower whose log ends at `offset`."""
        self.beat()
        schema = self.cluster.client.request(ApiKey.FETCH, 15)
        row = schema.FetchPartition(
            partition=0, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1000, current_leader_epoch=-1
        )
        request = schema.FetchRequest(
            replica_state=schema.ReplicaState(replica_id=2, replica_epoch=self.epoch),
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=1000,
            isolation_level=0,
            topics=(schema.FetchTopic(topic_id=identity, partitions=(row,)),),
            forgotten_topics_data=(),
        )
        answer = self.cluster.client.ask(ApiKey.FETCH, 15, request)
        assert errors_of(answer) == {"none"}, answer
        return answer

    def place(self, *replicas: int, configs: dict[str, str] | None = None) -> tuple[str, Any]:
        """A topic of one partition with these replicas."""
        name = self.cluster.fresh("placed")
        schema = self.cluster.client.request(ApiKey.CREATE_TOPICS, 7)
        topic = schema.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(schema.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas),),
            configs=tuple(schema.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
        )
        (row,) = self.cluster.ask(ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=PATIENCE).topics
        assert row.error_code.name == "none", row
        return name, row.topic_id


@moves(
    f"{CONTROLLER}_activebrokercount",
    f"{CONTROLLER}_fencedbrokercount",
    f"{CONTROLLER}_offlinepartitionscount",
    f"{CONTROLLER}_preferredreplicaimbalancecount",
    f"{CONTROLLER}_timedoutbrokerheartbeatcount_total",
    f"{REPLICAS}_underreplicatedpartitions",
    f"{REPLICAS}_underminisrpartitioncount",
    f"{REPLICAS}_reassigningpartitions",
    f"{PARTITION}_underreplicated",
    f"{PARTITION}_underminisr",
    f"{TOPIC}_replicationbytesout_total",
)
def test_a_peer_that_comes_and_goes(watch: Watch, cluster: Cluster) -> None:
    find_coordinator(cluster)  # or __consumer_offsets could be placed on the peer
    watch.mark()
    peer = Peer(cluster)
    assert watch.moved(f"{CONTROLLER}_fencedbrokercount") == 1

    topic, identity = peer.place(1, 2, configs={"min.insync.replicas": "2"})  # only 1 may be in sync yet
    here = {"topic": topic, "partition": "0"}
    cluster.wait_for_leaders(topic)
    assert watch.value(f"{PARTITION}_underreplicated", **here) == 1
    assert watch.value(f"{PARTITION}_underminisr", **here) == 1
    assert watch.moved(f"{REPLICAS}_underreplicatedpartitions") == 1
    assert watch.moved(f"{REPLICAS}_underminisrpartitioncount") == 1

    watch.becomes(f"{CONTROLLER}_activebrokercount", 2, while_=peer.beat)
    assert watch.moved(f"{CONTROLLER}_fencedbrokercount") == 0
    records = batch(b"copied")
    assert errors_of(cluster.produce(topic, records, acks=1)) == {"none"}
    peer.fetch(identity, 0)
    assert watch.value(f"{TOPIC}_replicationbytesout_total", topic=topic) == len(records)

    moving, _ = peer.place(1)
    schema = cluster.client.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    row = schema.ReassignablePartition(partition_index=0, replicas=(2,))
    target = schema.ReassignableTopic(name=moving, partitions=(row,))
    answer = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=(target,), timeout=PATIENCE)
    assert errors_of(answer) == {"none"}, answer
    watch.becomes(f"{REPLICAS}_reassigningpartitions", 1, while_=peer.beat)

    peer.beat()
    peer.place(2)  # which nobody else has
    peer.place(2, 1)  # of which it is the preferred leader, as it is of the one that moves
    watch.becomes(f"{CONTROLLER}_timedoutbrokerheartbeatcount_total", 1)
    assert watch.value(f"{CONTROLLER}_activebrokercount") == 1
    assert watch.value(f"{CONTROLLER}_offlinepartitionscount") == 1
    assert watch.value(f"{CONTROLLER}_preferredreplicaimbalancecount") == 2
