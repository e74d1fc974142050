import struct

import pytest

from broker.protocol.errors import MalformedFrameError
from broker.protocol.frames import Frame


def header(client_id: bytes | None, size: int | None = None) -> memoryview:
    size = (-1 if client_id is None else len(client_id)) if size is None else size
    return memoryview(struct.pack(">hhih", 1, 12, -7, size) + (client_id or b""))


def test_the_fields_of_the_header() -> None:
    frame = Frame(header(b"rdkafka"), is_owned=True)
    assert (frame.api_key, frame.version, frame.correlation_id) == (1, 12, -7)
    assert (frame.client_id, frame.client_id_bytes) == ("rdkafka", b"rdkafka")
    assert frame.body_position == 17
    assert frame.is_owned


@pytest.mark.parametrize(("client_id", "expected"), [(None, None), (b"", "")])
def test_no_client_id_and_an_empty_one(client_id: bytes | None, expected: str | None) -> None:
    frame = Frame(header(client_id), is_owned=False)
    assert frame.client_id == expected
    assert frame.body_position == 10


def test_a_client_id_that_is_not_utf_8_is_still_a_name() -> None:
    assert Frame(header(b"a\xffb"), is_owned=False).client_id == "a�b"


@pytest.mark.parametrize("bad", [memoryview(b""), header(None)[:9], header(b"abc", size=4), header(b"", size=32767)])
def test_headers_that_end_too_early(bad: memoryview) -> None:
    with pytest.raises(MalformedFrameError):
        Frame(bad, is_owned=False)


def test_tagged_fields_of_the_header_are_skipped() -> None:
    frame = Frame(memoryview(bytes(header(b"c")) + b"\x01\x05\x02hi" + b"body"), is_owned=False)
    frame.skip_header_tags()
    assert bytes(frame.buffer[frame.body_position :]) == b"body"
