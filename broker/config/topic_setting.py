"""TopicSetting: a setting of a topic that a broker may give a default."""

from collections.abc import Callable
from typing import Any, TypeVar

from broker.config.broker_config import BrokerConfig
from broker.config.setting import Importance, Setting, UpdateMode, Valid
from broker.config.value_types import ValueType

T = TypeVar("T")


class TopicSetting(Setting[T]):
    """A setting of a topic; `broker_value` reads the default a broker gives it, `synonyms` are that default's names."""

    def __init__(
        self,
        name: str,
        value_type: ValueType[T],
        *,
        default: T,
        doc: str,
        valid: Valid[Any] | None = None,
        synonyms: tuple[str, ...] = (),
        broker_value: Callable[[BrokerConfig], T] | None = None,
        no_effect: str | None = None,
    ) -> None:
        super().__init__(
            name,
            value_type,
            default=default,
            doc=doc,
            valid=valid,
            importance=Importance.MEDIUM,
            update=UpdateMode.CLUSTER_WIDE,
            synonyms=synonyms or (name,),
            no_effect=no_effect,
        )
        self.broker_synonyms = synonyms
        self.broker_value = broker_value
