"""Which errors a response tells, for the counters by code (Kafka's AbstractResponse.errorCounts)."""

import dataclasses
import functools
from collections import Counter
from types import NoneType, UnionType
from typing import Any, get_args, get_origin


def error_counts(entity: Any) -> Counter[int]:
    """How often each error code other than NONE stands in kio's response entity."""
    counts: Counter[int] = Counter()
    _count(entity, counts)
    return counts


def _count(entity: Any, counts: Counter[int]) -> None:
    entity_type: Any = type(entity)
    codes, arrays = _places(entity_type)
    for name in codes:
        code = int(getattr(entity, name))
        if code:
            counts[code] += 1
    for name in arrays:
        for item in getattr(entity, name) or ():
            _count(item, counts)


@functools.cache
def _places(entity_type: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that are error codes, and the arrays of entities that have any."""
    codes, arrays = [], []
    for field in dataclasses.fields(entity_type):
        annotation: Any = field.type
        if field.metadata.get("kafka_type") == "error_code":
            codes.append(field.name)
        if get_origin(annotation) is UnionType:
            annotation = next(each for each in get_args(annotation) if each is not NoneType)
        if get_origin(annotation) is tuple and dataclasses.is_dataclass(get_args(annotation)[0]):
            inner_codes, inner_arrays = _places(get_args(annotation)[0])
            if inner_codes or inner_arrays:
                arrays.append(field.name)
    return tuple(codes), tuple(arrays)
