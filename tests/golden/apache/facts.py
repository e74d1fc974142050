"""All that a broker tells of its topics and groups, as plain data: the same questions to Apache Kafka and to ours."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from broker.common.identifiers import uuid_to_text
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.records.record_batch import RecordBatch, batches
from tests.support.patience import until
from tests.support.wire_client import WireClient

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TOPIC_CONFIG = 1  # DescribeConfigs: where a value comes from
EPOCHS_ASKED = 6
ELECTED_MEANWHILE = frozenset(  # a broker whose heartbeats were late is without partitions, for a moment
    {ErrorCode.not_leader_or_follower, ErrorCode.leader_not_available, ErrorCode.offset_not_available}
)

Facts = dict[str, Any]


def describe(port: int, groups: dict[str, list[str]]) -> Facts:
    """Topics with everything in them, and what the groups committed for the given topics."""
    with WireClient(port) as client:
        topics = _topics(client)
        return {
            "topics": {name: _topic(client, name, *topics[name]) for name in sorted(topics)},
            "groups": {
                group: _offsets(client, group, {name: topics[name][1] for name in names})
                for group, names in groups.items()
            },
        }


def _topics(client: WireClient) -> dict[str, tuple[str, int]]:
    """Topic id and number of partitions by name, once every partition has a leader."""
    schema = client.request(ApiKey.METADATA, 12)
    request = schema.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )

    def are_led() -> Any:
        rows = client.ask(ApiKey.METADATA, 12, request).topics
        errors = {row.error_code for row in rows} | {part.error_code for row in rows for part in row.partitions}
        return rows if errors == {ErrorCode.none} else ()

    rows = until(are_led, "every partition has a leader", lambda: client.ask(ApiKey.METADATA, 12, request))
    return {row.name: (uuid_to_text(row.topic_id), len(row.partitions)) for row in rows}


def _topic(client: WireClient, name: str, topic_id: str, partitions: int) -> Facts:
    return {
        "id": topic_id,
        "configs": _configs(client, name),
        "partitions": [_partition(client, name, index) for index in range(partitions)],
    }


def _configs(client: WireClient, name: str) -> dict[str, str]:
    """The topic's own settings."""
    schema = client.request(ApiKey.DESCRIBE_CONFIGS, 4)
    resource = schema.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    request = schema.DescribeConfigsRequest(resources=(resource,), include_synonyms=False, include_documentation=False)
    (row,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert row.error_code is ErrorCode.none, row
    return {
        each.name: each.value for each in sorted(row.configs, key=lambda each: each.name) if each.config_source == 1
    }


def _partition(client: WireClient, name: str, index: int) -> Facts:
    start, end = _list_offset(client, name, index, EARLIEST)[1], _list_offset(client, name, index, LATEST)[1]
    found = list(_batches(client, name, index, start, end))
    records = [record for batch in found for record in batch.records() if record.offset >= start]
    stamps = sorted({record.timestamp for record in records})
    return {
        "start": start,
        "end": end,
        "last_stable": _list_offset(client, name, index, LATEST, READ_COMMITTED)[1],
        "batches": len(found),
        "batches_sha256": _digest(bytes(batch.buffer) for batch in found if batch.base_offset >= start),
        "records": len(records),
        "records_sha256": _digest(map(_text, records)),
        "codecs": sorted({batch.compression.label for batch in found}),
        "aborted": _aborted(client, name, index, start),
        "max_timestamp": _list_offset(client, name, index, MAX_TIMESTAMP),
        "by_timestamp": [_list_offset(client, name, index, stamp) for stamp in _some(stamps)],
        "epoch_ends": [_epoch_end(client, name, index, epoch) for epoch in range(EPOCHS_ASKED)],
        "producers": _producers(client, name, index),
        "last_batches": _last_batches(found),
    }


def _text(record: Any) -> bytes:
    return repr((record.offset, record.timestamp, record.key, record.value, record.headers)).encode()


def _some(stamps: list[int]) -> list[int]:
    """A handful of timestamps, and one between each and the next."""
    return [stamp + more for stamp in stamps[:: max(len(stamps) // 5, 1)] for more in (0, 1)]


def _digest(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _last_batches(found: list[RecordBatch]) -> dict[str, str]:
    """The newest data batch of each producer id, for those who want to send it again."""
    newest = {
        str(batch.producer_id): batch
        for batch in found
        if batch.producer_id >= 0 and not batch.is_control and not batch.is_transactional and batch.record_count
    }
    return {
        producer_id: base64.b64encode(bytes(batch.buffer)).decode()
        for producer_id, batch in sorted(newest.items())
        if batch.size_bytes < 1000
    }


def _list_offset(
    client: WireClient, name: str, index: int, timestamp: int, isolation_level: int = READ_UNCOMMITTED
) -> list[int]:
    """Timestamp and offset."""
    schema = client.request(ApiKey.LIST_OFFSETS, 7)
    row = schema.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
    topic = schema.ListOffsetsTopic(name=name, partitions=(row,))
    request = schema.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=(topic,))
    answer = _of_the_leader(lambda: client.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions, name, index)
    return [answer.timestamp, answer.offset]


def _of_the_leader(ask: Callable[[], Any], name: str, index: int) -> Any:
    """The only row of an answer, once the broker answers as the leader of the partition."""

    def answered() -> Any:
        (row,) = ask()
        return None if row.error_code in ELECTED_MEANWHILE else row

    answer = until(answered, f"{name}-{index} has a leader")
    assert answer.error_code is ErrorCode.none, (name, index, answer)
    return answer


def _fetch(client: WireClient, name: str, index: int, offset: int, isolation_level: int) -> Any:
    schema = client.request(ApiKey.FETCH, 11)
    row = schema.FetchPartition(
        partition=index,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=1_000_000,
    )
    request = schema.FetchRequest(
        replica_id=-1,
        max_wait=milliseconds(0),
        min_bytes=0,
        max_bytes=10_000_000,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic=name, partitions=(row,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    return _of_the_leader(lambda: client.ask(ApiKey.FETCH, 11, request).responses[0].partitions, name, index)


def _batches(client: WireClient, name: str, index: int, start: int, end: int) -> Iterator[RecordBatch]:
    offset = start
    while offset < end:
        found = list(batches(bytes(_fetch(client, name, index, offset, READ_UNCOMMITTED).records)))
        assert found, f"{name}-{index}: nothing at {offset}, the end is {end}"
        for batch in found:
            assert batch.is_crc_valid()
            yield batch
        offset = found[-1].next_offset


def _aborted(client: WireClient, name: str, index: int, start: int) -> list[list[int]]:
    found = _fetch(client, name, index, start, READ_COMMITTED).aborted_transactions or ()
    return [[each.producer_id, each.first_offset] for each in found]


def _epoch_end(client: WireClient, name: str, index: int, epoch: int) -> list[int]:
    schema = client.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3)
    row = schema.OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=epoch)
    topic = schema.OffsetForLeaderTopic(topic=name, partitions=(row,))
    request = schema.OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,))
    api_key = ApiKey.OFFSET_FOR_LEADER_EPOCH
    answer = _of_the_leader(lambda: client.ask(api_key, 3, request).topics[0].partitions, name, index)
    return [answer.leader_epoch, answer.end_offset]


def _producers(client: WireClient, name: str, index: int) -> list[list[int]]:
    """Id, epoch, last sequence, last timestamp, coordinator epoch and start of the open transaction of each."""
    schema = client.request(ApiKey.DESCRIBE_PRODUCERS, 0)
    topic = schema.TopicRequest(name=name, partition_indexes=(index,))
    request = schema.DescribeProducersRequest(topics=(topic,))
    answer = _of_the_leader(lambda: client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions, name, index)
    return sorted(
        [
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        ]
        for each in answer.active_producers
    )


def _offsets(client: WireClient, group: str, topics: dict[str, int]) -> list[list[Any]]:
    """Topic, partition, offset, leader epoch and metadata of each commit."""
    schema = client.request(ApiKey.OFFSET_FETCH, 7)
    asked = tuple(
        schema.OffsetFetchRequestTopic(name=name, partition_indexes=tuple(range(count)))
        for name, count in topics.items()
    )
    request = schema.OffsetFetchRequest(group_id=group, topics=asked, require_stable=False)

    def of_the_coordinator() -> Any:
        answer = client.ask(ApiKey.OFFSET_FETCH, 7, request)
        loading = (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
        return None if answer.error_code in loading else answer

    answer = until(of_the_coordinator, f"{group} has a coordinator")
    assert answer.error_code is ErrorCode.none, answer
    return [
        [topic.name, part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata]
        for topic in answer.topics
        for part in topic.partitions
    ]
