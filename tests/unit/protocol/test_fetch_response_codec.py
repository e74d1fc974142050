"""By example; every version against kio is in tests/properties/test_codec_fetch.py."""

import struct

from broker.protocol import fetch_codec, fetch_response_codec


def test_an_answer_without_records_is_one_buffer_and_never_null() -> None:
    class Empty:
        partition = 0
        error = 0
        high_watermark = last_stable_offset = 5
        log_start_offset = 0
        aborted_transactions = None
        records = b""
        diverging_epoch = None
        preferred_read_replica = -1
        current_leader = None

    (modern,) = fetch_response_codec.encode_response(12, 1, 0, 0, [("t", [Empty()])])
    assert bytes(modern).endswith(b"\x01" + b"\0\0\0"), "empty compact records, then the tagged fields"
    (old,) = fetch_response_codec.encode_response(4, 1, 0, 0, [("t", [Empty()])])
    assert bytes(old).endswith(struct.pack(">i", 0))


def test_both_directions_are_found_in_one_place() -> None:
    assert fetch_codec.encode_response is fetch_response_codec.encode_response
