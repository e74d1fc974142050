from broker.server.cluster_nodes import advertised_nodes, controller_id_of
from broker.server.partition_description import BrokerNode
from tests.unit.server.link_support import IDENTITY, broker_record, config_holder, image_with

CONFIG = config_holder().current


def test_alive_brokers_are_advertised() -> None:
    image = image_with(broker_record(1), broker_record(2, fenced=True), broker_record(3))
    assert [node.node_id for node in advertised_nodes(image, "PLAINTEXT", IDENTITY, CONFIG)] == [1, 3]


def test_there_is_never_no_broker() -> None:
    image = image_with(broker_record(1, fenced=True))
    assert advertised_nodes(image, "PLAINTEXT", IDENTITY, CONFIG) == [BrokerNode(1, "127.0.0.1", 9092, None, True)]


def test_admin_requests_go_here_when_this_broker_is_alive() -> None:
    here, there = BrokerNode(1, "h", 1, None, False), BrokerNode(2, "h", 2, None, False)
    assert controller_id_of([here, there], IDENTITY) == 1
    assert controller_id_of([there], IDENTITY) == 2
    assert controller_id_of([], IDENTITY) == -1
