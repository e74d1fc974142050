"""FeatureControlManager: the levels the whole cluster runs at (KIP-584)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.common.errors import InvalidRequestError, InvalidUpdateVersionError
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.metadata.broker_registration import VersionRange
from broker.metadata.metadata_version import (
    ELIGIBLE_LEADER_REPLICAS_FEATURE,
    KRAFT_VERSION_FEATURE,
    LATEST_METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    MINIMUM_METADATA_VERSION,
    MetadataVersion,
    is_metadata_changed_between,
)
from broker.schemas.cluster_metadata import FeatureLevelRecord, MetadataRecord

# What this controller can finalize.  Whether the brokers can is in their registrations.  The quorum's own protocol
# stays at kraft.version 0: static voters.
SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION_FEATURE: VersionRange(MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION),
    KRAFT_VERSION_FEATURE: VersionRange(0, 0),
    ELIGIBLE_LEADER_REPLICAS_FEATURE: VersionRange(0, 1),
    "group.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
}

# Features that need a level of metadata.version (Kafka's Feature.dependencies).
_NEEDED_METADATA_VERSION: Final[Mapping[str, int]] = {
    ELIGIBLE_LEADER_REPLICAS_FEATURE: MetadataVersion.IBP_4_0_IV1,
    "group.version": MetadataVersion.IBP_4_0_IV0,
    "transaction.version": MetadataVersion.IBP_4_0_IV2,
}


class UpgradeType(IntEnum):
    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class FeatureControlManager:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> ControllerResult[None]:
        """All or none; InvalidUpdateVersionError names the first that is impossible."""
        names = [update.name for update in updates]
        if len(set(names)) != len(names):
            raise InvalidRequestError("A feature is named more than once.")
        levels = {**self._state.image.features.finalized, **{update.name: update.level for update in updates}}
        records: list[MetadataRecord] = []
        for update in updates:
            current = self._state.image.features.level(update.name)
            self._check(update, current, levels.get(METADATA_VERSION_FEATURE, 0))
            if update.level != current:
                records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
        return ControllerResult(() if validate_only else records, None)

    def _check(self, update: FeatureUpdate, current: int, metadata_version: int) -> None:
        name, level, upgrade_type = update
        if upgrade_type is UpgradeType.UNKNOWN:
            raise _refusal(update, "The controller does not support the given upgrade type.")
        if level < 0:
            raise _refusal(update, "A feature version cannot be less than 0.")
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            raise _refusal(update, "The controller does not support this feature.")
        if (level > 0 and level not in supported) or (name == METADATA_VERSION_FEATURE and level == 0):
            raise _refusal(update, f"Local controller only supports versions {supported}")
        for broker in self._state.image.brokers.values():
            its_range = broker.features.get(name, VersionRange(0, 0))
            if level > 0 and level not in its_range:
                raise _refusal(update, f"Broker {broker.id} only supports versions {its_range}")
        if level < current:
            self._check_downgrade(update, current)
        needed = _NEEDED_METADATA_VERSION.get(name, 0)
        if level > 0 and metadata_version < needed:
            raise _refusal(update, f"It depends on {METADATA_VERSION_FEATURE} at level {needed}.")

    def _check_downgrade(self, update: FeatureUpdate, current: int) -> None:
        if update.upgrade_type is UpgradeType.UPGRADE:
            raise _refusal(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade.",
            )
        if update.name == METADATA_VERSION_FEATURE and is_metadata_changed_between(update.level, current):
            raise _refusal(
                update,
                f"Refusing to perform the downgrade from {current} because it might delete metadata information.",
            )


def _refusal(update: FeatureUpdate, reason: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(f"Invalid update version {update.level} for feature {update.name}. {reason}")
