from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_quorum import describe_quorum
from tests.unit.server.handlers.forwarding_support import check_forwarded
from tests.unit.server.link_support import schema_of


def fields(version: int) -> dict[str, Any]:
    schema = schema_of(ApiKey.DESCRIBE_QUORUM, version)
    topic = schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),))
    return {"topics": (topic,)}


def test_the_controller_answers() -> None:
    check_forwarded(describe_quorum, ApiKey.DESCRIBE_QUORUM, fields)
