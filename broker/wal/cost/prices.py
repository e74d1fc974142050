"""Prices: what a store asks for requests and bytes, and what bytes between zones cost.

List prices of us-east-1 as published in November 2026: https://aws.amazon.com/s3/pricing/ and the worked examples of
https://aws.amazon.com/s3/faqs/ (S3 Express One Zone after the cut of 10 April 2025: upload and retrieval are paid by
byte, whatever the size of the request), https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer (0.01 dollars for
each GB and direction between zones of a region).  A GB is 2^30 bytes, as it is there.  Bytes between a broker and a
bucket of its region are free.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from broker.config.broker_config import BrokerConfig

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


_FREE: Final = StorePrices()
_PRICES: Final[Mapping[PriceList, StorePrices]] = {
    PriceList.S3_EXPRESS: StorePrices(
        put=0.00113 / 1000,
        get=0.00003 / 1000,
        upload=0.0032 / GB,
        retrieval=0.0006 / GB,
        storage=0.11 / GB / MONTH_SECONDS,
    ),
    PriceList.S3_STANDARD: StorePrices(put=0.005 / 1000, get=0.0004 / 1000, storage=0.023 / GB / MONTH_SECONDS),
    PriceList.FREE: _FREE,
}


class Prices:
    """All prices one broker reckons with."""

    def __init__(self, price_list: PriceList = PriceList.AUTO, cross_zone_dollars_per_gb: float = 0.02) -> None:
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
