"""Where the leaders are reached that an answer hints at (KIP-951)."""

from collections.abc import Iterable

from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.produce_codec import NodeEndpoint
from broker.replication.fetch_params import LeaderHint


def leader_endpoints(hints: Iterable[LeaderHint], cache: MetadataCache, listener_name: str) -> list[NodeEndpoint]:
    """Each alive leader once, as clients of this listener see it; a leader that is not reachable there is left out."""
    endpoints = []
    for leader_id in dict.fromkeys(hint.leader_id for hint in hints):
        endpoint = cache.broker_endpoint(leader_id, listener_name)
        broker = cache.broker(leader_id)
        if endpoint is not None and broker is not None:
            endpoints.append(NodeEndpoint(leader_id, endpoint.host, endpoint.port, broker.rack))
    return endpoints
