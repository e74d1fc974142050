from pathlib import Path

from broker.replication.follower_fetchers import NoFetchers
from tests.support.builders import ReplicaWorld


def test_without_fetchers_nobody_is_followed(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(2, 1), leader=2)
    nobody = NoFetchers()
    nobody.follow([world.partition()])
    nobody.leave([world.partition().topic_partition])
    nobody.on_brokers_changed([2])
    nobody.settle()
    nobody.retry_failed()
    assert world.partition().log.log_end_offset == 0
