import pytest

from broker.config.wherry_settings import PRICE_LISTS
from broker.wal.cost.prices import GB, MONTH_SECONDS, PriceList, Prices, StorePrices
from tests.support.builders import broker_config


def test_the_worked_example_of_the_price_list() -> None:
    """The first example for S3 Express One Zone in the FAQ: 10 GB kept for 30 days, a million writes and nine million
    reads of 10 KB, which come to 2.58 dollars."""
    express = Prices(PriceList.S3_EXPRESS).of_store("s3://any")
    items = (
        10 * GB * MONTH_SECONDS * express.storage,
        1e6 * express.put,
        9e6 * express.get,
        1e6 * 10_240 * express.upload,
        9e6 * 10_240 * express.retrieval,
    )
    assert [round(item, 2) for item in items] == [1.10, 1.13, 0.27, 0.03, 0.05]
    assert round(sum(items), 2) == 2.58


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://wal--use1-az4--x-s3", PriceList.S3_EXPRESS),
        ("s3://wal--use1-az4--x-s3/", PriceList.S3_EXPRESS),
        ("s3://wal", PriceList.S3_STANDARD),
        ("file:///var/wal", PriceList.FREE),
    ],
)
def test_the_name_of_a_bucket_tells_its_prices(url: str, expected: PriceList) -> None:
    assert Prices().of_store(url) == Prices(expected).of_store("s3://other")


def test_a_list_that_is_named_holds_for_every_bucket() -> None:
    assert Prices(PriceList.FREE).of_store("s3://wal--use1-az4--x-s3") == StorePrices()
    standard = Prices(PriceList.S3_STANDARD).of_store("file:///var/wal")
    assert (standard.put, standard.get) == pytest.approx((0.000005, 0.0000004))
    assert (standard.upload, standard.retrieval) == (0, 0)


def test_bytes_between_zones() -> None:
    assert Prices(cross_zone_dollars_per_gb=0.04).cross_zone * GB == pytest.approx(0.04)
    assert Prices().cross_zone * GB == pytest.approx(0.02)


def test_prices_are_those_of_the_settings() -> None:
    given = {"wherry.price.list": "s3-standard", "wherry.price.cross.zone.dollars.per.gb": "0.01"}
    prices = Prices.of(broker_config(given))
    assert prices.of_store("file:///any") == Prices(PriceList.S3_STANDARD).of_store("s3://any")
    assert prices.cross_zone * GB == pytest.approx(0.01)
    assert Prices.of(broker_config()).of_store("file:///any") == StorePrices()
    assert tuple(PriceList) == PRICE_LISTS
