"""The answer to a request that failed as a whole, for any API: every error field carries the code.

Kafka writes this by hand for each request (AbstractRequest.getErrorResponse).  Here the response mirrors the request:
where the response has a top-level error it is set and the arrays stay empty, else each thing asked for is answered
with the error.  All other fields are neutral: -1 for ids, epochs and offsets, else zero or empty.
"""

import dataclasses
import functools
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from kio.index import load_response_schema

from broker.common.errors import ErrorCode
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request

_MINUS_ONE_SUFFIXES: Final = ("_id", "_epoch", "offset", "index", "timestamp", "port", "leader", "coordinator")


def error_response(request: Request, error: ErrorCode, message: str | None = None) -> Any:
    """kio's response entity for the request's version.  The protocol has no place for an error in a few of them
    (Metadata before 13 for all topics): their answer is empty."""
    return _build(load_response_schema(request.api_key, request.version), request.body, error, message)


def _build(entity_type: Any, source: Any, error: ErrorCode, message: str | None) -> Any:
    fields = dataclasses.fields(entity_type)
    mirrored = None if any(_is_error_code(field) for field in fields) else _mirrored_field(entity_type)
    values: dict[str, Any] = {}
    for field in fields:
        if _is_error_code(field):
            values[field.name] = error
        elif field.name == "error_message" and _is_optional(field.type):
            values[field.name] = message
        elif field.name == mirrored:
            item_type = _item_type(field)
            values[field.name] = tuple(
                _build(item_type, item, error, message) for item in _source_array(field.name, source)
            )
        elif _can_copy(field, source):
            values[field.name] = getattr(source, field.name)
        else:
            values[field.name] = _neutral(field)
    _name_after_scalar(fields, source, values)
    return entity_type(**values)


def _is_error_code(field: "dataclasses.Field[Any]") -> bool:
    return field.metadata.get("kafka_type") == "error_code" and get_origin(field.type) is not tuple


@functools.cache
def _mirrored_field(entity_type: Any) -> str | None:
    """The array whose items say the error, when the entity itself does not."""
    for field in dataclasses.fields(entity_type):
        item = _item_type(field)
        if item is not None and (
            any(_is_error_code(each) for each in dataclasses.fields(item)) or _mirrored_field(item) is not None
        ):
            return field.name
    return None


def _item_type(field: "dataclasses.Field[Any]") -> Any:
    """The entity type of an array of entities, else None."""
    annotation = _not_optional(field.type)
    if get_origin(annotation) is not tuple:
        return None
    item = get_args(annotation)[0]
    return item if dataclasses.is_dataclass(item) else None


def _source_array(name: str, source: Any) -> tuple[Any, ...]:
    """What was asked for: the request's array of the same name, else its first that is not empty."""
    if not dataclasses.is_dataclass(source):
        return ()
    same = getattr(source, name, None)
    if isinstance(same, tuple) and same:
        return same
    values = (getattr(source, field.name) for field in dataclasses.fields(source))
    return next((value for value in values if isinstance(value, tuple) and value), ())


def _can_copy(field: "dataclasses.Field[Any]", source: Any) -> bool:
    if _item_type(field) is not None or not dataclasses.is_dataclass(source):
        return False
    if field.name.endswith(("offset", "timestamp")):  # asked for, not found
        return False
    own = {each.name: each.type for each in dataclasses.fields(source)}
    return field.name in own and _not_optional(own[field.name]) == _not_optional(field.type)


def _name_after_scalar(fields: Any, source: Any, values: dict[str, Any]) -> None:
    """Name an item after a request that asks by plain names or numbers: `group_ids` is answered by groups."""
    if isinstance(source, bool) or not isinstance(source, str | int):
        return
    kafka_type = "string" if isinstance(source, str) else "int32"
    for field in fields:
        if field.metadata.get("kafka_type") == kafka_type and "error" not in field.name:
            values[field.name] = source
            return


def _neutral(field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if _is_optional(field.type):
        return None
    if get_origin(field.type) is tuple:
        return ()
    if dataclasses.is_dataclass(field.type):
        return _build(field.type, None, ErrorCode.none, None)
    match field.metadata.get("kafka_type"):
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "bool":
            return False
        case "timedelta_i32" | "timedelta_i64":
            return NO_THROTTLE
        case _:
            return -1 if field.name.endswith(_MINUS_ONE_SUFFIXES) else 0


def _not_optional(annotation: Any) -> Any:
    return (
        next(each for each in get_args(annotation) if each is not NoneType) if _is_optional(annotation) else annotation
    )


def _is_optional(annotation: Any) -> bool:
    return get_origin(annotation) is UnionType and NoneType in get_args(annotation)
