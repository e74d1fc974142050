"""BrokerConfig: every setting of a node, and what they mean together (Kafka's KafkaConfig)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from broker.common.errors import InvalidConfigError
from broker.config import listener_rules
from broker.config.accepted import REFUSED, reason_without_effect, refusals
from broker.config.group_settings import GroupSettings
from broker.config.log_settings import LogSettings
from broker.config.network_settings import NetworkSettings
from broker.config.node_settings import BROKER_ROLE, CONTROLLER_ROLE, NodeSettings
from broker.config.prefixed_settings import names_under, properties_under, read_under_other_prefixes
from broker.config.remote_log_rules import local_retention_problems, remote_log_problems
from broker.config.remote_log_settings import STORAGE_MANAGERS, RemoteLogSettings
from broker.config.remote_wal_rules import remote_wal_problems
from broker.config.remote_wal_settings import RemoteWalSettings
from broker.config.replication_settings import ReplicationSettings
from broker.config.setting import ConfigError, UpdateMode
from broker.config.value_types import HostPort, Listener, Voter
from broker.config.wherry_settings import WherrySettings

# A bare `wherry server`: a cluster of one on this machine, nothing asked from outside it.
DEFAULT_SINGLE_NODE: Final[Mapping[str, str]] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9190",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9190",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "./data/server",
    "metrics.http.listener": "127.0.0.1:9404",
    "offsets.topic.replication.factor": "1",
}


class BrokerConfig(
    NodeSettings,
    NetworkSettings,
    LogSettings,
    ReplicationSettings,
    RemoteWalSettings,
    RemoteLogSettings,
    GroupSettings,
    WherrySettings,
):
    """The values one node runs with.

    Names are resolved when it is built: `node_id` also holds a given `broker.id`, `log_dir` the one directory,
    listeners their security protocol.  `unknown_names` are those nobody knows, `ignored_names` those that Kafka knows
    and that have no effect here (`accepted.reason_without_effect`).
    """

    ignored_names: tuple[str, ...]

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        prefixes = (*self.remote_wal_prefixes, *self.remote_log_prefixes)
        self._replace_values(**read_under_other_prefixes(self, prefixes))
        ignored = {name for name in self.unknown_names if name in REFUSED or reason_without_effect(name) is not None}
        unknown = [name for name in self.unknown_names if name not in ignored and not self._is_of_a_manager(name)]
        self._replace_values(ignored_names=tuple(sorted(ignored)), unknown_names=tuple(unknown))
        sentences = [*refusals(properties), *self._resolve_node(), *self._resolve_listeners(), *self._check_numbers()]
        if not sentences:
            sentences = self._check_quorum()
        if sentences:
            raise ConfigError(*sentences)

    def with_overrides(self, properties: Mapping[str, str]) -> Self:
        """These values with others in place: a dynamic change.  ConfigError when they do not fit together."""
        return type(self)({**self.properties, **properties})

    @classmethod
    def validate_dynamic(cls, name: str, value: str, *, per_broker: bool = True) -> None:
        """Refuse (InvalidConfigError) what may not be changed while the broker runs, in Kafka's words.

        `per_broker` tells whether the change is for one broker or for all of the cluster.  Names that are not
        settings are stored, as Kafka does.  Whether values fit together is seen by `with_overrides`.
        """
        setting = cls.setting(name)
        if setting is None:
            return
        if setting.update is UpdateMode.READ_ONLY:
            raise InvalidConfigError(f"Cannot update these configs dynamically: {name}.")
        if setting.update is UpdateMode.PER_BROKER and not per_broker:
            raise InvalidConfigError(
                f"Cannot update these configs at default cluster level, broker id must be specified: {name}."
            )
        if setting is cls.remote_wal_topics and per_broker:
            raise InvalidConfigError(
                f"Cannot update these configs for one broker, leaders and followers must agree: {name}."
            )
        try:
            setting.read(value)
        except ConfigError as error:
            raise InvalidConfigError(str(error)) from error

    def check_retention(self) -> None:
        """InvalidConfigError when local retention does not fit: Kafka lets no change make it so, tiered or not."""
        sentences = local_retention_problems(
            self, retention_ms=self.log_retention_ms_effective, retention_bytes=self.log_retention_bytes
        )
        if sentences:
            raise InvalidConfigError(" ".join(sentences))

    @property
    def is_broker(self) -> bool:
        return BROKER_ROLE in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER_ROLE in self.process_roles

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and brokers, not those of the controller."""
        return tuple(entry for entry in self.listeners if entry.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners of this node's controller; empty without that role."""
        return tuple(entry for entry in self.listeners if entry.name in self.controller_listener_names)

    @property
    def advertised_broker_listeners(self) -> tuple[Listener, ...]:
        """What clients are told.  A port of 0 stands for the port the listener of that name was given."""
        return tuple(entry for entry in self.advertised_listeners if entry.name not in self.controller_listener_names)

    @property
    def advertised_controller_listeners(self) -> tuple[Listener, ...]:
        """What is told of this node's controller: as advertised, else as it listens."""
        advertised = {entry.name: entry for entry in self.advertised_listeners}
        return tuple(advertised.get(entry.name, entry) for entry in self.controller_listeners)

    @property
    def remote_log_metadata_listener_name(self) -> str:
        """The listener through which brokers write and read `__remote_log_metadata`."""
        return (self.remote_log_metadata_manager_listener_name or self.inter_broker_listener_name).upper()

    def rsm_properties(self) -> Mapping[str, str]:
        """What the manager of remote segments is given: all under its prefix, without that, and `broker.id`."""
        given = properties_under(self, self.remote_log_storage_manager_impl_prefix)
        return {**given, "broker.id": str(self.node_id)}

    def rlmm_properties(self) -> Mapping[str, str]:
        """The same for the manager of their metadata, with `log.dir`."""
        given = properties_under(self, self.remote_log_metadata_manager_impl_prefix)
        return {**given, "broker.id": str(self.node_id), "log.dir": str(self.log_dir)}

    @property
    def quorum_voters(self) -> tuple[Voter, ...]:
        return self.controller_quorum_voters

    @property
    def quorum_bootstrap_servers(self) -> tuple[HostPort, ...]:
        """Controllers to ask first, whichever way the quorum was written."""
        if self.controller_quorum_bootstrap_servers:
            return self.controller_quorum_bootstrap_servers
        return tuple(HostPort(voter.host, voter.port) for voter in self.controller_quorum_voters)

    def max_connections_of(self, address: str) -> int:
        """The most connections from one address."""
        override = self.max_connections_per_ip_overrides.get(address)
        return self.max_connections_per_ip if override is None else int(override)

    def _is_of_a_manager(self, name: str) -> bool:
        """Whether it may mean something to a manager: what classes of one's own read is not known, of ours it is."""
        storage, metadata = self.remote_log_prefixes
        others = [*self.remote_wal_prefixes, metadata]
        if self.remote_log_storage_manager_class_name not in STORAGE_MANAGERS:
            others.append(storage)
        return name.startswith(tuple(prefix.given for prefix in others)) or name in names_under(self, storage)

    def _resolve_node(self) -> list[str]:
        sentences = []
        if not self.process_roles:
            sentences.append("process.roles is missing: valid values are broker, controller or both.")
        if not self.is_set("node.id") and not self.is_set("broker.id"):
            sentences.append("node.id is missing: valid values are [0,...].")
        elif not self.is_set("node.id"):
            if self.broker_id < 0:
                sentences.append(f"broker.id={self.broker_id}: valid values are [0,...].")
            self._replace_values(node_id=self.broker_id)
        elif self.is_set("broker.id") and self.broker_id != self.node_id:
            sentences.append(f"broker.id={self.broker_id}: it must equal node.id={self.node_id}, or be left out.")
        self._replace_values(broker_id=self.node_id)

        name, directories = "log.dirs", self.log_dirs
        if not self.is_set("log.dirs"):
            name, directories = "log.dir", tuple(part.strip() for part in str(self.log_dir).split(","))
        if len(directories) != 1 or not directories[0]:
            sentences.append(
                f"{name}={','.join(directories)!r}: exactly one directory is needed; run one broker for each disk."
            )
        else:
            self._replace_values(log_dir=Path(directories[0]), log_dirs=directories)
            if self.metadata_log_dir is not None and Path(self.metadata_log_dir) != self.log_dir:
                sentences.append(
                    f"metadata.log.dir={self.metadata_log_dir!r}: the metadata log shares the data directory "
                    f"{str(self.log_dir)!r}; leave it out."
                )
        return sentences

    def _resolve_listeners(self) -> list[str]:
        protocols = listener_rules.protocol_map(self)
        sentences = listener_rules.listener_problems(self, protocols)
        if not sentences:
            resolved = listener_rules.with_protocols(self.listeners, protocols)
            advertised = listener_rules.with_protocols(self.advertised_listeners, protocols)
            self._replace_values(
                listeners=resolved,
                advertised_listeners=advertised or resolved,
                controller_listener_names=tuple(name.upper() for name in self.controller_listener_names),
                inter_broker_listener_name=listener_rules.inter_broker_listener_name(self),
                listener_security_protocol_map=protocols,
            )
            sentences = listener_rules.role_problems(self)
        return sentences

    def _check_numbers(self) -> list[str]:
        sentences = []
        if self.log_retention_ms == 0 or self.log_retention_minutes == 0 or self.log_retention_hours == 0:
            sentences.append("log.retention.ms must be unlimited (-1) or at least 1; so must its minutes and hours.")
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            sentences.append(
                f"group.max.session.timeout.ms={self.group_max_session_timeout_ms}: it must be at least "
                f"group.min.session.timeout.ms={self.group_min_session_timeout_ms}."
            )
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            sentences.append(
                f"broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}: it must be at most half of "
                f"broker.session.timeout.ms={self.broker_session_timeout_ms}."
            )
        sentences += self._check_fetchers()
        sentences += remote_wal_problems(
            self,
            is_broker=self.is_broker,
            rack=self.broker_rack,
            lag_time_max_ms=self.replica_lag_time_max_ms,
        )
        sentences += remote_log_problems(
            self,
            is_broker=self.is_broker,
            listener_names=[entry.name for entry in self.advertised_broker_listeners],
            retention_ms=self.log_retention_ms_effective,
            retention_bytes=self.log_retention_bytes,
        )
        if self.max_connections_per_ip == 0 and not self.max_connections_per_ip_overrides:
            sentences.append("max.connections.per.ip=0: it can be zero only with max.connections.per.ip.overrides.")
        for address, limit in self.max_connections_per_ip_overrides.items():
            if not limit.isdecimal():
                sentences.append(
                    f"max.connections.per.ip.overrides: {limit!r} for {address} is not a number of connections."
                )
        return sentences

    def _check_fetchers(self) -> list[str]:
        wait_ms = self.replica_fetch_wait_max_ms
        return [
            f"replica.fetch.wait.max.ms={wait_ms}: it must be at most {name}={limit_ms}."
            for name, limit_ms in (
                ("replica.socket.timeout.ms", self.replica_socket_timeout_ms),
                ("replica.lag.time.max.ms", self.replica_lag_time_max_ms),
            )
            if wait_ms > limit_ms
        ]

    def _check_quorum(self) -> list[str]:
        voters = self.controller_quorum_voters
        if not voters and not self.controller_quorum_bootstrap_servers:
            return [
                "controller.quorum.bootstrap.servers is missing: name the controllers as host:port, or in "
                "controller.quorum.voters as id@host:port."
            ]
        ids = [voter.node_id for voter in voters]
        if self.is_controller and len(voters) > 1:
            return [
                f"controller.quorum.voters={','.join(map(str, voters))!r}: the embedded controller is a quorum of one; "
                "for several controllers run Apache Kafka's, and set process.roles=broker here."
            ]
        if self.is_controller and voters and self.node_id not in ids:
            return [
                f"If process.roles contains the 'controller' role, the node id {self.node_id} must be included in the "
                f"set of voters controller.quorum.voters={','.join(map(str, voters))!r}."
            ]
        if not self.is_controller and self.node_id in ids:
            return [
                f"If process.roles contains just the 'broker' role, the node id {self.node_id} must not be included in "
                f"the set of voters controller.quorum.voters={','.join(map(str, voters))!r}."
            ]
        return []
