import pytest

from broker.coordinator.group.consumer_protocol import ConsumerProtocolError, subscribed_topics

V0 = bytes.fromhex("00000000000100027431000000 00".replace(" ", ""))
V3 = bytes.fromhex("0003000000020002743100027432ffffffff0000000000000005ffff")


def test_any_version_is_read_as_version_0() -> None:
    assert subscribed_topics(V0) == ["t1"]
    assert subscribed_topics(V3) == ["t1", "t2"]
    assert subscribed_topics(b"\0\0\0\0\0\0") == []


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0\0\0\0\1",
        b"\0\0\0\0\0\1\0\5t",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\xff\xff\0\0\0\0",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\x7f\xff\xff\xff\0\1t",
    ],
)
def test_other_bytes_are_refused(metadata: bytes) -> None:
    with pytest.raises(ConsumerProtocolError):
        subscribed_topics(metadata)
