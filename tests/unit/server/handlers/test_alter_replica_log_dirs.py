from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_stays_in_the_only_directory(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("here", partitions=2)
        world.create_topic("elsewhere", replicas=(2,))
        classes = schema(ApiKey.ALTER_REPLICA_LOG_DIRS, version)
        asked = ((str(tmp_path), "here", (0, 7)), (str(tmp_path), "elsewhere", (0,)), ("/other", "here", (1,)))
        entity = classes.AlterReplicaLogDirsRequest(
            dirs=tuple(
                classes.AlterReplicaLogDir(
                    path=path, topics=(classes.AlterReplicaLogDirTopic(name=topic, partitions=partitions),)
                )
                for path, topic, partitions in asked
            )
        )
        response = await world.call(alter_replica_log_dirs, ApiKey.ALTER_REPLICA_LOG_DIRS, version, entity)
        answers = {
            (topic.topic_name, each.partition_index): each.error_code
            for topic in response.results
            for each in topic.partitions
        }
        assert answers == {
            ("here", 0): ErrorCode.none,
            ("here", 7): ErrorCode.unknown_topic_or_partition,
            ("here", 1): ErrorCode.log_dir_not_found,
            ("elsewhere", 0): ErrorCode.replica_not_available,
        }

    simulate(story)
