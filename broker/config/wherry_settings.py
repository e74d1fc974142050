"""Settings of Wherry that Kafka has no counterpart of; their names begin with `wherry.`"""

from typing import Final

from broker.config.setting import Config, Importance, Setting, at_least, one_of
from broker.config.value_types import BOOLEAN, DOUBLE, STRING

PRICE_LISTS: Final = ("auto", "s3-express", "s3-standard", "free")


class WherrySettings(Config):
    """What costs are reckoned with, and the switch for drills."""

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
        default=0.02,
        importance=Importance.LOW,
        valid=at_least(0),
        doc="What 2^30 bytes between brokers of different zones (`broker.rack`) cost, both directions together.",
    )
    wherry_fault_switch_enable = Setting(
        "wherry.fault.switch.enable",
        BOOLEAN,
        default=False,
        importance=Importance.LOW,
        doc="Whether `POST /faults` on `metrics.http.listener` may make this broker's buckets slow or faulty, for "
        "drills, even where that listener is not bound to loopback. On loopback it always may.",
    )
