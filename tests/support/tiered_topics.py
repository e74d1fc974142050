"""Which settings a tiered topic may have and which it may not, for all who must refuse them alike."""

from collections.abc import Mapping
from typing import Final

TIERING: Final[Mapping[str, str]] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "LocalTieredStorage",
    "rsm.config.bucket": "file:///var/tiered",
}

TIERED: Final[Mapping[str, str]] = {"remote.storage.enable": "true"}
READ_ONLY: Final[Mapping[str, str]] = {**TIERED, "remote.log.copy.disable": "true"}

# The beginnings of sentences, as expressions.
DISABLED: Final = r"^Tiered storage is disabled: .*remote\.log\.storage\.system\.enable=true"
WITHOUT_DELETION: Final = r"^remote\.storage\.enable cannot become false while .*remote\.log\.delete\.on\.disable=true"

FIT: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("nothing else", TIERED),
    ("no policy", {**TIERED, "cleanup.policy": ""}),
    ("local ms as all", {**TIERED, "retention.ms": "1000", "local.retention.ms": "-2"}),
    ("local ms equal", {**TIERED, "retention.ms": "1000", "local.retention.ms": "1000"}),
    ("local ms shorter", {**TIERED, "retention.ms": "1000", "local.retention.ms": "0"}),
    ("local ms of what has no end", {**TIERED, "retention.ms": "-1", "local.retention.ms": "-1"}),
    ("some local ms of what has no end", {**TIERED, "retention.ms": "-1", "local.retention.ms": "5"}),
    ("local bytes as all", {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "-2"}),
    ("local bytes equal", {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "1000"}),
    ("local bytes fewer", {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "0"}),
    ("local bytes of what has no end", {**TIERED, "retention.bytes": "-1", "local.retention.bytes": "-1"}),
    ("some local bytes of what has no end", {**TIERED, "retention.bytes": "-1", "local.retention.bytes": "5"}),
    ("read only", READ_ONLY),
    ("read only, equal ms", {**READ_ONLY, "retention.ms": "1000", "local.retention.ms": "1000"}),
    ("read only, equal bytes", {**READ_ONLY, "retention.bytes": "1000", "local.retention.bytes": "1000"}),
    ("not tiered: compacted", {"cleanup.policy": "compact", "remote.storage.enable": "false"}),
    ("not tiered: local ms", {"retention.ms": "1000", "local.retention.ms": "5000"}),
    ("not tiered: local bytes", {"retention.bytes": "1000", "local.retention.bytes": "-1"}),
    ("not tiered: read only", {"remote.log.copy.disable": "true", "local.retention.ms": "5"}),
)

MISFITS: Final[tuple[tuple[Mapping[str, str], str], ...]] = (
    ({**TIERED, "cleanup.policy": "compact"}, r"cannot be compacted: its cleanup\.policy must be delete"),
    ({**TIERED, "cleanup.policy": "delete,compact"}, r"cannot be compacted: its cleanup\.policy must be delete"),
    (
        {**TIERED, "retention.ms": "1000", "local.retention.ms": "-1"},
        r"^local\.retention\.ms=-1: it cannot be without limit, as retention\.ms=1000 is not",
    ),
    (
        {**TIERED, "retention.ms": "1000", "local.retention.ms": "1001"},
        r"^local\.retention\.ms=1001: it must be at most retention\.ms=1000",
    ),
    (
        {**TIERED, "local.retention.ms": "604800001"},
        r"^local\.retention\.ms=604800001: it must be at most retention\.ms=604800000",
    ),
    (
        {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "-1"},
        r"^local\.retention\.bytes=-1: it cannot be without limit, as retention\.bytes=1000 is not",
    ),
    (
        {**TIERED, "retention.bytes": "1000", "local.retention.bytes": "1001"},
        r"^local\.retention\.bytes=1001: it must be at most retention\.bytes=1000",
    ),
    (
        {**READ_ONLY, "retention.ms": "1000", "local.retention.ms": "999"},
        r"^local\.retention\.ms=999: with remote\.log\.copy\.disable=true it must be -2, or equal retention\.ms=1000",
    ),
    (
        {**READ_ONLY, "retention.ms": "-1", "local.retention.ms": "999"},
        r"^local\.retention\.ms=999: with remote\.log\.copy\.disable=true it must be -2, or equal retention\.ms=-1",
    ),
    (
        {**READ_ONLY, "local.retention.bytes": "999"},
        r"^local\.retention\.bytes=999: with remote\.log\.copy\.disable=true it must be -2, or equal",
    ),
)
