"""A follower whose offset its leader does not have goes where the leader's log is (fetchOffsetAndTruncate in Kafka)."""

import structlog

from broker.replication.leader_endpoint import FollowerFetch, LeaderEndPoint
from broker.replication.partition_fetch_state import PartitionFetchState

log = structlog.get_logger(__name__)


async def place_in_range(leader: LeaderEndPoint, state: PartitionFetchState, request: FollowerFetch) -> None:
    """Move `state`, and cut its log where the leader has less or nothing in common with it.

    A log that ends below the leader's begins anew at the leader's log start, in whatever tier that is: when it is no
    longer on the leader's disk, the next fetch is told so (KIP-405; see `TierStateMachine`).

    What was known is looked at again after each answer: the partition may have gone on meanwhile, and nothing that
    lies within the leader's log is given up for an old answer.  LeaderUnavailableError, KafkaError.
    """
    leader_end_offset = await leader.latest_offset(state.topic_partition, state.leader_epoch)
    if not state.awaits(request):
        return
    end_offset = state.replica.log.log_end_offset
    if leader_end_offset < end_offset:
        _say(state, "log_longer_than_leaders", end_offset, leader_end_offset)
        state.truncate_to(leader_end_offset)
        state.lag = 0
        return
    leader_start_offset = await leader.earliest_offset(state.topic_partition, state.leader_epoch)
    if not state.awaits(request):
        return
    end_offset = state.replica.log.log_end_offset
    if leader_start_offset > end_offset:
        _restart_at(state, leader_start_offset, end_offset)
    elif state.refused_in_range_at == end_offset and state.last_fetched_epoch >= 0:
        # Refused again at an offset the leader has: it does not know our newest epoch, for it is older than all of
        # its own, so none of its records is one of ours.
        _restart_at(state, leader_start_offset, end_offset)
    else:
        state.continue_at_end()
        state.refused_in_range_at = end_offset
    state.lag = max(0, leader_end_offset - state.fetch_offset)


def _restart_at(state: PartitionFetchState, leader_start_offset: int, end_offset: int) -> None:
    _say(state, "log_begun_anew", end_offset, leader_start_offset)
    state.truncate_fully_and_start_at(leader_start_offset)


def _say(state: PartitionFetchState, event: str, was: int, now: int) -> None:
    log.warning(event, partition=str(state.topic_partition), was=was, now=now, epoch=state.leader_epoch)
