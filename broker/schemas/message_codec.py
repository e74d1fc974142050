"""Reads and writes Kafka's generated message format from plain dataclasses, for messages that are stored in logs.

A message is ONE frozen dataclass with the fields of all its versions; `stored` says which type a field has in the
bytes and in which versions it is there.  Arrays are tuples, a nested message is a nested dataclass, `| None` means
nullable.  Class attributes: VERSIONS (a range) and FLEXIBLE_SINCE (the first version with compact lengths and tag
sections, KIP-482; None when there is none yet).

kio's readers are not used here: they refuse unknown tags, which a log may hold, and need a class per version.
"""

import dataclasses
import itertools
import struct
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, dataclass_transform, get_args, get_origin
from uuid import UUID

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, InvalidRecordError, UnsupportedVersionError
from broker.records.varint import decode_uvarint, encode_uvarint

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (data, position) -> (value, next position)
Write: TypeAlias = Callable[[bytearray, Any], None]


class StoredMessage(Protocol):
    """What every stored message's class offers."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    VERSIONS: ClassVar[range]
    FLEXIBLE_SINCE: ClassVar[int | None]


ClassT = TypeVar("ClassT")
MessageT = TypeVar("MessageT", bound=StoredMessage)


class MalformedRecordError(CorruptMessageError):
    """Stored bytes are not the message they are said to be."""


class UnknownVersionError(UnsupportedVersionError):
    """A message in a version this broker does not know: written by a newer one."""


def stored(
    kafka_type: str = "",
    *,
    since: int = 0,
    until: int | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    default: Any = dataclasses.MISSING,
) -> Any:
    """One field: its Kafka type (that of the elements for arrays, none for nested messages) and its versions.

    Writing a version without the field drops the value if it is the default or the field is `ignorable`, and fails
    otherwise.  Tagged fields need a default and are left out of the bytes when they have it.
    """
    metadata = {"kafka_type": kafka_type, "since": since, "until": until, "tag": tag, "ignorable": ignorable}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(stored,))
def message(kind: type[ClassT]) -> type[ClassT]:
    """Declares a stored message, or a part of one: a frozen dataclass with slots, made with keywords only."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(kind)


def encode_message(message: StoredMessage, version: int) -> bytes:
    """The message's body in that version.  ValueError when a value cannot be written in it."""
    output = bytearray()
    _codec(type(message), version).write(output, message)
    return bytes(output)


def decode_message(kind: type[MessageT], version: int, data: Buffer, position: int = 0) -> tuple[MessageT, int]:
    """(message, position after it).  Unknown tagged fields are skipped."""
    codec = _codec(kind, version)
    try:
        message, end = codec.read(data if isinstance(data, bytes) else bytes(data), position)
    except (struct.error, IndexError, ValueError, InvalidRecordError) as error:
        raise MalformedRecordError(f"Malformed {kind.__name__} of version {version}: {error}") from error
    return message, end


def decode_whole_message(kind: type[MessageT], version: int, data: Buffer, position: int = 0) -> MessageT:
    """As `decode_message`; bytes after the message are refused."""
    message, end = decode_message(kind, version, data, position)
    if end != len(data):
        raise MalformedRecordError(f"{len(data) - end} bytes follow a {kind.__name__} of version {version}")
    return message


class _MessageCodec:
    """One message class in one version, compiled to readers and writers of its fields."""

    def __init__(self, kind: type, version: int, is_flexible: bool) -> None:
        self._kind = kind
        self._version = version
        self._is_flexible = is_flexible
        self._fields: list[tuple[str, str, Read, Write]] = []  # name, Kafka type if it is a number, how it is coded
        self._tagged: dict[int, tuple[str, Read, Write, Any]] = {}
        self._absent: list[tuple[str, Any]] = []  # fields that must have their default
        for field in dataclasses.fields(kind):
            self._add(field)
        self._tagged = dict(sorted(self._tagged.items()))  # tags are written in ascending order
        self._reads: list[tuple[str | tuple[str, ...], Read]] = []
        self._writes: list[tuple[Callable[[Any], Any], Write]] = []
        for is_number, fields in itertools.groupby(self._fields, lambda field: field[1] != ""):
            self._add_steps(list(fields), are_numbers=is_number)

    def _add(self, field: dataclasses.Field[Any]) -> None:
        metadata = field.metadata
        until = metadata["until"]
        if self._version < metadata["since"] or (until is not None and self._version > until):
            if not metadata["ignorable"]:
                self._absent.append((field.name, field.default))
            return
        tag = metadata["tag"]
        read, write = _field_codec(field.type, metadata["kafka_type"], self._version, self._is_flexible)
        if tag is not None:
            self._tagged[tag] = (field.name, read, write, field.default)
        else:
            number = metadata["kafka_type"] if metadata["kafka_type"] in _NUMBERS and field.type in _PLAIN else ""
            self._fields.append((field.name, number, read, write))

    def _add_steps(self, fields: list[tuple[str, str, Read, Write]], *, are_numbers: bool) -> None:
        """Neighbouring numbers are read and written as one: messages of many parts are mostly numbers."""
        if are_numbers and len(fields) > 1:
            names = tuple(name for name, _, _, _ in fields)
            read, write = _numbers_codec("".join(_NUMBERS[kind] for _, kind, _, _ in fields))
            self._reads.append((names, read))
            self._writes.append((attrgetter(*names), write))
            return
        for name, _, read, write in fields:
            self._reads.append((name, read))
            self._writes.append((attrgetter(name), write))

    def write(self, output: bytearray, message: Any) -> None:
        for name, default in self._absent:
            if getattr(message, name) != default:
                raise ValueError(f"{self._kind.__name__} of version {self._version} cannot hold {name}")
        for value_of, write in self._writes:
            write(output, value_of(message))
        if self._is_flexible:
            self._write_tagged(output, message)

    def _write_tagged(self, output: bytearray, message: Any) -> None:
        present = [
            (tag, write, value)
            for tag, (name, _, write, default) in self._tagged.items()
            if (value := getattr(message, name)) != default
        ]
        output += encode_uvarint(len(present))
        for tag, write, value in present:
            body = bytearray()
            write(body, value)
            output += encode_uvarint(tag)
            output += encode_uvarint(len(body))
            output += body

    def read(self, data: bytes, position: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for names, read in self._reads:
            value, position = read(data, position)
            if isinstance(names, str):
                values[names] = value
            else:
                values.update(zip(names, value, strict=True))
        if self._is_flexible:
            position = self._read_tagged(data, position, values)
        return self._kind(**values), position

    def _read_tagged(self, data: bytes, position: int, values: dict[str, Any]) -> int:
        count, position = decode_uvarint(data, position)
        for _ in range(count):
            tag, position = decode_uvarint(data, position)
            size, position = decode_uvarint(data, position)
            end = _end_of(data, position, size)
            if tag in self._tagged:
                name, read, _, _ = self._tagged[tag]
                values[name], position = read(data, position)
                if position != end:
                    raise ValueError(f"tag {tag} declares {size} bytes")
            position = end
        return position


@cache
def _codec(kind: type[StoredMessage], version: int) -> _MessageCodec:
    if version not in kind.VERSIONS:
        raise UnknownVersionError(f"Version {version} of {kind.__name__} is not known")
    flexible_since = kind.FLEXIBLE_SINCE
    return _MessageCodec(kind, version, flexible_since is not None and version >= flexible_since)


def _field_codec(annotation: Any, kafka_type: str, version: int, is_flexible: bool) -> tuple[Read, Write]:
    is_nullable = False
    if get_origin(annotation) is UnionType:
        is_nullable = True
        (annotation,) = (part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is tuple:
        element = get_args(annotation)[0]
        return _array_codec(_field_codec(element, kafka_type, version, is_flexible), is_nullable, is_flexible)
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type) and not is_nullable, annotation
        nested = _MessageCodec(annotation, version, is_flexible)
        return nested.read, nested.write
    if kafka_type in ("string", "bytes"):
        return _text_codec(kafka_type == "string", is_nullable, is_flexible)
    assert not is_nullable, annotation
    return _PRIMITIVES[kafka_type]


def _end_of(data: bytes, position: int, size: int) -> int:
    end = position + size
    if end > len(data):
        raise IndexError(f"{size} bytes declared, {len(data) - position} left")
    return end


def _length_codec(is_flexible: bool, struct_: struct.Struct) -> tuple[Read, Callable[[int], bytes]]:
    """Lengths, -1 being null: a number in front, or one more as an unsigned varint."""
    if is_flexible:

        def read_compact(data: bytes, position: int) -> tuple[int, int]:
            length = data[position]
            if length < 0x80:  # nearly all of them
                return length - 1, position + 1
            length, position = decode_uvarint(data, position)
            return length - 1, position

        return read_compact, lambda length: encode_uvarint(length + 1)

    def read_plain(data: bytes, position: int) -> tuple[int, int]:
        return struct_.unpack_from(data, position)[0], position + struct_.size

    return read_plain, struct_.pack


def _text_codec(is_text: bool, is_nullable: bool, is_flexible: bool) -> tuple[Read, Write]:
    read_length, pack_length = _length_codec(is_flexible, _INT16 if is_text else _INT32)

    def read(data: bytes, position: int) -> tuple[str | bytes | None, int]:
        size, position = read_length(data, position)
        if size < 0:
            _check_null(is_nullable)
            return None, position
        end = _end_of(data, position, size)
        content = data[position:end]
        return content.decode() if is_text else content, end

    def write(output: bytearray, value: str | bytes | None) -> None:
        if value is None:
            _check_null(is_nullable)
            output += pack_length(-1)
            return
        content = value.encode() if isinstance(value, str) else value
        output += pack_length(len(content))
        output += content

    return read, write


def _array_codec(element: tuple[Read, Write], is_nullable: bool, is_flexible: bool) -> tuple[Read, Write]:
    read_length, pack_length = _length_codec(is_flexible, _INT32)
    read_element, write_element = element

    def read(data: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(data, position)
        if count < 0:
            _check_null(is_nullable)
            return None, position
        _end_of(data, position, count)  # an element takes a byte at least: refuses before a loop of billions
        values = []
        for _ in range(count):
            value, position = read_element(data, position)
            values.append(value)
        return tuple(values), position

    def write(output: bytearray, values: tuple[Any, ...] | None) -> None:
        if values is None:
            _check_null(is_nullable)
            output += pack_length(-1)
            return
        output += pack_length(len(values))
        for value in values:
            write_element(output, value)

    return read, write


def _check_null(is_nullable: bool) -> None:
    if not is_nullable:
        raise ValueError("null in a field that must have a value")


def _number_codec(format_: str) -> tuple[Read, Write]:
    number = struct.Struct(format_)
    unpack_from, pack, size = number.unpack_from, number.pack, number.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack_from(data, position)[0], position + size

    def write(output: bytearray, value: Any) -> None:
        try:
            output += pack(value)
        except struct.error as error:
            raise ValueError(f"{value!r}: {error}") from error

    return read, write


def _numbers_codec(formats: str) -> tuple[Read, Write]:
    """Several numbers, one after the other, as a tuple."""
    numbers = struct.Struct(">" + formats)
    unpack_from, pack, size = numbers.unpack_from, numbers.pack, numbers.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack_from(data, position), position + size

    def write(output: bytearray, values: Any) -> None:
        try:
            output += pack(*values)
        except struct.error as error:
            raise ValueError(f"{values!r}: {error}") from error

    return read, write


def _read_uuid(data: bytes, position: int) -> tuple[UUID, int]:
    end = _end_of(data, position, 16)
    return UUID(bytes=data[position:end]), end


def _write_uuid(output: bytearray, value: UUID) -> None:
    output += value.bytes


_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PLAIN: Final = (int, float, bool)  # the types of fields that hold one number
_NUMBERS: Final[Mapping[str, str]] = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
_PRIMITIVES: Final[Mapping[str, tuple[Read, Write]]] = {
    **{kafka_type: _number_codec(f">{format_}") for kafka_type, format_ in _NUMBERS.items()},
    "uuid": (_read_uuid, _write_uuid),
}
