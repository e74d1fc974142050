"""Write a response (or a request of ours) once; answer in every version."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from kio.schema.index import schema_name_map

from broker.protocol.api_keys import ApiKey


class MessageSchema:
    """The classes of one message of one API at one version, each callable with the fields of *all* versions.

    A field the version does not have is dropped, as Kafka's generated code drops ignorable fields; a nested class the
    version does not have builds None.  A field no version has is a TypeError: a spelling mistake never reaches the
    wire.  Arrays are tuples, absent uuids are None (the zero uuid is written the same), durations `timedelta`.
    """

    def __init__(self, kind: str, api_key: ApiKey, version: int) -> None:
        known: dict[str, set[str]] = {}
        for each in schema_name_map[api_key.schema_name]:
            for name, entity in _entities(kind, api_key.schema_name, each).items():
                known.setdefault(name, set()).update(field.name for field in dataclasses.fields(entity))
        own = _entities(kind, api_key.schema_name, version)
        self.api_key = api_key
        self.version = version
        for name, all_fields in known.items():
            setattr(self, name, _factory(name, own.get(name), frozenset(all_fields)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(f"{self.api_key.title} has no class {name} in any version")


class ResponseSchema(MessageSchema):
    """What a handler answers with: `request.schema.ListOffsetsResponse(...)`."""

    @staticmethod
    @functools.cache
    def of(api_key: ApiKey, version: int) -> "ResponseSchema":
        return ResponseSchema("response", api_key, version)


class RequestSchema(MessageSchema):
    """What a client of ours asks with: `RequestSchema.of(ApiKey.ENVELOPE, 0).EnvelopeRequest(...)`."""

    @staticmethod
    @functools.cache
    def of(api_key: ApiKey, version: int) -> "RequestSchema":
        return RequestSchema("request", api_key, version)


def _factory(name: str, entity: type | None, all_fields: frozenset[str]) -> Callable[..., Any]:
    if entity is None:

        def build_nothing(**given: Any) -> None:
            if not given.keys() <= all_fields:
                raise TypeError(f"{name} has no field {sorted(given.keys() - all_fields)} in any version")

        return build_nothing

    known = entity
    dropped = tuple(sorted(all_fields - {field.name for field in dataclasses.fields(entity)}))
    if not dropped:
        return known  # a dataclass refuses unknown fields itself

    def build(**given: Any) -> Any:
        for field in dropped:
            given.pop(field, None)
        return known(**given)

    return build


def _entities(kind: str, schema_name: str, version: int) -> dict[str, type]:
    module = importlib.import_module(f"kio.schema.{schema_name}.v{version}.{kind}")
    classes = inspect.getmembers(module, inspect.isclass)
    return {n: c for n, c in classes if dataclasses.is_dataclass(c) and c.__module__ == module.__name__}
