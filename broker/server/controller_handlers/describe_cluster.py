"""DescribeCluster on a controller: the controllers of the cluster."""

from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.controller.api_error import ApiException
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.quorum_nodes import leader_node
from broker.server.request_context import RequestContext

BROKERS: Final = 1
CONTROLLERS: Final = 2
_NO_OPERATIONS: Final = -(1 << 31)  # "not asked for"


@handles(ApiKey.DESCRIBE_CLUSTER, versions=range(3))
def describe_cluster(request: Request, context: RequestContext, controller: Controller) -> Any:
    """DescribeCluster: the cluster's id and its controllers (KIP-919).

    Behaviour: only endpoint type 2 (controllers) is answered here; type 1 is MISMATCHED_ENDPOINT_TYPE, any other
      UNSUPPORTED_ENDPOINT_TYPE.
    Versions:  0 has no endpoint type and means brokers · 1 endpoint type · 2 fenced brokers (there are none here).
    Left out:  authorized operations.
    """
    endpoint_type = getattr(request.body, "endpoint_type", BROKERS)
    if endpoint_type == BROKERS:
        raise ApiException(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER",
        )
    if endpoint_type != CONTROLLERS:
        raise ApiException(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {endpoint_type}")
    schema = request.schema
    node = leader_node(controller, context)
    return schema.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=CONTROLLERS,
        cluster_id=controller.cluster_id,
        controller_id=controller.node_id,
        brokers=(
            schema.DescribeClusterBroker(
                broker_id=node.node_id, host=node.host, port=node.port, rack=None, is_fenced=False
            ),
        ),
        cluster_authorized_operations=_NO_OPERATIONS,
    )
