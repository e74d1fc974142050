import pytest

from broker.server.large_request import EAGER_BUFFER_BYTES_MAX, FIRST_BUFFER_BYTES, PACE, LargeRequest

ANNOUNCED = 100_000_000


def lend(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


def request_of(received: int, size_bytes: int = ANNOUNCED) -> LargeRequest:
    return LargeRequest(size_bytes, memoryview(bytes(range(200)) * (received // 200 + 1))[:received], lend)


@pytest.mark.parametrize(
    ("received", "size_bytes", "memory_bytes"),
    [
        (0, ANNOUNCED, FIRST_BUFFER_BYTES),
        (0, 50_000, 50_000),
        (FIRST_BUFFER_BYTES // 8 + 1, ANNOUNCED, FIRST_BUFFER_BYTES + 8),
        (EAGER_BUFFER_BYTES_MAX // 8, ANNOUNCED, EAGER_BUFFER_BYTES_MAX),
        (EAGER_BUFFER_BYTES_MAX // 4, ANNOUNCED, EAGER_BUFFER_BYTES_MAX),
        (3 * EAGER_BUFFER_BYTES_MAX, ANNOUNCED, 6 * EAGER_BUFFER_BYTES_MAX),
        (EAGER_BUFFER_BYTES_MAX // 4, 300_000, 300_000),
    ],
)
def test_memory_follows_what_has_arrived(received: int, size_bytes: int, memory_bytes: int) -> None:
    assert request_of(received, size_bytes).memory_bytes == memory_bytes


def test_it_moves_with_all_it_has() -> None:
    request = request_of(1000, 200_000)
    request.rest()[:] = b"y" * (FIRST_BUFFER_BYTES - 1000)
    request.filled_bytes = FIRST_BUFFER_BYTES
    assert (request.is_full, request.is_whole) == (True, False)
    assert request.grow() == 200_000 - FIRST_BUFFER_BYTES
    assert (request.is_full, len(request.rest())) == (False, 200_000 - FIRST_BUFFER_BYTES)
    assert bytes(request.buffer[:FIRST_BUFFER_BYTES]) == bytes(range(200)) * 5 + b"y" * (FIRST_BUFFER_BYTES - 1000)
    request.filled_bytes = 200_000
    assert (request.is_full, request.is_whole) == (True, True)


def test_its_pace_is_measured_from_one_look_to_the_next() -> None:
    request = request_of(1000)
    assert not request.is_slow()
    request.filled_bytes += FIRST_BUFFER_BYTES // PACE
    assert not request.is_slow()
    request.filled_bytes += FIRST_BUFFER_BYTES // PACE - 1
    assert request.is_slow()
    request.begin_pace()
    assert not request.is_slow()
    assert request.is_slow()
