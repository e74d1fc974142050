"""What replication through a bucket needs to be given, and which of its values do not fit together."""

import re
from collections.abc import Collection
from typing import Final

from broker.common.errors import InvalidConfigError
from broker.common.identifiers import NEVER_REMOTE_WAL_TOPICS
from broker.config.remote_wal_settings import RemoteWalSettings
from broker.config.valid_values import BUCKET_URL

# Of S3 Express One Zone; the name says in which zone the bucket is.
_DIRECTORY_BUCKET: Final = re.compile(r"s3://.*--([a-z0-9-]+)--x-s3/?")


def remote_wal_problems(
    config: RemoteWalSettings, *, is_broker: bool, rack: str | None, lag_time_max_ms: int
) -> list[str]:
    """A sentence for each thing that must be given, or does not fit, for records to go through a bucket."""
    if not config.remote_wal_storage_system_enable or not is_broker:
        return []
    sentences = []
    if config.remote_wal_storage_manager_class_name is None:
        sentences.append(
            "remote.wal.storage.manager.class.name is missing: remote.wal.storage.system.enable=true needs it; it may "
            "be S3WalStorageManager, LocalWalStorageManager or a class of your own."
        )
    if config.rwsm_config_bucket is None:
        sentences.append(
            f"{config.remote_wal_storage_manager_impl_prefix}bucket is missing: remote.wal.storage.system.enable=true "
            f"needs it; valid values are {BUCKET_URL.text}."
        )
    if not rack:
        sentences.append(
            "broker.rack is missing: remote.wal.storage.system.enable=true needs it, since a broker's bucket is that "
            "of its own zone."
        )
    if config.remote_wal_fallback_lag_ms * 2 >= lag_time_max_ms:
        sentences.append(
            f"remote.wal.fallback.lag.ms={config.remote_wal_fallback_lag_ms}: it must be less than half of "
            f"replica.lag.time.max.ms={lag_time_max_ms}."
        )
    return sentences + _numbers_that_do_not_fit(config) + _wrong_zone(config)


def check_remote_wal_topic(config: RemoteWalSettings, topic: str | None, cleanup_policy: Collection[str]) -> None:
    """InvalidConfigError when a topic may not have `remote.wal.enable=true`.  The name is None when it is not known."""
    if topic in NEVER_REMOTE_WAL_TOPICS:
        raise InvalidConfigError(f"The topic {topic} is internal: it cannot be configured with remote.wal.enable=true.")
    if set(cleanup_policy) != {"delete"}:
        raise InvalidConfigError(
            "A topic with remote.wal.enable=true cannot be compacted: its cleanup.policy must be delete."
        )
    check_remote_wal_system(config)


def check_remote_wal_system(config: RemoteWalSettings) -> None:
    """InvalidConfigError when this node lets no topic have `remote.wal.enable=true`."""
    if not config.remote_wal_storage_system_enable:
        raise InvalidConfigError(
            "Replication through a bucket is disabled: topics can be configured with remote.wal.enable=true, or be "
            "named in remote.wal.topics, only where brokers and controllers have remote.wal.storage.system.enable=true."
        )


def _numbers_that_do_not_fit(config: RemoteWalSettings) -> list[str]:
    pairs = (
        (RemoteWalSettings.remote_wal_combine_min_bytes, RemoteWalSettings.remote_wal_combine_max_bytes),
        (RemoteWalSettings.remote_wal_combine_partition_max_bytes, RemoteWalSettings.remote_wal_combine_max_bytes),
        (RemoteWalSettings.remote_wal_combine_max_linger_ms, RemoteWalSettings.remote_wal_combine_economy_linger_ms),
        (RemoteWalSettings.remote_wal_upload_retry_backoff_ms, RemoteWalSettings.remote_wal_upload_retry_max_ms),
    )
    sentences = []
    for lower, upper in pairs:
        value, limit = getattr(config, lower.attribute), getattr(config, upper.attribute)
        if value > limit:
            sentences.append(f"{lower.name}={value}: it must be at most {upper.name}={limit}.")
    return sentences


def _wrong_zone(config: RemoteWalSettings) -> list[str]:
    found = _DIRECTORY_BUCKET.fullmatch(config.rwsm_config_bucket or "")
    if found is None or config.rwsm_config_az_id in (None, found[1]):
        return []
    return [f"rwsm.config.az.id={config.rwsm_config_az_id!r}: the bucket is one of the zone {found[1]!r} by its name."]
