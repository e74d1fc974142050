"""Settings of listeners, connections and requests."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.config.setting import Config, Importance, Setting, UpdateMode, at_least, one_of
from broker.config.value_types import INT, INT32_MAX, LIST, LISTENERS, LONG, MAP, STRING, Listener

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE, PER_BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PROTOCOL_MAP: Final[Mapping[str, str]] = MappingProxyType(
    {"SASL_SSL": "SASL_SSL", "PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
)

# Kafka has no bound (-1).  One event loop holds what is queued in its memory, so there must be one: room for a
# request of the greatest size (100 MiB) and many ordinary ones.
QUEUED_MAX_REQUEST_BYTES_DEFAULT: Final = 256 * 1024 * 1024


class NetworkSettings(Config):
    """Where the node listens, and what a connection may cost."""

    listeners = Setting(
        "listeners",
        LISTENERS,
        default=(Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),),
        importance=HIGH,
        doc="Where the node listens, as `NAME://host:port`, separated by commas. An empty host is every interface; "
        "port 0 takes a free one.",
    )
    advertised_listeners = Setting(
        "advertised.listeners",
        LISTENERS,
        default=(),
        importance=HIGH,
        default_is_null=True,
        doc="The addresses clients are told, by listener name; what is not named here is told as it listens.",
    )
    listener_security_protocol_map = Setting(
        "listener.security.protocol.map",
        MAP,
        default=DEFAULT_PROTOCOL_MAP,
        importance=LOW,
        doc="The security protocol of each listener name, as `NAME:PROTOCOL`. Only PLAINTEXT can be used yet.",
    )
    inter_broker_listener_name = Setting(
        "inter.broker.listener.name",
        STRING,
        default="",
        default_is_null=True,
        doc="The listener brokers use among themselves; without it, the one named by `security.inter.broker.protocol`.",
    )
    security_inter_broker_protocol = Setting(
        "security.inter.broker.protocol",
        STRING,
        default="PLAINTEXT",
        valid=one_of(*SECURITY_PROTOCOLS),
        doc="The protocol, and so the listener, of brokers among themselves. Not together with "
        "`inter.broker.listener.name`.",
    )
    controller_listener_names = Setting(
        "controller.listener.names",
        LIST,
        default=(),
        importance=HIGH,
        default_is_null=True,
        doc="The names of the controllers' listeners. The first is how brokers reach the controllers.",
    )
    socket_send_buffer_bytes = Setting(
        "socket.send.buffer.bytes",
        INT,
        default=102_400,
        importance=HIGH,
        valid=at_least(-1),
        doc="The operating system's send buffer of a connection (SO_SNDBUF); -1 leaves its own choice.",
    )
    socket_receive_buffer_bytes = Setting(
        "socket.receive.buffer.bytes",
        INT,
        default=102_400,
        importance=HIGH,
        valid=at_least(-1),
        doc="The operating system's receive buffer of a connection (SO_RCVBUF); -1 leaves its own choice.",
    )
    socket_request_max_bytes = Setting(
        "socket.request.max.bytes",
        INT,
        default=104_857_600,
        importance=HIGH,
        valid=at_least(1),
        doc="The greatest request; a longer one closes its connection before any memory is taken.",
    )
    socket_listen_backlog_size = Setting(
        "socket.listen.backlog.size",
        INT,
        default=50,
        valid=at_least(1),
        doc="How many connections may wait to be accepted.",
    )
    max_connections = Setting(
        "max.connections",
        INT,
        default=INT32_MAX,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="The most connections of this broker; further ones are closed at once.",
    )
    max_connections_per_ip = Setting(
        "max.connections.per.ip",
        INT,
        default=INT32_MAX,
        valid=at_least(0),
        update=CLUSTER_WIDE,
        doc="The most connections from one address.",
    )
    max_connections_per_ip_overrides = Setting(
        "max.connections.per.ip.overrides",
        MAP,
        default=MappingProxyType({}),
        update=CLUSTER_WIDE,
        doc="Other bounds for some addresses, as `address:number`, separated by commas.",
    )
    connections_max_idle_ms = Setting(
        "connections.max.idle.ms",
        LONG,
        default=600_000,
        doc="How long a connection may be silent before it is closed, in milliseconds; negative never.",
    )
    queued_max_request_bytes = Setting(
        "queued.max.request.bytes",
        LONG,
        default=QUEUED_MAX_REQUEST_BYTES_DEFAULT,
        valid=at_least(-1),
        doc="How much memory requests in flight may take before those over 32 KiB are no longer read; -1 for no bound, "
        "which is Kafka's default. Wherry bounds it at 256 MiB.",
    )
    quota_window_num = Setting(
        "quota.window.num",
        INT,
        default=11,
        importance=LOW,
        valid=at_least(1),
        doc="Over how many samples it is measured whether a client is over its quota.",
    )
    quota_window_size_seconds = Setting(
        "quota.window.size.seconds",
        INT,
        default=1,
        importance=LOW,
        valid=at_least(1),
        doc="How long each of those samples is, in seconds.",
    )
    max_request_partition_size_limit = Setting(
        "max.request.partition.size.limit",
        INT,
        default=2000,
        valid=at_least(1),
        doc="The most partitions in one answer to DescribeTopicPartitions.",
    )
    fetch_max_bytes = Setting(
        "fetch.max.bytes",
        INT,
        default=57_671_680,
        valid=at_least(1024),
        doc="The most bytes of one answer to Fetch, whatever the client asks for.",
    )
    max_incremental_fetch_session_cache_slots = Setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        default=1000,
        valid=at_least(0),
        doc="The most incremental fetch sessions (KIP-227) the broker remembers.",
    )
