"""Walk a message by its schema before kio reads it.

kio's reader takes memory for as many items as an array claims to have, so that a count of two thousand million ends
the process; it reads null where an array may not be null; and it refuses tagged fields it does not know, which every
future client sends (KIP-482).  The walk checks that each length and count fits the bytes that are there and that arrays
are null only where they may be, and can leave the unknown fields out.
"""

import dataclasses
import functools
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import read_unsigned_varint, unsigned_varint

Step = Callable[[bytes, int, bytearray | None], int]
"""Passes one value and returns the position behind it; appends the value to the output if there is one."""

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
_NULL: Final = b"\xff"  # the mark of a struct that is not there (KIP-893)


class UnknownTaggedFieldError(Exception):
    """The message has a tagged field that its schema does not name."""


def readable_by_kio(entity_type: type, frame: bytes, position: int) -> tuple[bytes, int]:
    """Where kio may read the message that begins at `position`: there, or in a copy without its unknown fields.

    MalformedFrameError when a length or a count does not fit.
    """
    walk = _entity(entity_type)
    try:
        walk(frame, position, None)
    except UnknownTaggedFieldError:
        return without_unknown_tags(entity_type, frame, position), 0
    return frame, position


def without_unknown_tags(entity_type: type, frame: bytes, position: int) -> bytes:
    """The message of this type that begins at `position`, without the tagged fields its schema does not name."""
    out = bytearray()
    _entity(entity_type)(frame, position, out)
    return bytes(out)


@functools.cache
def _entity(entity_type: type) -> Step:
    is_flexible: bool = entity_type.__flexible__  # type: ignore[attr-defined]
    plain: list[Step] = []
    tagged: dict[int, Step] = {}
    fixed_size = 0  # of the fields passed since the last one of varying size: they are one step
    for field in dataclasses.fields(entity_type):
        tag = field.metadata.get("tag")
        size = _fixed_size(field)
        if tag is not None:
            tagged[tag] = _field(field, is_flexible, is_tagged=True)
        elif size:
            fixed_size += size
        else:
            if fixed_size:
                plain.append(_fixed(fixed_size))
                fixed_size = 0
            plain.append(_field(field, is_flexible, is_tagged=False))
    if fixed_size:
        plain.append(_fixed(fixed_size))
    if is_flexible:
        plain.append(functools.partial(_tagged_fields, tagged))
    steps = tuple(plain)

    def walk(frame: bytes, position: int, out: bytearray | None) -> int:
        for step in steps:
            position = step(frame, position, out)
        return position

    return walk


def _tagged_fields(tagged: dict[int, Step], frame: bytes, position: int, out: bytearray | None) -> int:
    if out is None and frame[position : position + 1] == b"\0":
        return position + 1
    count, position = read_unsigned_varint(frame, position)
    kept = 0
    fields = bytearray()
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        end = position + size
        if end > len(frame):
            raise MalformedFrameError(f"tagged field {tag} of {size} bytes ends after its frame of {len(frame)}")
        step = tagged.get(tag)
        if step is not None:
            value = bytearray()
            if step(frame, position, None if out is None else value) > end:
                raise MalformedFrameError(f"tagged field {tag} is longer than its {size} bytes")
            fields += unsigned_varint(tag) + unsigned_varint(len(value)) + value
            kept += 1
        elif out is None:
            raise UnknownTaggedFieldError(tag)
        position = end
    if out is not None:
        out += unsigned_varint(kept) + fields
    return position


def _fixed_size(field: "dataclasses.Field[Any]") -> int:
    """The bytes of a field that always has as many, else 0."""
    inner, is_array, _ = _unwrap(field.type)
    if is_array or dataclasses.is_dataclass(inner):
        return 0
    return _FIXED_SIZES.get(field.metadata["kafka_type"], 0)


def _field(field: "dataclasses.Field[Any]", is_flexible: bool, is_tagged: bool) -> Step:
    inner, is_array, is_optional = _unwrap(field.type)
    if dataclasses.is_dataclass(inner):
        assert isinstance(inner, type)
        if is_array:
            return _array(_entity(inner), is_flexible, is_optional)
        return _nullable(_entity(inner)) if is_optional and not is_tagged else _entity(inner)
    kafka_type = field.metadata["kafka_type"]
    size = _FIXED_SIZES.get(kafka_type)
    if is_array and size:
        return _fixed_array(size, is_flexible, is_optional)
    item = _fixed(size) if size else _sized(kafka_type, is_flexible)
    return _array(item, is_flexible, is_optional) if is_array else item


def _unwrap(annotation: Any) -> tuple[Any, bool, bool]:
    """The innermost type, whether it stands in an array, and whether null is allowed."""
    is_optional = False
    if get_origin(annotation) is UnionType:
        is_optional = True
        (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, is_optional
    return annotation, False, is_optional


def _fixed(size: int) -> Step:
    def step(frame: bytes, position: int, out: bytearray | None) -> int:
        return _pass(frame, position, position + size, out)

    return step


def _sized(kafka_type: str, is_flexible: bool) -> Step:
    """Strings and bytes."""
    if is_flexible:
        return _compact
    return _legacy_string if kafka_type == "string" else _legacy_bytes


def _compact(frame: bytes, position: int, out: bytearray | None) -> int:
    size, start = read_unsigned_varint(frame, position)
    return _pass(frame, position, start + size - 1 if size else start, out)


def _legacy_string(frame: bytes, position: int, out: bytearray | None) -> int:
    size = int.from_bytes(frame[position : position + 2], "big", signed=True)
    return _pass(frame, position, position + 2 + size if size > 0 else position + 2, out)


def _legacy_bytes(frame: bytes, position: int, out: bytearray | None) -> int:
    size = int.from_bytes(frame[position : position + 4], "big", signed=True)
    return _pass(frame, position, position + 4 + size if size > 0 else position + 4, out)


def _fixed_array(size: int, is_flexible: bool, is_optional: bool) -> Step:
    def step(frame: bytes, position: int, out: bytearray | None) -> int:
        count, start = _count(frame, position, is_flexible, is_optional)
        return _pass(frame, position, start + count * size, out)

    return step


def _array(item: Step, is_flexible: bool, is_optional: bool) -> Step:
    def step(frame: bytes, position: int, out: bytearray | None) -> int:
        count, start = _count(frame, position, is_flexible, is_optional)
        position = _pass(frame, position, start, out)
        for _ in range(count):
            position = item(frame, position, out)
        return position

    return step


def _count(frame: bytes, position: int, is_flexible: bool, is_optional: bool) -> tuple[int, int]:
    """How many items follow (none for null), and where; every item takes a byte at least."""
    if is_flexible:
        count, start = read_unsigned_varint(frame, position)
        count -= 1
    else:
        start = position + 4
        count = int.from_bytes(frame[position:start], "big", signed=True)
    if count > len(frame) - start:
        raise MalformedFrameError(f"an array of {count} items at {position} in a frame of {len(frame)}")
    if count < 0 and not is_optional:
        raise MalformedFrameError(f"a null array at {position}, where null is not allowed")
    return max(count, 0), start


def _nullable(item: Step) -> Step:
    def step(frame: bytes, position: int, out: bytearray | None) -> int:
        start = _pass(frame, position, position + 1, out)
        return start if frame[position:start] == _NULL else item(frame, start, out)

    return step


def _pass(frame: bytes, position: int, end: int, out: bytearray | None) -> int:
    if end > len(frame):
        raise MalformedFrameError(f"a field ends at {end}, after its frame of {len(frame)}")
    if out is not None:
        out += frame[position:end]
    return end
