"""The finalized features this broker can run with, as it registers them and tells clients (KIP-584)."""

from collections.abc import Mapping
from typing import Final

from broker.metadata.broker_registration import VersionRange
from broker.metadata.metadata_version import (
    KRAFT_VERSION_FEATURE,
    LATEST_METADATA_VERSION,
    METADATA_VERSION_FEATURE,
    MINIMUM_METADATA_VERSION,
)

# A feature that is not here is supported at level 0 only: group.version waits for KIP-848, transaction.version for a
# transaction coordinator, eligible.leader.replicas.version for KIP-966's rule of the high watermark.
SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    METADATA_VERSION_FEATURE: VersionRange(int(MINIMUM_METADATA_VERSION), int(LATEST_METADATA_VERSION)),
    KRAFT_VERSION_FEATURE: VersionRange(0, 1),
}

_SWITCHED_OFF: Final = (
    "group.version",
    "transaction.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
)

# What an operator of Apache controllers does when they refuse us, because their release turned on what we lack.
FORMAT_ADVICE: Final = (
    f"Format the controllers with --release-version {LATEST_METADATA_VERSION.release.partition('-')[0]} "
    f"{' '.join(f'--feature {name}=0' for name in _SWITCHED_OFF)} (an older Kafka: its own release, without the "
    "features it does not know), or downgrade the features with kafka-features.sh."
)


def unsupported_features(finalized: Mapping[str, int]) -> list[str]:
    """For each finalized feature that this broker cannot run with, what it is and what we can."""
    lacking = []
    for name, level in sorted(finalized.items()):
        ours = SUPPORTED_FEATURES.get(name, VersionRange(0, 0))
        if level not in ours:
            able = f"{ours.minimum} to {ours.maximum}" if ours.maximum else "0"
            lacking.append(f"{name}={level} (this broker: {able})")
    return lacking


def feature_advice(finalized: Mapping[str, int]) -> str:
    """What to tell whoever starts this broker in a cluster with these features; empty when nothing is known of them."""
    lacking = ", ".join(unsupported_features(finalized)) or "ask with kafka-features.sh describe"
    return f"The cluster has finalized features this broker does not support: {lacking}. {FORMAT_ADVICE}"
