"""When a reassignment is done, and what another target does to it: asked of our controller and of Apache's.

They differ between releases (PartitionReassignmentReplicas.maybeCompleteReassignment): in 4.0 all that stay have to be
in sync; in 4.4 only the new ones, and all that stay where the partition is to have fewer replicas.  Ours does as 4.4.
"""

from broker.common.errors import ErrorCode
from tests.support.quorum_client import QuorumClient

from .test_controller_behaviours import (  # the fixtures, too
    Quorum,
    brokers,
    client,
    created,
    pytestmark,
    quorum,
    reassign,
    topic,
)

__all__ = ["client", "pytestmark", "quorum", "topic"]


def test_37_a_replica_that_stays_and_is_out_of_sync_holds_nothing_up(
    quorum: Quorum, client: QuorumClient, topic: str
) -> None:
    leader, away, old, new = brokers(client, 4)
    created(client, topic, [leader, away, old])
    assert leader.alter_partition(topic, [leader, old]).error == ErrorCode.none
    assert reassign(client, topic, [leader, away, new]) == ErrorCode.none
    assert leader.alter_partition(topic, [leader, old, new]).error == ErrorCode.none
    after = client.partition(topic)
    if quorum.kind.startswith("4.0"):
        assert (after.adding_replicas, after.removing_replicas) == ((new.id,), (old.id,))
        return
    assert (after.replicas, set(after.isr)) == ((leader.id, away.id, new.id), {leader.id, new.id})
    assert (after.adding_replicas, after.removing_replicas) == ((), ())


def test_37_fewer_replicas_have_to_be_in_sync(client: QuorumClient, topic: str) -> None:
    leader, away, old = brokers(client, 3)
    created(client, topic, [leader, away, old])
    assert leader.alter_partition(topic, [leader, old]).error == ErrorCode.none
    assert reassign(client, topic, [leader, away]) == ErrorCode.none
    moving = client.partition(topic)
    assert (moving.replicas, moving.removing_replicas) == ((leader.id, away.id, old.id), (old.id,))
    assert set(moving.isr) == {leader.id, old.id}
    assert leader.alter_partition(topic, [leader, old, away]).error == ErrorCode.none
    after = client.partition(topic)
    assert (after.replicas, set(after.isr)) == ((leader.id, away.id), {leader.id, away.id})
    assert (after.adding_replicas, after.removing_replicas) == ((), ())


def test_37_another_target_keeps_what_is_in_sync(quorum: Quorum, client: QuorumClient, topic: str) -> None:
    leader, away, first, second = brokers(client, 4)
    created(client, topic, [leader, away])
    assert reassign(client, topic, [first, second]) == ErrorCode.none
    assert leader.alter_partition(topic, [leader, first]).error == ErrorCode.none
    assert reassign(client, topic, [leader, second]) == ErrorCode.none
    moving = client.partition(topic)
    assert set(moving.replicas) == {leader.id, away.id, first.id, second.id}
    assert set(moving.isr) == {leader.id, first.id}
    if quorum.kind.startswith("4.4"):
        return  # it still waits for the first target's replicas, which the second takes away again: it never ends
    assert leader.alter_partition(topic, [leader, first, second]).error == ErrorCode.none
    after = client.partition(topic)
    assert (after.replicas, set(after.isr)) == ((leader.id, second.id), {leader.id, second.id})
