from pathlib import Path

from broker.protocol.produce_codec import NodeEndpoint
from broker.replication.fetch_params import NO_LEADER_HINT, LeaderHint
from broker.server.leader_endpoints import leader_endpoints
from tests.support.builders import LISTENER, ReplicaWorld


def test_each_alive_leader_is_told_once(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.register_brokers(3, fenced=True)
    hints = [LeaderHint(2, 5), LeaderHint(3, 1), NO_LEADER_HINT, LeaderHint(2, 6), LeaderHint(9, 1)]
    assert leader_endpoints(hints, world.metadata, LISTENER) == [NodeEndpoint(2, "10.0.0.2", 9092, None)]
    assert leader_endpoints(hints, world.metadata, "OTHER") == []
