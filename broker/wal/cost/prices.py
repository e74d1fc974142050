"""Prices: what a store asks for requests and bytes, and what bytes between zones cost, by the byte and the second.

The prices themselves are in `broker/config/prices.toml`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from broker.config.broker_config import BrokerConfig
from broker.config.price_book import SHIPPED, StorePriceList

GB: Final = 1 << 30
MONTH_SECONDS: Final = 30 * 86_400
_EXPRESS_SUFFIX: Final = "--x-s3"  # of the names of directory buckets


class PriceList(StrEnum):
    """`wherry.price.list`: AUTO tells S3 Express from S3 by the bucket's name, and a directory is free."""

    AUTO = "auto"
    S3_EXPRESS = "s3-express"
    S3_STANDARD = "s3-standard"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class StorePrices:
    """Dollars: per request, per byte, and per byte kept for a second.  Deleting is free."""

    put: float = 0.0  # and LIST, and each request of a multipart upload
    get: float = 0.0  # and HEAD
    upload: float = 0.0
    retrieval: float = 0.0
    storage: float = 0.0

    @classmethod
    def of(cls, listed: StorePriceList) -> Self:
        return cls(
            put=listed.put_per_1000 / 1000,
            get=listed.get_per_1000 / 1000,
            upload=listed.upload_per_gb / GB,
            retrieval=listed.retrieval_per_gb / GB,
            storage=listed.kept_per_gb_month / GB / MONTH_SECONDS,
        )


_FREE: Final = StorePrices()
_PRICES: Final = {
    **{PriceList(name): StorePrices.of(listed) for name, listed in SHIPPED.stores.items()},
    PriceList.FREE: _FREE,
}


class Prices:
    """All prices one broker reckons with."""

    def __init__(
        self,
        price_list: PriceList = PriceList.AUTO,
        cross_zone_dollars_per_gb: float = SHIPPED.cross_zone_per_gb,
    ) -> None:
        self._list = price_list
        self.cross_zone = cross_zone_dollars_per_gb / GB  # per byte, both directions together

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        """Those of the settings."""
        return cls(PriceList(config.wherry_price_list), config.wherry_price_cross_zone_dollars_per_gb)

    def of_store(self, url: str) -> StorePrices:
        """Those of a bucket, by its URL."""
        if self._list is not PriceList.AUTO:
            return _PRICES[self._list]
        if not url.startswith("s3://"):
            return _FREE
        is_express = url.rstrip("/").endswith(_EXPRESS_SUFFIX)
        return _PRICES[PriceList.S3_EXPRESS if is_express else PriceList.S3_STANDARD]
