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

# What an operator of Apache controllers does when they refuse us, because their release turned on what we lack.
FEATURE_ADVICE: Final = (
    "The cluster has finalized features this broker does not support. Format the controllers with a release version "
    f"whose metadata.version is at most {int(LATEST_METADATA_VERSION)} ({LATEST_METADATA_VERSION.release}) and with "
    "--feature group.version=0 --feature transaction.version=0 --feature eligible.leader.replicas.version=0 "
    "--feature share.version=0 --feature streams.version=0 (leave out those the release does not know), or downgrade "
    "these features with kafka-features.sh."
)
