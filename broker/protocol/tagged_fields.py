"""Leave unknown tagged fields out of a message, so that a reader that refuses them can read it (KIP-482)."""

import dataclasses
import functools
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import read_unsigned_varint, unsigned_varint

Skip = Callable[[bytes, int, bytearray], int]
"""Copies one value from a position to the end of the output, and returns the position behind it."""

_FIXED_SIZES: Final = {
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


def without_unknown_tags(entity_type: type, frame: bytes, position: int) -> bytes:
    """The message of this type that begins at `position`, without the tagged fields its schema does not name."""
    out = bytearray()
    _entity(entity_type)(frame, position, out)
    return bytes(out)


@functools.cache
def _entity(entity_type: type) -> Skip:
    is_flexible: bool = entity_type.__flexible__  # type: ignore[attr-defined]
    plain: list[Skip] = []
    tagged: dict[int, Skip] = {}
    for field in dataclasses.fields(entity_type):
        tag = field.metadata.get("tag")
        skip = _field(field, is_flexible, is_tagged=tag is not None)
        if tag is None:
            plain.append(skip)
        else:
            tagged[tag] = skip

    def copy(frame: bytes, position: int, out: bytearray) -> int:
        for skip in plain:
            position = skip(frame, position, out)
        return _copy_known_tags(tagged, frame, position, out) if is_flexible else position

    return copy


def _copy_known_tags(tagged: dict[int, Skip], frame: bytes, position: int, out: bytearray) -> int:
    count, position = read_unsigned_varint(frame, position)
    kept = 0
    fields = bytearray()
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        end = position + size
        if end > len(frame):
            raise MalformedFrameError(f"tagged field {tag} of {size} bytes ends after its frame of {len(frame)}")
        if tag in tagged:
            value = bytearray()
            tagged[tag](frame, position, value)
            fields += unsigned_varint(tag) + unsigned_varint(len(value)) + value
            kept += 1
        position = end
    out += unsigned_varint(kept) + fields
    return position


def _field(field: "dataclasses.Field[Any]", is_flexible: bool, is_tagged: bool) -> Skip:
    inner, is_array, is_optional = _unwrap(field.type)
    if dataclasses.is_dataclass(inner):
        assert isinstance(inner, type)
        item = _entity(inner)
        if is_optional and not is_array and not is_tagged:
            item = _nullable(item)  # KIP-893
    else:
        item = _primitive(field.metadata["kafka_type"], is_flexible)
    return _array(item, is_flexible) if is_array else item


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """The innermost type, whether it stands in an array, and whether null is allowed."""
    is_optional = False
    if get_origin(annotation) is UnionType:
        is_optional = True
        (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, is_optional
    return annotation, False, is_optional


def _primitive(kafka_type: str, is_flexible: bool) -> Skip:
    if kafka_type in _FIXED_SIZES:
        return _fixed(_FIXED_SIZES[kafka_type])
    if is_flexible:
        return _compact_bytes
    return _sized(2) if kafka_type == "string" else _sized(4)


def _fixed(size: int) -> Skip:
    return lambda frame, position, out: _copy(frame, position, position + size, out)


def _sized(prefix: int) -> Skip:
    def copy(frame: bytes, position: int, out: bytearray) -> int:
        size = int.from_bytes(frame[position : position + prefix], "big", signed=True)
        return _copy(frame, position, position + prefix + max(size, 0), out)

    return copy


def _compact_bytes(frame: bytes, position: int, out: bytearray) -> int:
    size, start = read_unsigned_varint(frame, position)
    return _copy(frame, position, start + max(size - 1, 0), out)


def _array(item: Skip, is_flexible: bool) -> Skip:
    def copy(frame: bytes, position: int, out: bytearray) -> int:
        if is_flexible:
            count, start = read_unsigned_varint(frame, position)
            count -= 1
        else:
            start = position + 4
            count = int.from_bytes(frame[position:start], "big", signed=True)
        position = _copy(frame, position, start, out)
        for _ in range(count):  # every item takes a byte at least, so the end of the frame bounds the loop
            position = item(frame, position, out)
        return position

    return copy


def _nullable(item: Skip) -> Skip:
    def copy(frame: bytes, position: int, out: bytearray) -> int:
        position = _copy(frame, position, position + 1, out)
        return item(frame, position, out) if out[-1] == 1 else position

    return copy


def _copy(frame: bytes, position: int, end: int, out: bytearray) -> int:
    if end > len(frame):
        raise MalformedFrameError(f"a field ends at {end}, after its frame of {len(frame)}")
    out += frame[position:end]
    return end
