"""What tiered storage needs to be given, which of its values do not fit together, and which topics it is not for.

The rules for topics are those of Kafka's LogConfig, in words of ours.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from broker.common.errors import InvalidConfigError
from broker.common.identifiers import NEVER_TIERED_TOPICS
from broker.config.remote_log_settings import AS_RETENTION, STORAGE_MANAGERS, RemoteLogSettings
from broker.config.valid_values import BUCKET_URL

if TYPE_CHECKING:
    from broker.config.topic_config import TopicConfig

_UNLIMITED: Final = -1


def remote_log_problems(
    config: RemoteLogSettings,
    *,
    is_broker: bool,
    listener_names: Collection[str],
    retention_ms: int,
    retention_bytes: int,
) -> list[str]:
    """A sentence for each thing that must be given, or does not fit, for topics to be tiered.

    `listener_names` are those of this broker for clients and brokers; the retentions are the broker's.
    """
    if not config.remote_log_storage_system_enable or not is_broker:
        return []
    return [
        *_missing(config),
        *_unknown_listener(config, listener_names),
        *local_retention_problems(config, retention_ms=retention_ms, retention_bytes=retention_bytes),
    ]


def local_retention_problems(config: RemoteLogSettings, *, retention_ms: int, retention_bytes: int) -> list[str]:
    """A sentence for each local retention of the broker that does not fit its retention."""
    sentences = (
        _misfit("log.local.retention.ms", config.log_local_retention_ms, "log.retention.ms", retention_ms),
        _misfit("log.local.retention.bytes", config.log_local_retention_bytes, "log.retention.bytes", retention_bytes),
    )
    return [sentence for sentence in sentences if sentence is not None]


def check_remote_log_topic(broker: RemoteLogSettings, topic: str | None, config: "TopicConfig") -> None:
    """InvalidConfigError when a topic may not be tiered, or not so.  The name is None when it is not known."""
    if not broker.remote_log_storage_system_enable:
        raise InvalidConfigError(
            "Tiered storage is disabled: topics can be configured with remote.storage.enable=true only where brokers "
            "and controllers have remote.log.storage.system.enable=true."
        )
    if topic in NEVER_TIERED_TOPICS:
        raise InvalidConfigError(
            f"The topic {topic} is internal: it cannot be configured with remote.storage.enable=true."
        )
    if config.is_compact:
        raise InvalidConfigError(
            "A topic with remote.storage.enable=true cannot be compacted: its cleanup.policy must be delete."
        )
    pairs = (
        ("local.retention.ms", config.local_retention_ms, "retention.ms", config.retention_ms),
        ("local.retention.bytes", config.local_retention_bytes, "retention.bytes", config.retention_bytes),
    )
    for name, local, whole_name, whole in pairs:
        sentence = _misfit(name, local, whole_name, whole)
        if sentence is not None:
            raise InvalidConfigError(sentence)
        if config.remote_log_copy_disable and local not in (AS_RETENTION, whole):
            raise InvalidConfigError(
                f"{name}={local}: with remote.log.copy.disable=true it must be {AS_RETENTION}, or equal "
                f"{whole_name}={whole}, since nothing more leaves the local disks for the bucket."
            )


def check_end_of_tiering(before: Mapping[str, str], config: "TopicConfig") -> None:
    """InvalidConfigError when a topic with these settings of its own must not become one that is not tiered."""
    was_tiered = before.get("remote.storage.enable", "").strip().lower() == "true"
    if was_tiered and not config.remote_log_delete_on_disable:
        raise InvalidConfigError(
            "remote.storage.enable cannot become false while the bucket keeps records of the topic. Either set "
            "remote.log.delete.on.disable=true with it, and they are deleted, or keep remote.storage.enable=true and "
            "set remote.log.copy.disable=true, and they are read and expire, but nothing more is copied."
        )


def _missing(config: RemoteLogSettings) -> list[str]:
    class_name = config.remote_log_storage_manager_class_name
    if class_name is None:
        return [
            "remote.log.storage.manager.class.name is missing: remote.log.storage.system.enable=true needs it; it may "
            f"be {', '.join(STORAGE_MANAGERS)} or a class of your own."
        ]
    if class_name in STORAGE_MANAGERS and config.rsm_config_bucket is None:
        return [
            f"{config.remote_log_storage_manager_impl_prefix}bucket is missing: {class_name} needs it; valid values "
            f"are {BUCKET_URL.text}."
        ]
    return []


def _unknown_listener(config: RemoteLogSettings, listener_names: Collection[str]) -> list[str]:
    name = config.remote_log_metadata_manager_listener_name
    if name is None or name.upper() in listener_names:
        return []
    return [
        f"remote.log.metadata.manager.listener.name={name!r}: it must be a listener of this broker: "
        f"[{', '.join(listener_names)}]."
    ]


def _misfit(name: str, local: int, whole_name: str, whole: int) -> str | None:
    """Why records cannot stay on local disks that long, or that many; None: they can."""
    if whole <= _UNLIMITED or local == AS_RETENTION:
        return None
    if local == _UNLIMITED:
        return f"{name}=-1: it cannot be without limit, as {whole_name}={whole} is not."
    if local > whole:
        return f"{name}={local}: it must be at most {whole_name}={whole}."
    return None
