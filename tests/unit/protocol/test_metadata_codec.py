"""By example; every version against kio is in tests/properties/test_codec_metadata.py."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol import metadata_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import encode_response
from broker.protocol.response_schema import ResponseSchema


def answer(version: int) -> Any:
    schema = ResponseSchema.of(ApiKey.METADATA, version)
    return schema.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(schema.MetadataResponseBroker(node_id=1, host="h", port=9092, rack=None),),
        cluster_id="c",
        controller_id=1,
        topics=(),
        cluster_authorized_operations=-1,
        error_code=ErrorCode.none,
    )


def test_the_oldest_version_byte_by_byte() -> None:
    (encoded,) = metadata_codec.encode_response(0, 7, answer(0))
    body = "0000000700000001000000010001680000238400000000"
    assert encoded.hex() == f"{len(body) // 2:08x}" + body


def test_the_usual_way_to_encode_uses_it() -> None:
    assert encode_response(ApiKey.METADATA, 13, 7, answer(13)) == metadata_codec.encode_response(13, 7, answer(13))
