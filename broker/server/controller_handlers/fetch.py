"""Fetch on a controller: the metadata log, for observers."""

from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode, InvalidRequestError
from broker.common.identifiers import METADATA_TOPIC_ID, ZERO_UUID
from broker.controller.controller import Controller
from broker.controller.quorum_endpoint import MetadataFetchRequest, MetadataFetchResult
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.quorum_nodes import check_cluster_id, leader_node
from broker.server.request_context import RequestContext

_HIGH_WATERMARK_UNKNOWN = (1 << 63) - 1  # the default of version 18: the follower does not say


@handles(ApiKey.FETCH, versions=range(13, 19))
async def fetch(request: Request, context: RequestContext, controller: Controller) -> Any:
    """Fetch: `__cluster_metadata` from an offset on, or the snapshot to begin with.

    Behaviour: exactly one topic, by its id, and partition 0, else INVALID_REQUEST.  Only what is durable is served.
      An older epoch is FENCED_LEADER_EPOCH, a newer one UNKNOWN_LEADER_EPOCH, and both answers name the leader.  A log
      that is not a prefix of ours gets the diverging epoch, one that ends before ours begins the snapshot's id.
      Without anything new the answer waits for it, up to max_wait.
    Versions:  15 replica epoch · 16 the leader's address · 17 directory id of the replica · 18 its high watermark.
    Left out:  versions below 13, which name the topic (the quorum knows it by id); fetch sessions; voters.
    """
    check_cluster_id(controller, request.body.cluster_id)
    result = await controller.quorum.fetch(_fetch_request(request.body))
    return _response(request, context, controller, result)


def _fetch_request(body: Any) -> MetadataFetchRequest:
    if len(body.topics) != 1 or body.topics[0].topic_id != METADATA_TOPIC_ID:
        raise InvalidRequestError("A controller serves the metadata topic alone.")
    partitions = body.topics[0].partitions
    if len(partitions) != 1 or partitions[0].partition != 0:
        raise InvalidRequestError("The metadata topic has partition 0 alone.")
    partition = partitions[0]
    replica_id = body.replica_state.replica_id if hasattr(body, "replica_state") else body.replica_id
    high_watermark = getattr(partition, "high_watermark", _HIGH_WATERMARK_UNKNOWN)
    directory_id: UUID | None = getattr(partition, "replica_directory_id", None)
    return MetadataFetchRequest(
        replica_id=replica_id,
        replica_directory_id=directory_id or ZERO_UUID,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        bytes_max=min(body.max_bytes, partition.partition_max_bytes or body.max_bytes),
        wait_max_ms=to_milliseconds(body.max_wait),
        high_watermark=None if high_watermark == _HIGH_WATERMARK_UNKNOWN else high_watermark,
    )


def _response(request: Request, context: RequestContext, controller: Controller, result: MetadataFetchResult) -> Any:
    schema = request.schema
    optional: dict[str, Any] = {}
    if result.diverging is not None:
        optional["diverging_epoch"] = schema.EpochEndOffset(
            epoch=result.diverging.epoch, end_offset=result.diverging.offset
        )
    if result.snapshot is not None:
        optional["snapshot_id"] = schema.SnapshotId(end_offset=result.snapshot.end_offset, epoch=result.snapshot.epoch)
    partition = schema.PartitionData(
        partition_index=0,
        error_code=result.error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.high_watermark,
        log_start_offset=result.log_start_offset,
        current_leader=schema.LeaderIdAndEpoch(
            leader_id=controller.node_id, leader_epoch=controller.quorum.leader_epoch
        ),
        aborted_transactions=(),
        records=result.records,
        **optional,
    )
    node = leader_node(controller, context)
    return schema.FetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        session_id=0,
        responses=(schema.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=(partition,)),),
        node_endpoints=(schema.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=None),),
    )
