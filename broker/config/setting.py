"""One definition per setting: Kafka's name, type, default, validity, importance and prose together.

The same object parses the properties file, answers DescribeConfigs and writes docs/configuration.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast, overload

from broker.config.value_types import ConfigType, ValueType

T = TypeVar("T")


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Where a setting may be changed while the broker runs (Kafka's DynamicBrokerConfig)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(ValueError):
    """Values the broker cannot run with: one sentence each, naming the setting, the value and what is valid."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(sentences))
        self.sentences = sentences


@dataclass(frozen=True)
class Valid(Generic[T]):
    """What a setting accepts, as a check and in Kafka's words for it."""

    text: str
    check: Callable[[T], bool]


def at_least(minimum: float) -> Valid[Any]:
    return Valid(f"[{minimum},...]", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Valid[Any]:
    return Valid(f"[{minimum},...,{maximum}]", lambda value: minimum <= value <= maximum)


def one_of(*choices: str) -> Valid[Any]:
    return Valid(f"[{', '.join(choices)}]", lambda value: value in choices)


def all_of(*choices: str) -> Valid[Any]:
    """For lists: every entry is one of these; an empty list is fine."""
    return Valid(f"[{', '.join(choices)}]", lambda value: all(entry in choices for entry in value))


class Setting(Generic[T]):
    """A setting as an attribute of a `Config`, which must be named after it: `log.dir` is `log_dir`.

    `is_internal` settings are for tests and are described only when given (Kafka's defineInternal);
    `no_effect` says why a setting that clients may store does nothing yet; it is shown in the manual.
    `synonyms` are other names for the same thing, most specific first, this one included when it takes part.
    """

    def __init__(
        self,
        name: str,
        value_type: ValueType[T],
        *,
        default: T,
        doc: str,
        importance: Importance = Importance.MEDIUM,
        valid: Valid[Any] | None = None,
        update: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[str, ...] = (),
        default_is_null: bool = False,
        is_internal: bool = False,
        no_effect: str | None = None,
    ) -> None:
        self.name = name
        self.attribute = name.replace(".", "_")
        self.value_type = value_type
        self.default = default
        self.doc = doc
        self.importance = importance
        self.valid = valid
        self.update = update
        self.synonyms = synonyms or (name,)
        self.is_internal = is_internal
        self.no_effect = no_effect
        self._default_is_null = default_is_null

    def __set_name__(self, owner: type, attribute: str) -> None:
        assert attribute == self.attribute, f"{attribute} should be named after {self.name}"

    @overload
    def __get__(self, config: None, owner: type) -> "Setting[T]": ...
    @overload
    def __get__(self, config: "Config", owner: type) -> T: ...
    def __get__(self, config: "Config | None", owner: type) -> Any:
        # Values live in the instance's own dictionary, which comes first: a read costs an attribute and no call.
        assert config is None, f"{self.name} is read before its config is built"
        return self

    @property
    def config_type(self) -> ConfigType:
        return self.value_type.config_type

    @property
    def is_sensitive(self) -> bool:
        return self.config_type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        """The default as Kafka writes it; None where Kafka has null."""
        return None if self._default_is_null else self.format(self.default)

    def format(self, value: T) -> str | None:
        """A value as DescribeConfigs sends it; None for "not set"."""
        return None if value is None else self.value_type.format(value)

    def read(self, text: str) -> T:
        """The value of a text, or ConfigError."""
        try:
            value = self.value_type.parse(text.strip())
        except ValueError as error:
            shown = "[hidden]" if self.is_sensitive else repr(text)
            raise ConfigError(f"{self.name}={shown}: {error}{self._valid_hint()}.") from error
        if self.valid is not None and not self.valid.check(value):
            raise ConfigError(f"{self.name}={text!r}: valid values are {self.valid.text}.")
        return value

    def _valid_hint(self) -> str:
        return f"; valid values are {self.valid.text}" if self.valid is not None else ""


def optional(
    name: str,
    value_type: ValueType[T],
    *,
    doc: str,
    importance: Importance = Importance.MEDIUM,
    valid: Valid[Any] | None = None,
    update: UpdateMode = UpdateMode.READ_ONLY,
    synonyms: tuple[str, ...] = (),
    is_internal: bool = False,
    no_effect: str | None = None,
) -> Setting[T | None]:
    """A setting that is None unless it is given, as Kafka's null."""
    return Setting[T | None](
        name,
        cast(ValueType[T | None], value_type),
        default=None,
        doc=doc,
        importance=importance,
        valid=valid,
        update=update,
        synonyms=synonyms,
        is_internal=is_internal,
        no_effect=no_effect,
    )


class Config:
    """A whole set of values, immutable; a change is a new object.

    `properties` are the texts it was made from, `unknown_names` those of them that name no setting.
    """

    _settings: ClassVar[dict[str, Setting[Any]]] = {}
    properties: Mapping[str, str]
    unknown_names: tuple[str, ...]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        entries = (entry for base in cls.__mro__ for entry in vars(base).values())
        cls._settings = {entry.name: entry for entry in entries if isinstance(entry, Setting)}

    def __init__(self, properties: Mapping[str, str]) -> None:
        """ConfigError with one sentence for each value that cannot be read."""
        values: dict[str, Any] = {}
        sentences: list[str] = []
        for setting in self._settings.values():
            text = properties.get(setting.name)
            try:
                values[setting.attribute] = setting.default if text is None else setting.read(text)
            except ConfigError as error:
                sentences += error.sentences
        if sentences:
            raise ConfigError(*sentences)
        values["properties"] = MappingProxyType(dict(properties))
        values["unknown_names"] = tuple(sorted(properties.keys() - self._settings.keys()))
        self.__dict__.update(values)

    def __setattr__(self, attribute: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: a change is a new object")

    @classmethod
    def settings(cls) -> Iterable[Setting[Any]]:
        return cls._settings.values()

    @classmethod
    def setting(cls, name: str) -> Setting[Any] | None:
        """The definition of a name, None when there is none."""
        return cls._settings.get(name)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        return cls(properties)

    def is_set(self, name: str) -> bool:
        """Whether the value was given rather than defaulted."""
        return name in self.properties

    def _replace_values(self, **values: Any) -> None:
        """For constructors: put what a value resolves to in place of what was written."""
        self.__dict__.update(values)
