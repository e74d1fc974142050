"""Streams of bytes that are almost requests: what a case sends is a function of its number and nothing else.

The recorded requests of real clients are the seeds.  A case is what one connection sends: one to four frames, most of
them damaged (bits, cuts, lies about lengths, other versions and keys, splices, noise), in chunks of any size.
"""

import contextlib
import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.requests import decode_request
from tests.support.requests_corpus import recorded_requests

SEEDS = [request.frame for request in recorded_requests()]

API_KEY_MAX = 95
VERSION_MAX = 20
FRAMES_MAX = 4
NEW_PARTITIONS_MAX = 20
"""Of topics a case may create: more would be asked rightfully, and be slow rightfully."""
BROKER_ID = 1
"""Of the broker under test: a request to let it go is obeyed."""

INTERESTING_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
INTERESTING_INTS = (-1, -2, 0, 1, 2**31 - 1, -(2**31), 2**30, 65_536, 1_000_000)
INTERESTING_SHORTS = (-1, -2, 0, 1, 2**15 - 1, -(2**15))
LONG_VARINTS = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff" * 10 + b"\x01",
    b"\x80\x80\x80\x80\x08",
    b"\x80",
)

Frame = bytearray
Mutation = Callable[[random.Random, Frame], None]


class Case(NamedTuple):
    """What one connection sends."""

    chunks: list[bytes]
    to_controller: bool


def case(number: int) -> Case:
    chance = random.Random(number)
    stream = b"".join(_framed(chance, damaged_frame(chance)) for _ in range(chance.choice((1, 1, 1, 2, FRAMES_MAX))))
    if chance.random() < 0.1:
        stream = stream[: chance.randrange(len(stream) + 1)]
    return Case(_chunks(chance, stream), to_controller=chance.random() < 0.1)


def damaged_frame(chance: random.Random) -> bytes:
    """A request without its length."""
    frame = bytearray(chance.choice(SEEDS))
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5))):
        chance.choice(MUTATIONS)(chance, frame)
    return b"" if _is_rightful(bytes(frame)) else bytes(frame)


def _framed(chance: random.Random, frame: bytes) -> bytes:
    size = len(frame)
    if chance.random() < 0.05:
        size = chance.choice((size + 1, size - 1, 0, -1, size * 2, 2**31 - 1, -(2**31), 2**27, chance.randrange(2**16)))
    return struct.pack(">i", size) + frame


def _chunks(chance: random.Random, stream: bytes) -> list[bytes]:
    if chance.random() < 0.7:
        return [stream]
    cuts = sorted(chance.randrange(len(stream) + 1) for _ in range(chance.randint(1, 8)))
    return [part for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) if (part := stream[start:end])]


def _is_rightful(frame: bytes) -> bool:
    """Whether damage made a proper request of the frame whose proper effect is to harm the neighbour."""
    if int.from_bytes(frame[:2], "big") not in (
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.UNREGISTER_BROKER,
    ):
        return False
    with contextlib.suppress(ProtocolError):
        request = decode_request(frame)
        api_key, body = request.api_key, request.body
        if api_key == ApiKey.UNREGISTER_BROKER:
            return bool(body.broker_id == BROKER_ID)
        counts = [topic.num_partitions if api_key == ApiKey.CREATE_TOPICS else topic.count for topic in body.topics]
        return bool(sum(counts) > NEW_PARTITIONS_MAX)
    return False


def _position(chance: random.Random, frame: Frame) -> int:
    """Any byte, those of the header more often than their share."""
    size = len(frame)
    return chance.randrange(size) if chance.random() < 0.8 else chance.randrange(min(size, 24))


def flip_bits(chance: random.Random, frame: Frame) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        if frame:
            frame[_position(chance, frame)] ^= 1 << chance.randrange(8)


def set_bytes(chance: random.Random, frame: Frame) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        if frame:
            frame[_position(chance, frame)] = chance.choice((*INTERESTING_BYTES, chance.randrange(256)))


def cut_end(chance: random.Random, frame: Frame) -> None:
    if frame:
        del frame[_position(chance, frame) :]


def remove(chance: random.Random, frame: Frame) -> None:
    if frame:
        position = _position(chance, frame)
        del frame[position : position + chance.randint(1, 16)]


def insert(chance: random.Random, frame: Frame) -> None:
    position = _position(chance, frame) if frame else 0
    frame[position:position] = chance.randbytes(chance.choice((1, 1, 2, 4, 16, 200)))


def lie_in_an_int(chance: random.Random, frame: Frame) -> None:
    if len(frame) >= 4:
        struct.pack_into(">i", frame, chance.randrange(len(frame) - 3), chance.choice(INTERESTING_INTS))


def lie_in_a_short(chance: random.Random, frame: Frame) -> None:
    if len(frame) >= 2:
        struct.pack_into(">h", frame, chance.randrange(len(frame) - 1), chance.choice(INTERESTING_SHORTS))


def lie_in_a_varint(chance: random.Random, frame: Frame) -> None:
    if frame:
        position = _position(chance, frame)
        frame[position : position + 1] = chance.choice(LONG_VARINTS)


def other_version(chance: random.Random, frame: Frame) -> None:
    frame[2:4] = struct.pack(">h", chance.randint(-1, VERSION_MAX))


def other_key(chance: random.Random, frame: Frame) -> None:
    api_key = chance.randint(0, API_KEY_MAX) if chance.random() < 0.9 else chance.randint(-(2**15), 2**15 - 1)
    frame[0:2] = struct.pack(">h", api_key)


def double_a_range(chance: random.Random, frame: Frame) -> None:
    if frame:
        start = _position(chance, frame)
        frame[start:start] = frame[start : start + chance.randint(1, 64)] * chance.choice((1, 1, 3, 50))


def splice(chance: random.Random, frame: Frame) -> None:
    other = chance.choice(SEEDS)
    cut = chance.randrange(len(other))
    frame[min(cut, len(frame)) :] = other[cut:]


def append_noise(chance: random.Random, frame: Frame) -> None:
    frame += chance.randbytes(chance.choice((1, 4, 100)))


def become_noise(chance: random.Random, frame: Frame) -> None:
    frame[chance.choice((0, 4, 8, 10)) :] = chance.randbytes(chance.randrange(300))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    flip_bits,
    set_bytes,
    cut_end,
    remove,
    insert,
    lie_in_an_int,
    lie_in_an_int,
    lie_in_a_short,
    lie_in_a_varint,
    other_version,
    other_key,
    double_a_range,
    splice,
    append_noise,
    become_noise,
)
