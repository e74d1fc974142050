"""Damaged requests in the process itself, by the thousand: they decode or are refused, and nothing else is raised.

`WHERRY_FUZZ_CASES=1000000` runs the long form (`make fuzz`).
"""

import contextlib
import os
import random

import pytest

from broker.protocol import fetch_codec, produce_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.frames import Frame
from broker.protocol.requests import decode_request, has_request_header_tags
from tests.support.fuzz_cases import damaged_frame

pytestmark = pytest.mark.timeout(24 * 3600)  # of the long form

CASES = int(os.environ.get("WHERRY_FUZZ_CASES", "10000"))
FIRST = int(os.environ.get("WHERRY_FUZZ_FIRST", "0"))

FAST_CODECS = {
    (ApiKey.PRODUCE, range(3, 14)): produce_codec.decode,
    (ApiKey.FETCH, range(4, 19)): fetch_codec.decode,
}


def decode(data: bytes) -> None:
    frame = Frame(memoryview(data), is_owned=True)
    for (api_key, versions), decode_body in FAST_CODECS.items():
        if frame.api_key == api_key and frame.version in versions:
            if has_request_header_tags(api_key, frame.version):
                frame.skip_header_tags()
            decode_body(frame.buffer, frame.body_position, frame.version)
    decode_request(data)


def test_damaged_requests() -> None:
    refused = 0
    for number in range(FIRST, FIRST + CASES):
        data = damaged_frame(random.Random(number))
        try:
            decode(data)
        except ProtocolError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"case {number}: {data.hex()}") from error
    assert CASES * 0.2 < refused < CASES * 0.9, "the cases are either no damage at all, or nothing but noise"
    with contextlib.suppress(ProtocolError):
        decode(b"")
