"""Settings of the node itself: who it is, where its data is, how it keeps in touch with the controllers."""

from pathlib import Path
from typing import Final

from broker.config.setting import Config, Importance, Setting, Valid, at_least, optional
from broker.config.value_types import (
    BOOLEAN,
    HOST_PORT,
    HOST_PORTS,
    INT,
    LIST,
    LONG,
    PATH,
    ROLES,
    STRING,
    VOTERS,
    HostPort,
)

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_ROLES = frozenset({BROKER_ROLE, CONTROLLER_ROLE})


class NodeSettings(Config):
    """Identity, directory, quorum, registration, metadata log."""

    process_roles = Setting(
        "process.roles",
        ROLES,
        default=frozenset[str](),
        importance=HIGH,
        valid=Valid("broker, controller or both", lambda roles: bool(roles) and roles <= _ROLES),
        default_is_null=True,
        doc="What this process does: `broker`, `controller`, or both, separated by a comma.",
    )
    node_id = Setting(
        "node.id",
        INT,
        default=-1,
        importance=HIGH,
        valid=at_least(0),
        default_is_null=True,
        doc="The id of this node in its cluster. One id serves both roles.",
    )
    broker_id = Setting(
        "broker.id",
        INT,
        default=-1,
        importance=HIGH,
        doc="The older name of `node.id`; when both are given they must be equal.",
    )
    broker_rack = optional(
        "broker.rack",
        STRING,
        doc="The rack or zone of this broker: replicas are spread over racks, and clients of a rack find it.",
    )
    log_dir = Setting(
        "log.dir",
        PATH,
        default=Path("/tmp/kafka-logs"),
        importance=HIGH,
        doc="The directory of this broker's data, used when `log.dirs` is not given.",
    )
    log_dirs = Setting(
        "log.dirs",
        LIST,
        default=(),
        importance=HIGH,
        default_is_null=True,
        doc="The directory of this broker's data. One only: run one broker per disk.",
    )
    metadata_log_dir = optional(
        "metadata.log.dir",
        STRING,
        importance=HIGH,
        doc="Where the metadata log is. It shares the data directory, and any other place is refused.",
    )
    metrics_http_listener = Setting(
        "metrics.http.listener",
        HOST_PORT,
        default=HostPort("127.0.0.1", 9404),
        doc="Where `/metrics`, `/healthz` and `/readyz` are served, as `host:port`. Wherry's own. Port 0: a free one.",
    )
    controller_quorum_voters = Setting(
        "controller.quorum.voters",
        VOTERS,
        default=(),
        importance=HIGH,
        doc="The controllers of a static quorum, as `id@host:port`, separated by commas. A node that is a controller "
        "itself is the only one; larger quorums are made of Apache Kafka's controllers.",
    )
    controller_quorum_bootstrap_servers = Setting(
        "controller.quorum.bootstrap.servers",
        HOST_PORTS,
        default=(),
        importance=HIGH,
        doc="Controllers to ask first for the active one, as `host:port`, separated by commas.",
    )
    controller_quorum_request_timeout_ms = Setting(
        "controller.quorum.request.timeout.ms",
        INT,
        default=2000,
        valid=at_least(0),
        doc="How long a controller may take to tell its versions, its cluster or a piece of a snapshot before another "
        "one is asked, in milliseconds.",
    )
    controller_quorum_fetch_timeout_ms = Setting(
        "controller.quorum.fetch.timeout.ms",
        INT,
        default=2000,
        importance=HIGH,
        valid=at_least(0),
        doc="After how long without an answer from the active controller another one is sought, in milliseconds.",
    )
    controller_quorum_retry_backoff_ms = Setting(
        "controller.quorum.retry.backoff.ms",
        INT,
        default=20,
        importance=LOW,
        valid=at_least(0),
        doc="How long to wait before a failed request to a controller is repeated, in milliseconds.",
    )
    broker_heartbeat_interval_ms = Setting(
        "broker.heartbeat.interval.ms",
        INT,
        default=2000,
        valid=at_least(1),
        doc="How often the broker tells the controller that it lives, in milliseconds.",
    )
    broker_session_timeout_ms = Setting(
        "broker.session.timeout.ms",
        INT,
        default=9000,
        valid=at_least(1),
        doc="How long a broker may be silent before the controller fences it, in milliseconds.",
    )
    initial_broker_registration_timeout_ms = Setting(
        "initial.broker.registration.timeout.ms",
        INT,
        default=60_000,
        valid=at_least(1),
        doc="How long a starting broker tries to register with the controller before it exits, in milliseconds.",
    )
    controlled_shutdown_enable = Setting(
        "controlled.shutdown.enable",
        BOOLEAN,
        default=True,
        doc="Whether the broker hands its leaderships to others before it stops.",
    )
    request_timeout_ms = Setting(
        "request.timeout.ms",
        INT,
        default=30_000,
        importance=HIGH,
        valid=at_least(1),
        doc="How long a request to another node may wait for its answer, in milliseconds.",
    )
    metadata_log_max_record_bytes_between_snapshots = Setting(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        default=20 * 1024 * 1024,
        importance=HIGH,
        valid=at_least(1),
        doc="After how many bytes of new metadata records a snapshot is written.",
    )
    metadata_log_max_snapshot_interval_ms = Setting(
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        default=3_600_000,
        importance=HIGH,
        valid=at_least(0),
        doc="After how long a snapshot is written even of little new metadata, in milliseconds; 0 never.",
    )
    metadata_log_segment_bytes = Setting(
        "metadata.log.segment.bytes",
        INT,
        default=1 << 30,
        importance=HIGH,
        valid=at_least(8 * 1024 * 1024),
        doc="The greatest size of one file of the metadata log.",
    )
