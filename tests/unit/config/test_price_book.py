from datetime import date

import pytest

from broker.config.price_book import SHIPPED, PriceBook, StorePriceList, shipped_text
from broker.config.setting import ConfigError


def test_the_file_that_comes_with_us_is_dated() -> None:
    assert PriceBook.parse(shipped_text()) == SHIPPED
    assert SHIPPED.as_of >= date(2026, 11, 1)
    assert SHIPPED.region == "us-east-1"
    assert SHIPPED.stores["s3-express"] == StorePriceList(
        put_per_1000=0.00113,
        get_per_1000=0.00003,
        upload_per_gb=0.0032,
        retrieval_per_gb=0.0006,
        kept_per_gb_month=0.11,
    )
    assert (SHIPPED.cross_zone_per_gb, SHIPPED.disk_per_gb_month) == (0.02, 0.08)


def test_an_edited_copy_may_have_other_stores_and_whole_numbers() -> None:
    text = shipped_text().replace("s3-express", "minio").replace("0.00113", "0").replace("0.02 ", "1 ")
    book = PriceBook.parse(text)
    assert list(book.stores) == ["minio", "s3-standard"]
    assert (book.stores["minio"].put_per_1000, book.cross_zone_per_gb) == (0, 1)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("0.00113", "-1", "mine.toml: stores: s3-express: put_per_1000=-1 is no price, which is a number from 0 on."),
        ("0.00113", '"x"', "mine.toml: stores: s3-express: put_per_1000='x' is no price, which is a number from 0 on."),
        (
            "0.00113",
            "true",
            "mine.toml: stores: s3-express: put_per_1000=True is no price, which is a number from 0 on.",
        ),
        ("0.00113", "inf", "mine.toml: stores: s3-express: put_per_1000=inf is no price, which is a number from 0 on."),
        ("2026-11-01", "7", "mine.toml: as_of=7 is no date."),
        ("[transfer]", "[other]", "mine.toml: transfer=None is no dict."),
        (
            "cross_zone_per_gb",
            "cross",
            "mine.toml: transfer: cross_zone_per_gb=None is no price, which is a number from 0 on.",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(old: str, new: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        PriceBook.parse(shipped_text().replace(old, new), "mine.toml")
    assert raised.value.sentences == (sentence,)


def test_no_toml_and_no_store() -> None:
    with pytest.raises(ConfigError, match=r"^mine\.toml: "):
        PriceBook.parse("as_of = ", "mine.toml")
    with pytest.raises(ConfigError, match="no store"):
        PriceBook.parse("[stores]\n")
