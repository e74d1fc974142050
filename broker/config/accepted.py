"""Kafka's settings that are no settings here: those that are accepted without effect, and those that are refused.

A configuration file of Apache Kafka must work as it is, so names that mean something only to a JVM, or to a feature
that is not here yet, are read and ignored; docs/configuration.md lists them with the reason.  A value that would
change what clients may do (an authorizer, a policy, a second directory) is refused instead: ignoring it would be a lie.
"""

from collections.abc import Mapping
from typing import Final

_THREADS = "One event loop does this work; there are no threads to count."
_JVM = "It tunes the Java Virtual Machine or names Java classes."
_SECURITY = "TLS and SASL are not supported yet; a listener that asks for them is refused."
_TRANSACTIONS = "There is no transaction coordinator yet."
_MUTATIONS = "How many changes of topics a client asks the controller for (KIP-599) is not bounded yet."
TIERED_COPIES: Final = "Closed log files are copied as soon as they may be; KIP-1241 is not supported yet."
_SHARE = "Share groups are not supported."
_STREAMS = "Streams groups are not supported."
_NEW_GROUPS = "The consumer group protocol of KIP-848 is not supported yet; classic groups are."
_TOKENS = "Delegation tokens are not supported."
_PURGATORY = "Completed operations leave the purgatory at once; there is nothing to purge."
_ELECTIONS = "The embedded controller is a quorum of one and holds no elections."
_ZOOKEEPER = "Kafka removed ZooKeeper in 4.0."
_REMOVED = "Kafka removed this setting in 4.0."
_METRICS = "Metrics are counters and histograms served to Prometheus; there are no sampled windows and no reporters."

# A name that ends in '*' stands for all names with that beginning.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "alter.log.dirs.*": "There is one log directory per broker; replicas do not move between directories.",
    "auto.include.jmx.reporter": _JVM,
    "background.threads": _THREADS,
    "broker.id.generation.enable": _REMOVED,
    "config.providers.*": _JVM,
    "connection.failed.authentication.delay.ms": _SECURITY,
    "connections.max.reauth.ms": _SECURITY,
    "control.plane.listener.name": _REMOVED,
    "controlled.shutdown.max.retries": _REMOVED,
    "controlled.shutdown.retry.backoff.ms": _REMOVED,
    "controller.performance.*": "The controller reports its times as metrics.",
    "controller.quorum.append.linger.ms": "The controller flushes each change at once; it does not wait for more.",
    "controller.quorum.auto.join.enable": _ELECTIONS,
    "controller.quorum.election.backoff.max.ms": _ELECTIONS,
    "controller.quorum.election.timeout.ms": _ELECTIONS,
    "controller.quorum.fetch.max.bytes": "Metadata is fetched 1 MiB at a time, Kafka's default.",
    "controller.quorum.fetch.snapshot.max.bytes": "Snapshots are fetched 1 MiB at a time, Kafka's default.",
    "controller.quota.*": _MUTATIONS,
    "controller.socket.timeout.ms": "Requests to the controller obey request.timeout.ms.",
    "cordoned.log.dirs": "There is one log directory per broker.",
    "delegation.token.*": _TOKENS,
    "delete.records.purgatory.purge.interval.requests": _PURGATORY,
    "early.start.listeners": "All listeners open together, once the broker can answer.",
    "eligible.leader.replicas.enable": "Eligible leader replicas (KIP-966) are off; a feature level turns them on.",
    "errors.deadletterqueue.*": _SHARE,
    "fetch.purgatory.purge.interval.requests": _PURGATORY,
    "follower.fetch.last.tiered.offset.enable": "A new follower begins where the leader's local records begin.",
    "group.consumer.*": _NEW_GROUPS,
    "group.coordinator.append.linger.ms": "What one turn of the event loop brings is appended together.",
    "group.coordinator.background.threads": _THREADS,
    "group.coordinator.cached.buffer.max.bytes": "Buffers are not pooled.",
    "group.coordinator.new.enable": _REMOVED,
    "group.coordinator.rebalance.protocols": _NEW_GROUPS,
    "group.coordinator.threads": _THREADS,
    "group.share.*": _SHARE,
    "group.streams.*": _STREAMS,
    "inter.broker.protocol.version": "Brokers talk by the finalized metadata.version.",
    "internal.metadata.*": "Sizes and delays of the metadata log are fixed.",
    "kafka.metrics.*": _METRICS,
    "leader.imbalance.per.broker.percentage": _REMOVED,
    "listener.name.*": _SECURITY,
    "log.cleaner.io.buffer.size": "The cleaner reads and writes 1 MiB at a time.",
    "log.cleaner.threads": "One task compacts one log after the other, in the event loop.",
    "log.dir.failure.timeout.ms": "A broker has one directory: when it fails, nothing is left to report it late.",
    "log.flush.start.offset.checkpoint.interval.ms": "Written together with the recovery points, by "
    "log.flush.offset.checkpoint.interval.ms.",
    "log.message.downconversion.enable": _REMOVED,
    "log.message.format.version": _REMOVED,
    "log.message.timestamp.difference.max.ms": _REMOVED,
    "log.preallocate": "Files grow as they are written; preallocation would change nothing that can be read.",
    "log.remote.*": TIERED_COPIES,
    "max.connection.creation.rate": "New connections are bounded in number, not yet in rate.",
    "max.decompressed.message.bytes": "Decompression is bounded by a fixed size.",
    "metadata.log.segment.ms": "Files of the metadata log are begun anew by size, not by age.",
    "metadata.max.idle.interval.ms": "The active controller writes no NoOpRecord heartbeats.",
    "metadata.max.retention.*": "The two newest snapshots are kept, and the log that follows the older one.",
    "metric.reporters": _METRICS,
    "metrics.jmx.*": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.recovery.threads.per.data.dir": "Recovery uses the broker's small pool of disk threads.",
    "num.replica.alter.log.dirs.threads": "There is one log directory per broker.",
    "password.encoder.*": _REMOVED,
    "principal.builder.class": _SECURITY,
    "producer.purgatory.purge.interval.requests": _PURGATORY,
    "queued.max.requests": "Requests in flight are bounded by bytes: queued.max.request.bytes.",
    "remote.log.index.file.cache.ttl.ms": "Indexes leave the cache by its size, not by age.",
    "remote.log.manager.follower.thread.pool.size": "Followers only look up what is known of a partition.",
    "replica.alter.log.dirs.*": "There is one log directory per broker.",
    "replica.socket.receive.buffer.bytes": "The operating system sizes the buffers of connections to leaders.",
    "reserved.broker.max.id": _REMOVED,
    "sasl.*": _SECURITY,
    "security.providers": _JVM,
    "server.max.startup.time.ms": "Start-up is not bounded: recovery of a large log may take its time.",
    "share.*": _SHARE,
    "socket.connection.setup.*": "The time a request to another node may take includes connecting.",
    "ssl.*": _SECURITY,
    "telemetry.max.bytes": "Client telemetry (KIP-714) is not collected.",
    "add.partitions.to.txn.retry.*": _TRANSACTIONS,
    "transaction.*": _TRANSACTIONS,
    "transactional.id.expiration.ms": _TRANSACTIONS,
    "unstable.api.versions.enable": "Only stable versions of requests are spoken.",
    "unstable.feature.versions.enable": "Only stable levels of features are known.",
    "zookeeper.*": _ZOOKEEPER,
}


# Why any value but an empty one is refused.
REFUSED: Final[Mapping[str, str]] = {
    "alter.config.policy.class.name": "policies are Java classes and cannot be enforced here",
    "authorizer.class.name": "there is no authorizer yet, and every client may do everything",
    "client.quota.callback.class": "quota callbacks are Java classes and cannot be called here",
    "config.providers": "configuration providers are Java classes; write the values themselves",
    "create.topic.policy.class.name": "policies are Java classes and cannot be enforced here",
}


def reason_without_effect(name: str) -> str | None:
    """Why a setting of Kafka's does nothing here; None for a name that is not one of them."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    for pattern, reason in WITHOUT_EFFECT.items():
        if pattern.endswith("*") and name.startswith(pattern[:-1]):
            return reason
    return None


def refusals(properties: Mapping[str, str]) -> list[str]:
    """A sentence for each property whose value must not be ignored."""
    return [
        f"{name}={properties[name]!r}: {reason}."
        for name, reason in REFUSED.items()
        if properties.get(name, "").strip()
    ]
