import pytest

from broker.common.murmur2 import murmur2, positive_murmur2


@pytest.mark.parametrize(
    ("text", "value"),
    [  # the vectors of Kafka's UtilsTest
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_the_published_vectors(text: str, value: int) -> None:
    assert murmur2(text.encode()) == value


def test_the_sign_bit_is_masked_not_negated() -> None:
    assert positive_murmur2(b"foobar") == -790332482 & 0x7FFFFFFF == 1357151166
