"""FetchSnapshot: a snapshot of the metadata log in pieces."""

from typing import Any

from broker.common.errors import ErrorCode, InvalidRequestError
from broker.common.identifiers import CLUSTER_METADATA_TOPIC
from broker.controller.api_error import ApiException
from broker.controller.controller import Controller
from broker.controller.metadata_snapshot import SnapshotId
from broker.controller.quorum_endpoint import SnapshotChunk
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.quorum_nodes import check_cluster_id, leader_node
from broker.server.request_context import RequestContext


@handles(ApiKey.FETCH_SNAPSHOT, versions=range(2))
def fetch_snapshot(request: Request, context: RequestContext, controller: Controller) -> Any:
    """FetchSnapshot: a piece of a snapshot, from a position on (KIP-630).

    Behaviour: pieces are cut at any byte; the size says when they are complete.  A snapshot that has been cleaned away
      is SNAPSHOT_NOT_FOUND, a position outside it POSITION_OUT_OF_RANGE, another epoch FENCED_LEADER_EPOCH or
      UNKNOWN_LEADER_EPOCH; each of these answers names the leader and has no bytes.
    Versions:  1 the leader's address, directory id of the replica.
    Left out:  —
    """
    body = request.body
    check_cluster_id(controller, body.cluster_id)
    asked = [(topic.name, partition) for topic in body.topics for partition in topic.partitions]
    if len(asked) != 1 or asked[0][0] != CLUSTER_METADATA_TOPIC or asked[0][1].partition != 0:
        raise InvalidRequestError("A controller serves the metadata topic's partition 0 alone.")
    partition = asked[0][1]
    snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
    error = controller.quorum.check_leader_epoch(partition.current_leader_epoch)
    chunk = SnapshotChunk(0, 0, b"")
    if error is ErrorCode.none:
        try:
            chunk = controller.quorum.read_snapshot(snapshot, partition.position, body.max_bytes)
        except ApiException as refusal:
            error = refusal.code
    return _response(request, context, controller, error, snapshot, chunk)


def _response(
    request: Request,
    context: RequestContext,
    controller: Controller,
    error: ErrorCode,
    snapshot: SnapshotId,
    chunk: SnapshotChunk,
) -> Any:
    schema = request.schema
    partition = schema.PartitionSnapshot(
        index=0,
        error_code=error,
        snapshot_id=schema.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        current_leader=schema.LeaderIdAndEpoch(
            leader_id=controller.node_id, leader_epoch=controller.quorum.leader_epoch
        ),
        size=chunk.size_bytes,
        position=chunk.position,
        unaligned_records=chunk.data,
    )
    node = leader_node(controller, context)
    return schema.FetchSnapshotResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=(schema.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
        node_endpoints=(schema.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port),),
    )
