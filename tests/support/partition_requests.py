"""Requests about one partition that no ordinary client sends: to one broker, single fetches, ends of transactions."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.support.wire_client import WireClient

FETCH_VERSION: Final = 11  # the last one with names
MARKERS_VERSION: Final = 1
METADATA_VERSION: Final = 12
REQUEST_BYTES: Final = 1 << 20
PARTITION_BYTES: Final = REQUEST_BYTES // 8  # remote partitions share the bytes of a request


class Fetched(NamedTuple):
    """Of one partition; `aborted` are (producer id, first offset), `preferred_replica` is -1 where none is named."""

    error: ErrorCode
    records: bytes
    high_watermark: int
    aborted: tuple[tuple[int, int], ...]
    preferred_replica: int


def leader_known_here(client: WireClient, topic: str, partition: int) -> int:
    """Its node id, as this very broker has heard of it; -1 for none."""
    schema = client.request(ApiKey.METADATA, METADATA_VERSION)
    request = schema.MetadataRequest(
        topics=(schema.MetadataRequestTopic(name=topic, topic_id=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (row,) = client.ask(ApiKey.METADATA, METADATA_VERSION, request).topics
    return next((int(each.leader_id) for each in row.partitions if each.partition_index == partition), -1)


def end_transaction(client: WireClient, topic: str, producer_id: int, *, commits: bool) -> None:
    """What the coordinator tells the leader of a partition (WriteTxnMarkers)."""
    schema = client.request(ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION)
    marker = schema.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=commits,
        topics=(schema.WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    answer = client.ask(ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION, schema.WriteTxnMarkersRequest(markers=(marker,)))
    assert answer.markers[0].topics[0].partitions[0].error_code is ErrorCode.none


def fetch(
    client: WireClient, topic: str, offsets: Mapping[int, int], *, committed: bool = False, rack: str = ""
) -> dict[int, Fetched]:
    """One fetch without a session, of partitions by their numbers; it waits for no new records."""
    schema = client.request(ApiKey.FETCH, FETCH_VERSION)
    rows = tuple(
        schema.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        for partition, offset in offsets.items()
    )
    request = schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=REQUEST_BYTES,
        isolation_level=int(committed),
        topics=(schema.FetchTopic(topic=topic, partitions=rows),),
        forgotten_topics_data=(),
        rack_id=rack,
    )
    answer = client.ask(ApiKey.FETCH, FETCH_VERSION, request)
    return {row.partition_index: _fetched(row) for row in answer.responses[0].partitions}


def _fetched(row: Any) -> Fetched:
    aborted = tuple((each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
    return Fetched(
        ErrorCode(row.error_code), bytes(row.records or b""), row.high_watermark, aborted, row.preferred_read_replica
    )
