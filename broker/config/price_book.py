"""PriceBook: the prices of `prices.toml`, the file that owns them, or of a copy that somebody edited."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from importlib.resources import files
from typing import Any, Final, Self

from broker.config.setting import ConfigError


@dataclass(frozen=True, slots=True)
class StorePriceList:
    """Dollars a store asks, in the units of its price list.  A GB is 2^30 bytes, a month 30 days."""

    put_per_1000: float
    get_per_1000: float
    upload_per_gb: float
    retrieval_per_gb: float
    kept_per_gb_month: float


@dataclass(frozen=True, slots=True)
class PriceBook:
    """`cross_zone_per_gb` is for both directions together."""

    as_of: date
    region: str
    stores: Mapping[str, StorePriceList]
    cross_zone_per_gb: float
    disk_per_gb_month: float

    @classmethod
    def parse(cls, text: str, name: str = "prices") -> Self:
        """From TOML; ConfigError, in which the file is called `name`, tells the first thing that is wrong."""
        try:
            known = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{name}: {error}.") from error
        table = _Table(name, known)
        stores = table.table("stores")
        if not stores.values:
            raise ConfigError(f"{name}: stores has no store.")
        return cls(
            as_of=table.of_type("as_of", date),
            region=table.of_type("region", str),
            stores={store: _store_prices(stores.table(store)) for store in stores.values},
            cross_zone_per_gb=table.table("transfer").price("cross_zone_per_gb"),
            disk_per_gb_month=table.table("disk").price("kept_per_gb_month"),
        )


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the file, and how to call it in a sentence."""

    name: str
    values: Mapping[str, Any]

    def table(self, key: str) -> "_Table":
        return _Table(f"{self.name}: {key}", self.of_type(key, dict))

    def price(self, key: str) -> float:
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ConfigError(f"{self.name}: {key}={value!r} is no price, which is a number from 0 on.")
        return float(value)

    def of_type(self, key: str, kind: type[Any]) -> Any:
        value = self.values.get(key)
        if not isinstance(value, kind):
            raise ConfigError(f"{self.name}: {key}={value!r} is no {kind.__name__}.")
        return value


def _store_prices(table: _Table) -> StorePriceList:
    return StorePriceList(**{each.name: table.price(each.name) for each in fields(StorePriceList)})


def shipped_text() -> str:
    """The file as it came."""
    return files("broker.config").joinpath("prices.toml").read_text(encoding="utf-8")


SHIPPED: Final = PriceBook.parse(shipped_text(), "prices.toml")
