import dataclasses
import socket

import pytest

from broker.common.errors import InconsistentClusterIdError
from broker.server.controller_handlers.quorum_nodes import QuorumNode, check_cluster_id, leader_node
from tests.support.sim_disk import SimFileSystem
from tests.unit.controller.controller_support import CLUSTER_ID, build_controller
from tests.unit.server.controller_handlers.controller_handler_support import CONTEXT


def test_the_leader_is_this_node_at_the_listener_that_was_asked() -> None:
    controller = build_controller(SimFileSystem())
    assert leader_node(controller, CONTEXT) == QuorumNode(1, "CONTROLLER", "127.0.0.1", 9190)


def test_wildcards_and_port_0_are_told_as_what_they_stand_for() -> None:
    listeners = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:0"
    controller = build_controller(SimFileSystem(), listeners=listeners)
    context = dataclasses.replace(CONTEXT, local_port=40123)
    assert leader_node(controller, context) == QuorumNode(1, "CONTROLLER", socket.gethostname(), 40123)


def test_cluster_ids_are_compared_when_given() -> None:
    controller = build_controller(SimFileSystem())
    check_cluster_id(controller, None)
    check_cluster_id(controller, CLUSTER_ID)
    with pytest.raises(InconsistentClusterIdError, match="got cluster ID other"):
        check_cluster_id(controller, "other")
