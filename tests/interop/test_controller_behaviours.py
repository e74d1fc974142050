"""What brokers may rely on from the controllers: the same questions on the wire to ours and to Apache Kafka's.

The numbers in the names are those of the behaviours of a KRaft controller that our brokers were written against
(KIP-631, KIP-841, KIP-858, KIP-903, KIP-919; Kafka's ReplicationControlManager and ClusterControlManager).
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response, encode_request
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from broker.schemas.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from broker.server.forwarding_manager import serialize_principal
from broker.server.supported_features import SUPPORTED_FEATURES
from tests.support.apache_controllers import ApacheControllers
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_process import NodeOfCluster
from tests.support.patience import PATIENCE, PATIENCE_S, until
from tests.support.quorum_client import METADATA_TOPIC, QuorumClient, snapshot_records
from tests.support.scripted_broker import UNKNOWN_EPOCH, ScriptedBroker, create_topic

from .apache_versions import APACHE_VERSIONS, need

pytestmark = pytest.mark.interop

SESSION_S = 6.0  # where silence is to have consequences; those who are to live have to be heard meanwhile
CONTROLLER_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
KINDS = ["ours", *(pytest.param(each, marks=pytest.mark.java) for each in APACHE_VERSIONS)]
_numbers = itertools.count(1)


class Quorum:
    """Controllers of one kind, and how they are asked."""

    def __init__(self, kind: str, controllers: BrokerProcess | ApacheControllers) -> None:
        self.kind, self._controllers = kind, controllers
        if isinstance(controllers, ApacheControllers):
            self.ports, self.cluster_id = list(controllers.ports.values()), controllers.cluster_id
        else:
            meta = (controllers.data / "meta.properties").read_text()
            self.ports = [controllers.controller_port]
            self.cluster_id = meta.split("cluster.id=")[1].split()[0]
        self.node_id = 3001

    def client(self) -> QuorumClient:
        return QuorumClient(self.ports, self.cluster_id)

    def restart(self) -> None:
        """kill -9 of the only controller, and start it again."""
        if isinstance(self._controllers, ApacheControllers):
            self._controllers.kill(self.node_id)
            self._controllers.start_node(self.node_id)
            self._controllers.wait_for_leader()
        else:
            self._controllers.kill()
            self._controllers.start()


@contextlib.contextmanager
def started(kind: str, session_s: float, directory: Path) -> Iterator[Quorum]:
    """One controller that fences who is silent for so long."""
    settings = {**CONTROLLER_SETTINGS, "broker.session.timeout.ms": str(int(session_s * 1000))}
    if kind == "ours":
        with NodeOfCluster(directory, 3001, ["controller"], settings, None) as node:
            yield Quorum(kind, node)
        return
    need(kind)
    with ApacheControllers(directory, kind, voters=1, settings=settings) as controllers:
        yield Quorum(kind, controllers)
        assert controllers.complaints() == []


@pytest.fixture(scope="module", params=KINDS)
def quorum(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """No session ends, however long a test takes."""
    kind = str(request.param)
    with started(kind, 10 * PATIENCE_S, tmp_path_factory.mktemp(f"quorum-{kind}")) as quorum:
        yield quorum


@pytest.fixture(scope="module", params=KINDS)
def strict_quorum(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """Sessions end while a test waits for it."""
    kind = str(request.param)
    with started(kind, SESSION_S, tmp_path_factory.mktemp(f"strict-quorum-{kind}")) as quorum:
        yield quorum


@contextlib.contextmanager
def connected(quorum: Quorum) -> Iterator[QuorumClient]:
    """A client with an image of its own; the brokers of the test are unregistered after it."""
    client = quorum.client()
    before = set(client.image().brokers)
    yield client
    for broker_id in set(client.image().brokers) - before:
        client.send(ApiKey.UNREGISTER_BROKER, 0, "UnregisterBrokerRequest", broker_id=broker_id)
    client.close()


@pytest.fixture
def client(quorum: Quorum) -> Iterator[QuorumClient]:
    with connected(quorum) as client:
        yield client


@pytest.fixture
def strict(strict_quorum: Quorum) -> Iterator[QuorumClient]:
    with connected(strict_quorum) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def brokers(client: QuorumClient, count: int) -> list[ScriptedBroker]:
    return [ScriptedBroker(client).unfenced() for _ in range(count)]


def created(client: QuorumClient, topic: str, *assignments: list[ScriptedBroker]) -> None:
    assert create_topic(client, topic, *assignments).error_code == ErrorCode.none


def eventually(is_so: Callable[[], bool], what: str, *alive: ScriptedBroker) -> None:
    """Until it is so; meanwhile these brokers stay alive."""

    def is_so_with_heartbeats() -> bool:
        if is_so():
            return True
        for each in alive:
            each.heartbeat()
        return False

    until(is_so_with_heartbeats, what)


# -- Finding the leader, and the log ------------------------------------------------------------------------------


def test_06_a_fetch_without_an_epoch_is_told_the_leader_and_where_it_is(quorum: Quorum) -> None:
    client = quorum.client()
    answer = client.fetch(current_leader_epoch=0)
    partition = answer.responses[0].partitions[0]
    assert partition.error_code == ErrorCode.fenced_leader_epoch
    assert partition.current_leader.leader_id == quorum.node_id
    assert [(node.node_id, node.host, node.port) for node in answer.node_endpoints] == [
        (quorum.node_id, "127.0.0.1", quorum.ports[0])
    ]
    epoch = int(partition.current_leader.leader_epoch)
    future = client.fetch(current_leader_epoch=epoch + 1).responses[0].partitions[0]
    assert future.error_code == ErrorCode.unknown_leader_epoch
    partition = client.fetch(current_leader_epoch=epoch).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.none
    assert partition.records or partition.snapshot_id.end_offset > 0
    client.close()


def test_07_another_cluster_is_refused(quorum: Quorum) -> None:
    client = quorum.client()
    assert client.fetch(cluster_id="MkU3OEVBNTcwNTJENDM2Qk").error_code == ErrorCode.inconsistent_cluster_id
    client.close()


def test_11_who_begins_below_the_log_takes_the_snapshot_in_pieces(
    quorum: Quorum, client: QuorumClient, topic: str
) -> None:
    one = ScriptedBroker(client).unfenced()
    fresh = QuorumClient(client.ports, client.cluster_id)
    fresh.leader_epoch = client.leader_epoch
    numbers = itertools.count()

    def has_snapshot() -> bool:
        create_topic(client, f"{topic}-{next(numbers)}", *([[one]] * 20))
        return bool(fresh.fetch().responses[0].partitions[0].snapshot_id.end_offset > 0)

    eventually(has_snapshot, "a snapshot", one)
    snapshot_id = fresh.fetch().responses[0].partitions[0].snapshot_id
    at = int(snapshot_id.end_offset), int(snapshot_id.epoch)
    content, pieces = b"", 0
    while True:
        piece = fresh.fetch_snapshot(*at, len(content), max_bytes=997)
        assert piece.error_code == ErrorCode.none
        assert piece.position == len(content)
        content += bytes(piece.unaligned_records)
        pieces += 1
        if len(content) >= piece.size:
            break
    assert len(content) == piece.size
    assert pieces == -(-piece.size // 997)
    assert next(iter(batches(content))).is_control
    assert snapshot_records(content)
    resumed = fresh.fetch(fetch_offset=at[0], last_fetched_epoch=at[1]).responses[0].partitions[0]
    assert (resumed.error_code, resumed.snapshot_id.end_offset) == (ErrorCode.none, -1)
    if quorum.kind == "ours":  # Apache's cannot encode these two errors, and answers UNKNOWN_SERVER_ERROR without a row
        assert fresh.fetch_snapshot(at[0] + 100_000, at[1], 0, 1000).error_code == ErrorCode.snapshot_not_found
        assert fresh.fetch_snapshot(*at, piece.size + 1, 1000).error_code == ErrorCode.position_out_of_range
    fresh.close()


# -- Registration -------------------------------------------------------------------------------------------------


def test_15_directories_must_be_there_once_and_ones_own(client: QuorumClient) -> None:
    owner = ScriptedBroker(client).unfenced()
    own = UUID(int=0x5EED << 80 | 1)
    for directories in ([], [own, own], [UUID(int=5)], [owner.directories[0]]):
        assert ScriptedBroker(client, directories=directories).register() == ErrorCode.invalid_registration, directories


def test_16_each_finalized_feature_must_be_known(quorum: Quorum, client: QuorumClient) -> None:
    level = client.image().features.metadata_version
    refused = ErrorCode.unsupported_version
    assert ScriptedBroker(client, features={"kraft.version": (0, 1)}).register() == ErrorCode.invalid_registration
    older = {"kraft.version": (0, 1), "metadata.version": (7, level - 1)}
    assert ScriptedBroker(client, features=older).register() == refused
    newer = {"kraft.version": (0, 1), "metadata.version": (level, level + 50)}
    assert ScriptedBroker(client, features=newer).register() == ErrorCode.none
    if quorum.kind != "ours":  # a dynamic quorum has finalized kraft.version=1
        assert ScriptedBroker(client, features={"metadata.version": (7, level)}).register() == refused


def test_17_the_twin_of_a_living_broker_is_refused_and_the_broker_undisturbed(client: QuorumClient) -> None:
    one = ScriptedBroker(client).unfenced()
    epoch = one.epoch
    assert one.restarted().register() == ErrorCode.duplicate_broker_registration
    answer = one.heartbeat()
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.none, False)
    assert client.image().brokers[one.id].epoch == epoch


def test_18_after_a_crash_the_next_process_waits_for_the_session_to_end(strict: QuorumClient) -> None:
    began = time.monotonic()
    crashed = ScriptedBroker(strict).unfenced()
    following = crashed.restarted()
    answers = []

    def is_registered() -> bool:
        answers.append(following.register(previous_epoch=-1))
        return answers[-1] == ErrorCode.none

    eventually(is_registered, "the next process is registered")
    assert set(answers[:-1]) <= {ErrorCode.duplicate_broker_registration}
    assert time.monotonic() - began > SESSION_S / 2
    assert following.epoch > crashed.epoch
    assert crashed.heartbeat().error_code == ErrorCode.stale_broker_epoch
    assert following.heartbeat().error_code == ErrorCode.none


def test_19_after_a_clean_stop_the_next_process_is_let_in(
    strict_quorum: Quorum, strict: QuorumClient, topic: str
) -> None:
    stopped, other = brokers(strict, 2)
    created(strict, topic, [stopped, other])
    while not stopped.heartbeat(want_shut_down=True).should_shut_down:
        other.heartbeat()
    following = stopped.restarted()
    if strict_quorum.kind == "ours":
        assert following.register(previous_epoch=stopped.epoch) == ErrorCode.none
    else:  # Apache's waits for the session of the process that has said good-bye
        assert following.register(previous_epoch=stopped.epoch) == ErrorCode.duplicate_broker_registration
        eventually(lambda: following.register(previous_epoch=stopped.epoch) == ErrorCode.none, "it is let in", other)
    assert following.epoch > stopped.epoch


def test_20_the_same_process_registers_again_and_stays_what_it_is(client: QuorumClient) -> None:
    one = ScriptedBroker(client).unfenced()
    epoch = one.epoch
    assert one.register() == ErrorCode.none
    assert one.epoch == epoch
    assert not one.is_fenced
    assert client.image().brokers[one.id].epoch == epoch


# -- Heartbeats and fencing ---------------------------------------------------------------------------------------


def test_22_who_has_not_caught_up_stays_fenced(client: QuorumClient) -> None:
    one = ScriptedBroker(client)
    assert one.register() == ErrorCode.none
    behind = one.heartbeat(offset=0)
    assert (behind.error_code, behind.is_fenced, behind.is_caught_up) == (ErrorCode.none, True, False)
    assert one.is_fenced
    read = len(client.batches)
    answer = one.heartbeat()
    assert (answer.error_code, answer.is_fenced, answer.is_caught_up) == (ErrorCode.none, False, True)
    assert not one.is_fenced
    changes = [record for _, _, records in client.batches[read:] for record in records]
    unfencing = [each for each in changes if isinstance(each, BrokerRegistrationChangeRecord)]
    assert [(each.broker_id, each.broker_epoch, each.fenced) for each in unfencing] == [(one.id, one.epoch, -1)]


def test_23_a_silent_broker_loses_its_places_with_the_record_that_fences_it(strict: QuorumClient, topic: str) -> None:
    silent, alive = brokers(strict, 2)
    created(strict, topic, [silent, alive])
    assert strict.partition(topic).leader == silent.id
    eventually(lambda: silent.is_fenced, "the silent one is fenced", alive)
    after = strict.partition(topic)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (alive.id, (alive.id,), 1, 1)
    for _, _, records in strict.batches:
        fences = [each for each in records if isinstance(each, BrokerRegistrationChangeRecord) and each.fenced == 1]
        if any(each.broker_id == silent.id for each in fences):
            moves = [each for each in records if isinstance(each, PartitionChangeRecord)]
            assert [(each.leader, tuple(each.isr or ())) for each in moves] == [(alive.id, (alive.id,))]
            break
    else:
        pytest.fail("no record fences the broker")


def test_24_of_two_that_fall_silent_together_neither_leads_in_the_end(strict: QuorumClient, topic: str) -> None:
    one, other, third = brokers(strict, 3)
    created(strict, topic, [one, other, third])
    eventually(lambda: one.is_fenced and other.is_fenced, "two are fenced", third)
    after = strict.partition(topic)
    assert (after.leader, after.isr) == (third.id, (third.id,))


def test_26_who_comes_back_leads_what_has_no_leader_and_nothing_else(strict: QuorumClient, topic: str) -> None:
    one, other = brokers(strict, 2)
    shared = f"{topic}-shared"
    created(strict, topic, [one])
    created(strict, shared, [one, other])
    eventually(lambda: one.is_fenced, "one is fenced", other)
    assert (strict.partition(topic).leader, strict.partition(topic).isr) == (-1, (one.id,))
    assert strict.partition(shared).leader == other.id
    answer = one.heartbeat()
    assert (answer.error_code, answer.is_fenced) == (ErrorCode.none, False)
    assert strict.partition(topic).leader == one.id
    assert strict.partition(shared).leader == other.id


def test_28_a_controlled_shutdown_is_granted_when_the_others_have_heard_of_it(client: QuorumClient, topic: str) -> None:
    leaving, staying = brokers(client, 2)
    created(client, topic, [leaving, staying])
    old = client.image().offset
    staying.heartbeat(offset=old)
    assert not leaving.heartbeat(want_shut_down=True).should_shut_down
    after = client.partition(topic)
    assert (after.leader, after.isr) == (staying.id, (staying.id,))
    registration = client.image().brokers[leaving.id]
    assert (registration.in_controlled_shutdown, registration.fenced) == (True, False)
    staying.heartbeat(offset=old)
    assert not leaving.heartbeat(want_shut_down=True).should_shut_down
    staying.heartbeat()
    assert leaving.heartbeat(want_shut_down=True).should_shut_down
    assert leaving.is_fenced


def test_28_the_only_replica_leaves_its_partition_without_a_leader(client: QuorumClient, topic: str) -> None:
    only, other = brokers(client, 2)
    created(client, topic, [only])
    assert not only.heartbeat(want_shut_down=True).should_shut_down
    other.heartbeat()
    assert only.heartbeat(want_shut_down=True).should_shut_down
    assert (client.partition(topic).leader, client.partition(topic).isr) == (-1, (only.id,))


# -- In-sync replicas ---------------------------------------------------------------------------------------------


def test_30_shrink_and_expand_move_the_partition_epoch_alone(client: QuorumClient, topic: str) -> None:
    leader, follower = brokers(client, 2)
    created(client, topic, [leader, follower])
    shrunk = leader.alter_partition(topic, [leader])
    assert shrunk == (ErrorCode.none, ErrorCode.none, leader.id, 0, (leader.id,), 1)
    again = leader.alter_partition(topic, [leader])
    assert again == shrunk  # nothing to change: no record, no new epoch
    grown = leader.alter_partition(topic, [leader, follower])
    assert grown == (ErrorCode.none, ErrorCode.none, leader.id, 0, (leader.id, follower.id), 2)
    assert client.partition(topic).isr == (leader.id, follower.id)


def test_31_old_epochs_are_refused_and_new_ones_send_the_broker_to_another_controller(
    client: QuorumClient, topic: str
) -> None:
    leader, follower = brokers(client, 2)
    created(client, topic, [leader, follower])
    leader.alter_partition(topic, [leader])
    both = [leader, follower]
    assert leader.alter_partition(topic, both, partition_epoch=0).error == ErrorCode.invalid_update_version
    assert leader.alter_partition(topic, both, partition_epoch=9).error == ErrorCode.not_controller
    assert leader.alter_partition(topic, both, leader_epoch=-1).error == ErrorCode.fenced_leader_epoch
    assert leader.alter_partition(topic, both, leader_epoch=9).error == ErrorCode.not_controller
    assert follower.alter_partition(topic, both).error == ErrorCode.invalid_request
    assert client.partition(topic).isr == (leader.id,)


def test_32_an_old_process_cannot_alter(client: QuorumClient, topic: str) -> None:
    leader, follower = brokers(client, 2)
    created(client, topic, [leader, follower])
    assert (
        leader.alter_partition(topic, [leader], broker_epoch=leader.epoch - 1).top_error == ErrorCode.stale_broker_epoch
    )
    assert client.partition(topic).isr == (leader.id, follower.id)


def test_33_who_is_fenced_or_another_process_does_not_join(strict: QuorumClient, topic: str) -> None:
    leader, follower = brokers(strict, 2)
    created(strict, topic, [leader, follower])
    eventually(lambda: follower.is_fenced, "the follower is fenced", leader)
    assert strict.partition(topic).isr == (leader.id,)
    ineligible = ErrorCode.ineligible_replica
    assert leader.alter_partition(topic, [leader, (follower.id, UNKNOWN_EPOCH)]).error == ineligible
    assert leader.alter_partition(topic, [leader, follower]).error == ineligible
    assert not follower.heartbeat().is_fenced
    assert leader.alter_partition(topic, [leader, (follower.id, follower.epoch - 1)]).error == ineligible
    joined = leader.alter_partition(topic, [leader, (follower.id, UNKNOWN_EPOCH)])
    assert (joined.error, joined.isr) == (ErrorCode.none, (leader.id, follower.id))


def test_34_a_change_that_is_sent_twice_is_made_once(client: QuorumClient, topic: str) -> None:
    leader, follower = brokers(client, 2)
    created(client, topic, [leader, follower])
    asked = {"leader_epoch": 0, "partition_epoch": 0}
    assert leader.alter_partition(topic, [leader], **asked).partition_epoch == 1
    assert leader.alter_partition(topic, [leader], **asked).error == ErrorCode.invalid_update_version
    assert client.partition(topic).partition_epoch == 1


def elect(client: QuorumClient, topic: str, election_type: int) -> ErrorCode:
    schema = RequestSchema.of(ApiKey.ELECT_LEADERS, 2)
    topics = (schema.TopicPartitions(topic=topic, partitions=(0,)),)
    timeout = PATIENCE
    answer = client.send(
        ApiKey.ELECT_LEADERS,
        2,
        "ElectLeadersRequest",
        election_type=election_type,
        topic_partitions=topics,
        timeout=timeout,
    )
    return ErrorCode(answer.replica_election_results[0].partition_result[0].error_code)


PREFERRED, UNCLEAN = 0, 1


def test_35_the_last_in_sync_replica_is_waited_for_unless_an_unclean_election_is_asked_for(
    strict: QuorumClient, topic: str
) -> None:
    last, other = brokers(strict, 2)
    created(strict, topic, [last, other])
    last.alter_partition(topic, [last])
    eventually(lambda: last.is_fenced, "the last one is fenced", other)
    offline = strict.partition(topic)
    assert (offline.leader, offline.isr) == (-1, (last.id,))
    assert elect(strict, topic, PREFERRED) == ErrorCode.preferred_leader_not_available
    assert elect(strict, topic, UNCLEAN) == ErrorCode.none
    unclean = strict.partition(topic)
    assert (unclean.leader, unclean.isr, unclean.leader_recovery_state) == (other.id, (other.id,), 1)
    recovered = other.alter_partition(topic, [other], recovery_state=0)
    assert (recovered.error, recovered.partition_epoch) == (ErrorCode.none, unclean.partition_epoch + 1)
    assert strict.partition(topic).leader_recovery_state == 0
    assert other.alter_partition(topic, [other], recovery_state=1).error == ErrorCode.invalid_request


def test_35_elections_that_are_not_needed_say_so(client: QuorumClient, topic: str) -> None:
    first, second = brokers(client, 2)
    created(client, topic, [first, second])
    assert elect(client, topic, PREFERRED) == ErrorCode.election_not_needed
    assert elect(client, topic, UNCLEAN) == ErrorCode.election_not_needed


ELR = "eligible.leader.replicas.version"


def set_feature(client: QuorumClient, name: str, level: int) -> None:
    """Up, or down without loss."""
    upgrade, safe_downgrade = 1, 2
    schema = RequestSchema.of(ApiKey.UPDATE_FEATURES, 1)
    update = schema.FeatureUpdateKey(
        feature=name, max_version_level=level, upgrade_type=upgrade if level else safe_downgrade
    )
    answer = client.send(
        ApiKey.UPDATE_FEATURES,
        1,
        "UpdateFeaturesRequest",
        timeout=PATIENCE,
        feature_updates=(update,),
        validate_only=False,
    )
    assert answer.error_code == ErrorCode.none, answer


def elr_state(client: QuorumClient, topic: str) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    now = client.partition(topic)
    return now.leader, now.isr, tuple(sorted(now.eligible_leader_replicas)), now.last_known_elr


@pytest.fixture
def elr(strict: QuorumClient) -> Iterator[None]:
    set_feature(strict, ELR, 1)
    yield
    set_feature(strict, ELR, 0)


@pytest.mark.usefixtures("elr")
def test_36_and_21_eligible_leader_replicas_step_by_step(strict: QuorumClient, topic: str) -> None:
    features = {**SUPPORTED_FEATURES, ELR: (0, 1)}
    one, two, witness = (ScriptedBroker(strict, features=features).unfenced() for _ in range(3))
    row = create_topic(strict, topic, [one, two], configs={"min.insync.replicas": "2"})
    assert row.error_code == ErrorCode.none
    assert elr_state(strict, topic) == (one.id, (one.id, two.id), (), ())
    one.alter_partition(topic, [one])
    assert elr_state(strict, topic) == (one.id, (one.id,), (two.id,), ())
    eventually(lambda: one.is_fenced, "the first one is fenced", two, witness)
    assert elr_state(strict, topic) == (two.id, (two.id,), (one.id,), ())
    eventually(lambda: two.is_fenced, "the second one is fenced", witness)
    assert elr_state(strict, topic) == (-1, (), (one.id, two.id), (two.id,))
    unclean = two.restarted()
    assert unclean.register(previous_epoch=-1) == ErrorCode.none
    assert elr_state(strict, topic) == (-1, (), (one.id,), (two.id,))
    # The epoch names the registration, and is not the offset of its record: other records may stand before it.
    registered = [
        first + number
        for first, _, records in strict.batches
        for number, record in enumerate(records)
        if isinstance(record, RegisterBrokerRecord) and record.incarnation_id == unclean.incarnation_id
    ]
    assert len(registered) == 1
    assert registered[0] > unclean.epoch
    assert not unclean.heartbeat(offset=registered[0] - 1).is_caught_up
    assert not unclean.heartbeat(offset=registered[0]).is_fenced
    assert elr_state(strict, topic) == (-1, (), (one.id,), (two.id,))
    assert not one.heartbeat().is_fenced
    assert elr_state(strict, topic) == (one.id, (one.id,), (), ())


def reassign(client: QuorumClient, topic: str, replicas: list[ScriptedBroker] | None) -> ErrorCode:
    schema = RequestSchema.of(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    row = schema.ReassignablePartition(
        partition_index=0, replicas=None if replicas is None else tuple(each.id for each in replicas)
    )
    topics = (schema.ReassignableTopic(name=topic, partitions=(row,)),)
    timeout = PATIENCE
    answer = client.send(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, "AlterPartitionReassignmentsRequest", topics=topics, timeout=timeout
    )
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def test_37_a_reassignment_ends_when_the_new_replicas_are_in_sync(client: QuorumClient, topic: str) -> None:
    old, kept, new = brokers(client, 3)
    created(client, topic, [old, kept])
    assert reassign(client, topic, [kept, new]) == ErrorCode.none
    moving = client.partition(topic)
    assert (set(moving.replicas), moving.adding_replicas, moving.removing_replicas) == (
        {old.id, kept.id, new.id},
        (new.id,),
        (old.id,),
    )
    # The change that ends it also takes the leadership from who leaves.
    done = old.alter_partition(topic, [old, kept, new])
    assert done.error == ErrorCode.new_leader_elected
    after = client.partition(topic)
    assert (after.replicas, set(after.isr), after.adding_replicas, after.removing_replicas) == (
        (kept.id, new.id),
        {kept.id, new.id},
        (),
        (),
    )
    assert after.leader == kept.id


def test_37_a_reassignment_can_be_cancelled_once(client: QuorumClient, topic: str) -> None:
    old, new = brokers(client, 2)
    created(client, topic, [old])
    assert reassign(client, topic, None) == ErrorCode.no_reassignment_in_progress
    assert reassign(client, topic, [new]) == ErrorCode.none
    assert reassign(client, topic, None) == ErrorCode.none
    after = client.partition(topic)
    assert (after.replicas, after.adding_replicas, after.removing_replicas) == ((old.id,), (), ())
    assert reassign(client, topic, None) == ErrorCode.no_reassignment_in_progress


# -- Topics, forwarding, producer ids -----------------------------------------------------------------------------


def test_38_topics_that_cannot_be(client: QuorumClient, topic: str) -> None:
    one, fenced = ScriptedBroker(client).unfenced(), ScriptedBroker(client)
    assert fenced.register() == ErrorCode.none

    def error(name: str, *assignments: list[ScriptedBroker | int], **fields: object) -> ErrorCode:
        return ErrorCode(create_topic(client, name, *assignments, **fields).error_code)  # type: ignore[arg-type]

    assert error(topic, [one]) == ErrorCode.none
    assert error(topic, [one]) == ErrorCode.topic_already_exists
    assert error(f"{topic}.a", [one]) == ErrorCode.none
    invalid_topic = ErrorCode.invalid_topic_exception
    for name in (f"{topic}_a", "", ".", "..", "a b", "x" * 250):
        assert error(name, [one]) == invalid_topic, name
    assert error(METADATA_TOPIC, [one]) == ErrorCode.invalid_request
    new = f"{topic}-new"
    assert error(new, partitions=0, replication_factor=1) == ErrorCode.invalid_partitions
    assert error(new, partitions=-2, replication_factor=1) == ErrorCode.invalid_partitions
    assert error(new, partitions=1, replication_factor=0) == ErrorCode.invalid_replication_factor
    assert error(new, partitions=1, replication_factor=-2) == ErrorCode.invalid_replication_factor
    assert error(new, partitions=1, replication_factor=100) == ErrorCode.invalid_replication_factor
    assert error(new, [one], partitions=1) == ErrorCode.invalid_request
    assignment = ErrorCode.invalid_replica_assignment
    assert error(new, [one, one]) == assignment
    assert error(new, [one], []) == assignment
    assert error(new, [one], [one, fenced]) == assignment
    assert error(new, [9_999]) == assignment
    assert error(new, [fenced]) == assignment
    assert error(new, [one], configs={"retention.ms": "soon"}) == ErrorCode.invalid_config
    assert error(new, [one], configs={"retention.ms": None}) == ErrorCode.invalid_config
    assert error(new, [one], configs={"no.such.setting": "1"}) == ErrorCode.invalid_config
    assert error(new, [one], validate_only=True) == ErrorCode.none
    assert new not in client.image().topics.by_name
    assert error(new, [one, fenced]) == ErrorCode.none
    created = client.partition(new)
    assert (created.leader, created.isr, created.leader_epoch, created.partition_epoch) == (one.id, (one.id,), 0, 0)


def test_38_replicas_are_spread_over_racks_and_leaders_over_brokers(client: QuorumClient, topic: str) -> None:
    racks = {}
    for rack in ("a", "b", "c"):
        for _ in range(2):
            each = ScriptedBroker(client, rack=rack).unfenced()
            racks[each.id] = rack
    create_topic(client, topic, partitions=12, replication_factor=3)
    partitions = client.image().topics.by_name[topic].partitions.values()
    leaders = [partition.leader for partition in partitions]
    for partition in partitions:
        assert {racks[replica] for replica in partition.replicas} == {"a", "b", "c"}
    assert {leaders.count(broker_id) for broker_id in racks} == {2}


def test_39_an_envelope_is_judged_by_what_is_in_it(client: QuorumClient, topic: str) -> None:
    one = ScriptedBroker(client).unfenced()
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, 7)
    assignment = schema.CreatableReplicaAssignment(partition_index=0, broker_ids=(one.id,))
    row = schema.CreatableTopic(
        name=topic, num_partitions=-1, replication_factor=-1, assignments=(assignment,), configs=()
    )
    inner = encode_request(
        ApiKey.CREATE_TOPICS,
        7,
        4711,
        "somebody",
        schema.CreateTopicsRequest(topics=(row,), timeout=PATIENCE),
    )[4:]

    def envelope(data: bytes) -> object:
        return client.send(
            ApiKey.ENVELOPE,
            0,
            "EnvelopeRequest",
            request_data=data,
            request_principal=serialize_principal("User:ANONYMOUS"),
            client_host_address=bytes([127, 0, 0, 1]),
        )

    answer = envelope(inner)
    assert answer.error_code == ErrorCode.none  # type: ignore[attr-defined]
    correlation_id, body = decode_response(ApiKey.CREATE_TOPICS, 7, answer.response_data)  # type: ignore[attr-defined]
    assert (correlation_id, body.topics[0].error_code) == (4711, ErrorCode.none)
    assert client.partition(topic).leader == one.id
    _, body = decode_response(ApiKey.CREATE_TOPICS, 7, envelope(inner).response_data)  # type: ignore[attr-defined]
    assert body.topics[0].error_code == ErrorCode.topic_already_exists


def allocate(client: QuorumClient, broker: ScriptedBroker) -> range:
    answer = client.send(
        ApiKey.ALLOCATE_PRODUCER_IDS, 0, "AllocateProducerIdsRequest", broker_id=broker.id, broker_epoch=broker.epoch
    )
    assert answer.error_code == ErrorCode.none
    return range(int(answer.producer_id_start), int(answer.producer_id_start) + int(answer.producer_id_len))


def test_40_and_27_a_restarted_controller_repeats_no_block_and_fences_nobody(
    quorum: Quorum, client: QuorumClient, topic: str
) -> None:
    one, other = brokers(client, 2)
    created(client, topic, [one, other])
    blocks = [allocate(client, one), allocate(client, other), allocate(client, one)]
    epoch = client.leader_epoch
    quorum.restart()
    fresh = quorum.client()
    image = fresh.image()
    assert fresh.leader_epoch > epoch
    assert [image.brokers[each.id].fenced for each in (one, other)] == [False, False]
    assert client.partition(topic) == fresh.partition(topic)
    assert one.heartbeat().error_code == ErrorCode.none
    blocks.append(allocate(client, other))
    assert [len(block) for block in blocks] == [1000] * 4
    assert [block.start for block in blocks] == sorted({block.start for block in blocks})
    assert all(left.stop <= right.start for left, right in itertools.pairwise(blocks))
    fresh.close()


def test_40_a_topic_made_again_has_another_id(client: QuorumClient, topic: str) -> None:
    one = ScriptedBroker(client).unfenced()
    created(client, topic, [one])
    first = client.topic_id(topic)
    schema = RequestSchema.of(ApiKey.DELETE_TOPICS, 6)
    client.send(
        ApiKey.DELETE_TOPICS,
        6,
        "DeleteTopicsRequest",
        topics=(schema.DeleteTopicState(name=None, topic_id=first),),
        timeout=PATIENCE,
    )
    created(client, topic, [one])
    assert client.topic_id(topic) != first
