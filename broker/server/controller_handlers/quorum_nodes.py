"""What answers of the quorum say about the cluster, the leader, and where it is reached."""

import socket
from typing import Final, NamedTuple

from broker.common.errors import InconsistentClusterIdError
from broker.controller.controller import Controller
from broker.server.request_context import RequestContext

_WILDCARDS: Final = ("", "0.0.0.0", "::")


class QuorumNode(NamedTuple):
    """A controller as one listener's clients reach it."""

    node_id: int
    listener_name: str
    host: str
    port: int


def check_cluster_id(controller: Controller, cluster_id: str | None) -> None:
    """Null is not checked, as in Kafka."""
    if cluster_id is not None and cluster_id != controller.cluster_id:
        raise InconsistentClusterIdError(
            f"Expected cluster ID {controller.cluster_id}, but got cluster ID {cluster_id}"
        )


def leader_node(controller: Controller, context: RequestContext) -> QuorumNode:
    """The leader, which is this node, at the listener that was asked."""
    host, port = "", 0
    for listener in controller.config.advertised_controller_listeners:
        if listener.name == context.listener_name:
            host, port = listener.host, listener.port
    if host in _WILDCARDS:
        host = socket.gethostname()
    return QuorumNode(controller.node_id, context.listener_name, host, port or context.local_port)
