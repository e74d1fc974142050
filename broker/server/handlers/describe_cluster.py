"""DescribeCluster: the brokers and the id of the cluster (KIP-700)."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED
from broker.server.broker_identity import BrokerIdentity
from broker.server.cluster_nodes import advertised_nodes, controller_id_of
from broker.server.request_context import RequestContext

BROKERS = 1  # the endpoint types of KIP-919
CONTROLLERS = 2


@handles(ApiKey.DESCRIBE_CLUSTER, versions=range(3))
def describe_cluster(
    request: Request,
    context: RequestContext,
    cache: MetadataCache,
    config: ConfigHolder[BrokerConfig],
    identity: BrokerIdentity,
) -> Any:
    """DescribeCluster: cluster id, brokers, and which of them takes admin requests.

    Behaviour: the controller id is a broker, this one when it is alive: every broker forwards to the quorum's leader.
      Asked for controllers, a broker answers MISMATCHED_ENDPOINT_TYPE, for anything else UNSUPPORTED_ENDPOINT_TYPE.
    Versions:  1 endpoint type · 2 fenced brokers on demand.
    Left out:  authorization.
    """
    body = request.body
    endpoint_type = getattr(body, "endpoint_type", BROKERS)
    if endpoint_type != BROKERS:
        return _refusal(request, endpoint_type)
    include_fenced = bool(getattr(body, "include_fenced_brokers", False))
    nodes = advertised_nodes(
        cache.image, context.listener_name, identity, config.current, include_fenced=include_fenced
    )
    alive = [node for node in nodes if not node.is_fenced]
    schema = request.schema
    return schema.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=identity.cluster_id,
        controller_id=controller_id_of(alive or nodes, identity),
        brokers=tuple(
            schema.DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack, is_fenced=node.is_fenced
            )
            for node in nodes
        ),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if body.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _refusal(request: Request, endpoint_type: int) -> Any:
    if endpoint_type == CONTROLLERS:
        error = ErrorCode.mismatched_endpoint_type
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        error, message = ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}"
    return request.schema.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id="",
        controller_id=-1,
        brokers=(),
        cluster_authorized_operations=NOT_REQUESTED,
    )
