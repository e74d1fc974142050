"""Who leads the metadata quorum: found by the observer's fetch loop, read by every channel to the controller.

There is no Metadata request on controllers: each answer to a fetch of `__cluster_metadata` names the leader and its
epoch (KIP-595), and since KIP-853 its endpoint too.  One object holds that knowledge, one loop writes it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import structlog

from broker.common.identifiers import NO_BROKER, NO_EPOCH, BrokerId, LeaderEpoch

log = structlog.get_logger(__name__)


class Endpoint(NamedTuple):
    """Where a controller listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ControllerNode(NamedTuple):
    """The controller that leads the quorum now."""

    node_id: BrokerId
    endpoint: Endpoint


class InconsistentLeaderError(Exception):
    """Two leaders in one epoch: the quorum is broken, and following either of them could lose data."""


class NodeIdTakenError(Exception):
    """A controller has our node id: the leader takes our fetches for its own, and Apache Kafka's fails on them."""


class ControllerFinder:
    """The leader of the metadata quorum as this node knows it.

    `voters` are the endpoints of `controller.quorum.voters` by node id (static quorum), `bootstrap` those of
    `controller.quorum.bootstrap.servers`; at least one of the two names somebody to ask first.  `broker_id` is that of
    a node without a controller of its own, whose id no controller may have.
    """

    def __init__(
        self,
        bootstrap: Sequence[Endpoint],
        voters: Mapping[BrokerId, Endpoint] | None = None,
        broker_id: BrokerId = NO_BROKER,
    ) -> None:
        self._broker_id = broker_id
        self._voters = dict(voters or {})
        self._bootstrap = tuple(dict.fromkeys([*bootstrap, *self._voters.values()]))
        assert self._bootstrap, "neither controller.quorum.bootstrap.servers nor controller.quorum.voters is set"
        self._next_bootstrap = 0
        self._waiters: list[asyncio.Future[None]] = []
        self.epoch: LeaderEpoch = 0
        self.leader: ControllerNode | None = None
        self._leader_id: BrokerId = NO_BROKER

    def next_bootstrap_endpoint(self) -> Endpoint:
        """The next controller to ask while the leader is not known, round-robin."""
        endpoint = self._bootstrap[self._next_bootstrap % len(self._bootstrap)]
        self._next_bootstrap += 1
        return endpoint

    def observe(
        self, leader_id: BrokerId, epoch: LeaderEpoch, endpoints: Mapping[BrokerId, Endpoint] | None = None
    ) -> bool:
        """Take what an answer says about the leader; returns whether our knowledge changed.

        Older epochs are ignored, an unknown leader (-1) of a newer epoch is remembered as unknown.
        Raises InconsistentLeaderError for another leader in an epoch that already had one, NodeIdTakenError for one
        with our own id.
        """
        if leader_id == self._broker_id != NO_BROKER:
            raise NodeIdTakenError(
                f"node.id={leader_id} is that of a controller: a broker in a process of its own needs another one"
            )
        if epoch == NO_EPOCH or epoch < self.epoch:
            return False
        if epoch == self.epoch:
            if leader_id == NO_BROKER or (self.leader is not None and leader_id == self.leader.node_id):
                return self._move(leader_id, endpoints)
            if self._leader_id not in (NO_BROKER, leader_id):
                raise InconsistentLeaderError(
                    f"epoch {epoch} of the metadata quorum has two leaders: {self._leader_id} and {leader_id}"
                )
        changed = epoch != self.epoch or self.leader is None
        self.epoch = epoch
        self._leader_id = leader_id
        endpoint = self._endpoint_of(leader_id, endpoints)
        self.leader = ControllerNode(leader_id, endpoint) if endpoint is not None else None
        if changed:
            log.info("metadata_quorum_leader", leader=leader_id, epoch=epoch, endpoint=str(endpoint))
        self._wake()
        return changed

    def leader_unreachable(self) -> None:
        """The leader did not answer: ask the bootstrap servers until someone names a leader."""
        if self.leader is not None:
            log.warning("metadata_quorum_leader_unreachable", leader=self.leader.node_id, epoch=self.epoch)
        self.leader = None

    async def wait_for_leader(self) -> ControllerNode:
        """The leader, once there is one."""
        while self.leader is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        return self.leader

    def _move(self, leader_id: BrokerId, endpoints: Mapping[BrokerId, Endpoint] | None) -> bool:
        endpoint = (endpoints or {}).get(leader_id)
        if leader_id == NO_BROKER or self.leader is None or endpoint is None or endpoint == self.leader.endpoint:
            return False
        self.leader = ControllerNode(leader_id, endpoint)
        return True

    def _endpoint_of(self, leader_id: BrokerId, endpoints: Mapping[BrokerId, Endpoint] | None) -> Endpoint | None:
        return (endpoints or {}).get(leader_id) or self._voters.get(leader_id)

    def _wake(self) -> None:
        if self.leader is None:
            return
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
