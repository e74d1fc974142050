"""Write a response (or a request of ours) once; answer in every version."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Set
from typing import Any

from kio.schema.index import schema_name_map

from broker.protocol.api_keys import ApiKey


class MessageSchema:
    """The classes of one message of one API at one version, each callable with the fields of *all* versions.

    A field the version does not have is dropped, as Kafka's generated code drops ignorable fields; a nested class the
    version does not have builds None.  A field no version has is a TypeError: a spelling mistake never reaches the
    wire.  Arrays are tuples, absent uuids are None (the zero uuid is written the same), durations `timedelta`.

    Other versions are loaded only when a field or a class is met that the own version does not have, the newest first,
    which mostly knows it: loading all 18 of Fetch takes longer than the rest of a start.
    """

    def __init__(self, kind: str, api_key: ApiKey, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self._kind = kind
        self._known: dict[str, set[str]] = {}  # by class: the fields it has in the versions read so far
        self._unread = sorted(schema_name_map[api_key.schema_name])
        for name, entity in _entities(kind, api_key.schema_name, version).items():
            setattr(self, name, self._factory(name, entity))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not self._is_known(name, frozenset()):
            raise AttributeError(f"{self.api_key.title} has no class {name} in any version")

        def build_nothing(**given: Any) -> None:
            self._check(name, given.keys())

        setattr(self, name, build_nothing)
        return build_nothing

    def read_newest(self) -> None:
        """Have the newest version at hand, too, for what the own one does not have."""
        if not self._known:
            self._read_next()

    def _is_known(self, name: str, fields: Set[str]) -> bool:
        """Whether the class has these fields in any version."""
        while name not in self._known or not fields <= self._known[name]:
            if not self._unread:
                return False
            self._read_next()
        return True

    def _read_next(self) -> None:
        for name, entity in _entities(self._kind, self.api_key.schema_name, self._unread.pop()).items():
            self._known.setdefault(name, set()).update(field.name for field in dataclasses.fields(entity))

    def _check(self, name: str, given: Set[str]) -> None:
        if not self._is_known(name, given):
            unknown = given - self._known.get(name, set())
            raise TypeError(f"{name} has no field {sorted(unknown)} in any version")

    def _factory(self, name: str, entity: type) -> Callable[..., Any]:
        own_fields = frozenset(field.name for field in dataclasses.fields(entity))
        dropped: set[str] = set()  # what callers of this version's class give that it does not have

        def build(**given: Any) -> Any:
            if not given.keys() <= own_fields:
                others = given.keys() - own_fields
                if not others <= dropped:
                    self._check(name, others)
                    dropped.update(others)
                for field in others:
                    del given[field]
            return entity(**given)

        return build


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


def load_package(schema_name: str, version: int) -> None:
    """Have kio's classes of one version.  ModuleNotFoundError when there are none.

    To be called before one of its modules is imported: packages import their modules, so a thread that holds a module
    and waits for the package would stand in the way of another that does it the other way round.
    """
    importlib.import_module(f"kio.schema.{schema_name}.v{version}")


def _entities(kind: str, schema_name: str, version: int) -> dict[str, type]:
    load_package(schema_name, version)
    module = importlib.import_module(f"kio.schema.{schema_name}.v{version}.{kind}")
    classes = inspect.getmembers(module, inspect.isclass)
    return {n: c for n, c in classes if dataclasses.is_dataclass(c) and c.__module__ == module.__name__}
