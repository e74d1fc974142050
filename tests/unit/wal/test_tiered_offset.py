from pathlib import Path

from broker.wal.tiered_offset import highest_tiered_offset
from tests.support.builders import ReplicaWorld
from tests.support.tiered_topics import TIERED, TIERING


def test_it_is_what_the_log_knows_while_its_topic_is_tiered(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path, TIERING)
    world.create_topic("t", configs=TIERED)
    world.create_topic("u")
    tiered, other = world.partition("t").log, world.partition("u").log
    assert highest_tiered_offset(tiered) == -1
    for log in (tiered, other):
        log.update_highest_remote_offset(41)
    assert (highest_tiered_offset(tiered), highest_tiered_offset(other)) == (41, -1)
