"""LogEnvironment: what logs are given; without housekeeping they still work."""

from pathlib import Path

from broker.common.chance import Chance
from broker.log.log_environment import LogEnvironment
from broker.log.log_loader import load_log
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from tests.support.builders import parsed
from tests.support.sim_disk import SimFileSystem
from tests.unit.log.log_world import TP, LogWorld, SettableClock, topic_config


def test_a_tool_needs_no_housekeeping() -> None:
    disk = SimFileSystem()
    directory = Path("/d/t-0")
    disk.make_directories(directory)
    environment = LogEnvironment(disk, SettableClock(), Chance(1), LogMetrics(MetricsRegistry()))
    log = load_log(environment, directory, TP, topic_config(segment_bytes=200)).log
    world = LogWorld()
    for _ in range(4):
        log.append_as_leader(parsed(world.batch()), 0)
    log.truncate_to(1)
    assert log.log_end_offset == 1
    assert environment.producer_id_expiration_ms == 86_400_000
