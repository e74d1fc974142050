"""Overlay: changes to a mapping that is shared and therefore never changed itself."""

from collections.abc import Mapping
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(Generic[Key, Value]):
    """A base mapping and what became of some of its keys; `changes[key] is None` means removed.

    The base is copied once, when the changes are applied, and not at all when there are none.
    """

    __slots__ = ("base", "changes")

    def __init__(self, base: Mapping[Key, Value]) -> None:
        self.base = base
        self.changes: dict[Key, Value | None] = {}

    @classmethod
    def between(cls, old: Mapping[Key, Value], new: Mapping[Key, Value]) -> "Overlay[Key, Value]":
        """The changes that lead from one mapping to another."""
        overlay = cls(old)
        for key in old:
            if key not in new:
                overlay.changes[key] = None
        for key, value in new.items():
            if old.get(key) != value:
                overlay.changes[key] = value
        return overlay

    def get(self, key: Key) -> Value | None:
        if key in self.changes:
            return self.changes[key]
        return self.base.get(key)

    def set(self, key: Key, value: Value) -> None:
        self.changes[key] = value

    def remove(self, key: Key) -> None:
        if key in self.base:
            self.changes[key] = None
        else:
            self.changes.pop(key, None)

    def apply(self) -> Mapping[Key, Value]:
        if not self.changes:
            return self.base
        result = dict(self.base)
        for key, value in self.changes.items():
            if value is None:
                result.pop(key, None)
            else:
                result[key] = value
        return result
