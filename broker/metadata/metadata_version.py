"""Levels of the finalized feature `metadata.version`: which records a cluster may write (Kafka's MetadataVersion)."""

from enum import IntEnum
from typing import Final

METADATA_VERSION_FEATURE: Final = "metadata.version"
KRAFT_VERSION_FEATURE: Final = "kraft.version"
ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"


class MetadataVersion(IntEnum):
    """Every level of Kafka 3.3 to 4.2.  Level 30 (4.3-IV0) has records we do not know and is not claimed."""

    IBP_3_3_IV3 = 7
    IBP_3_4_IV0 = 8
    IBP_3_5_IV0 = 9
    IBP_3_5_IV1 = 10
    IBP_3_5_IV2 = 11
    IBP_3_6_IV0 = 12
    IBP_3_6_IV1 = 13
    IBP_3_6_IV2 = 14
    IBP_3_7_IV0 = 15
    IBP_3_7_IV1 = 16
    IBP_3_7_IV2 = 17
    IBP_3_7_IV3 = 18
    IBP_3_7_IV4 = 19
    IBP_3_8_IV0 = 20
    IBP_3_9_IV0 = 21
    IBP_4_0_IV0 = 22
    IBP_4_0_IV1 = 23
    IBP_4_0_IV2 = 24
    IBP_4_0_IV3 = 25
    IBP_4_1_IV0 = 26
    IBP_4_1_IV1 = 27
    IBP_4_2_IV0 = 28
    IBP_4_2_IV1 = 29

    @property
    def release(self) -> str:
        """Kafka's text form: `4.0-IV3`."""
        _, major, minor, change = self.name.split("_")
        return f"{major}.{minor}-{change}"

    @property
    def is_directory_assignment_supported(self) -> bool:
        """Partitions carry directory ids (KIP-858)."""
        return self >= MetadataVersion.IBP_3_7_IV2

    @property
    def is_leader_epoch_bump_on_shrink_needed(self) -> bool:
        """Before 3.6-IV0 an ISR shrink bumped the leader epoch (KAFKA-15021)."""
        return self < MetadataVersion.IBP_3_6_IV0

    @property
    def is_eligible_leader_replicas_supported(self) -> bool:
        return self >= MetadataVersion.IBP_4_0_IV1


MINIMUM_METADATA_VERSION: Final = MetadataVersion.IBP_3_3_IV3
LATEST_METADATA_VERSION: Final = MetadataVersion.IBP_4_2_IV1

# Levels that changed records: a downgrade across one of them would lose what the older level cannot say.
METADATA_CHANGED_AT: Final = frozenset(
    {
        MetadataVersion.IBP_3_4_IV0,
        MetadataVersion.IBP_3_5_IV2,
        MetadataVersion.IBP_3_6_IV1,
        MetadataVersion.IBP_3_6_IV2,
        MetadataVersion.IBP_3_7_IV0,
        MetadataVersion.IBP_3_7_IV1,
        MetadataVersion.IBP_3_7_IV2,
        MetadataVersion.IBP_3_8_IV0,
        MetadataVersion.IBP_4_0_IV1,
    }
)


def is_metadata_changed_between(one: int, other: int) -> bool:
    """Whether records changed between two levels, in whichever order they are given."""
    low, high = min(one, other), max(one, other)
    return any(low < level <= high for level in METADATA_CHANGED_AT)
