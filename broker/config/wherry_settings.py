"""Settings of Wherry that Kafka has no counterpart of; their names begin with `wherry.`"""

from typing import Final

from broker.config.price_book import SHIPPED
from broker.config.setting import Config, Importance, Setting, at_least, between, one_of
from broker.config.value_types import BOOLEAN, DOUBLE, INT, STRING

PRICE_LISTS: Final = ("auto", *SHIPPED.stores, "free")


class WherrySettings(Config):
    """What costs are reckoned with, how far reads of tiered storage look ahead, and the switch for drills."""

    wherry_price_list = Setting(
        "wherry.price.list",
        STRING,
        default="auto",
        importance=Importance.LOW,
        valid=one_of(*PRICE_LISTS),
        doc="What buckets cost, for the metrics in dollars and for `remote.wal.cost.policy`: list prices of "
        "`s3-express` or `s3-standard` in us-east-1, `free`, or `auto`: by the bucket's name, and a directory is free.",
    )
    wherry_price_cross_zone_dollars_per_gb = Setting(
        "wherry.price.cross.zone.dollars.per.gb",
        DOUBLE,
        default=SHIPPED.cross_zone_per_gb,
        importance=Importance.LOW,
        valid=at_least(0),
        doc="What 2^30 bytes between brokers of different zones (`broker.rack`) cost, both directions together.",
    )
    wherry_remote_log_read_ahead_chunks = Setting(
        "wherry.remote.log.read.ahead.chunks",
        INT,
        default=2,
        importance=Importance.LOW,
        valid=between(0, 8),
        doc="How many pieces of 2 MiB a broker fetches from the bucket of tiered storage before a consumer asks for "
        "them; less where too many partitions are read at once. 0 saves what nobody reads when a consumer stops, "
        "at the price of slower reads.",
    )
    wherry_fault_switch_enable = Setting(
        "wherry.fault.switch.enable",
        BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Whether `POST /faults` on `metrics.http.listener` may make this broker's buckets slow or faulty, for "
        "drills, even where that listener is not bound to loopback. On loopback it always may.",
    )
