"""The brokers a client is told about, and the one it is told to send admin requests to."""

from collections.abc import Sequence

from broker.common.identifiers import NO_BROKER, BrokerId
from broker.config.broker_config import BrokerConfig
from broker.metadata.metadata_image import MetadataImage
from broker.server.broker_identity import BrokerIdentity
from broker.server.partition_description import BrokerNode, broker_nodes


def advertised_nodes(
    image: MetadataImage,
    listener_name: str,
    identity: BrokerIdentity,
    config: BrokerConfig,
    *,
    include_fenced: bool = False,
) -> list[BrokerNode]:
    """The brokers for clients of a listener, by id; never none.

    While every broker is fenced, this one names itself: clients take an empty list as "ask the bootstrap servers
    again", and the one that just answered is where they would end up.
    """
    nodes = broker_nodes(image, listener_name, include_fenced=include_fenced)
    if not nodes:
        for listener in config.advertised_broker_listeners:
            if listener.name == listener_name:
                nodes.append(BrokerNode(identity.node_id, listener.host, listener.port, identity.rack, is_fenced=True))
    return nodes


def controller_id_of(nodes: Sequence[BrokerNode], identity: BrokerIdentity) -> BrokerId:
    """The broker that clients send admin requests to: any will do, for all forward to the quorum's leader (KIP-590).

    This one when it is in the list, so that an admin client needs no second connection.
    """
    ids = [node.node_id for node in nodes]
    if identity.node_id in ids or not ids:
        return identity.node_id if ids else NO_BROKER
    return ids[0]
