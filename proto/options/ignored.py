"""Kafka's options that have no row here: those without effect, and those that are refused.

A file written for Kafka should start a node here, so what means nothing is accepted with a warning
that says why. What promises protection that a node would not give is refused: a listener that was
meant to be private must not open in plain text with no more than a warning.

A name that ends in a dot stands for the whole family that begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class WithoutRow:
    """Options of Kafka's that share one reason for not being here."""

    names: tuple[str, ...]
    # Completes "<option> has no effect: …" or "<option> is refused: …".
    reason: str

    def covers(self, name: str) -> bool:
        return any(
            name.startswith(known) if known.endswith(".") else name == known for known in self.names
        )


_THREADS: Final = "a node is one process with one event loop, and has no pools of threads to size"
_FLUSH: Final = "ottla.durability decides when bytes are synced"
_TIERED: Final = "there is no remote storage"
_TRANSACTIONS: Final = "the transaction coordinator chooses this itself"
_SHARE: Final = "there are no share groups yet"
_QUORUM: Final = "the quorum keeps its own time"
_METRICS: Final = "metrics are always served on the HTTP listener"
_CONSUMER_GROUPS: Final = "only the classic group protocol is spoken so far"
_NO_QUOTAS: Final = "there are no quotas yet"
_NO_PLUGINS: Final = "no code is loaded by the name of its class"
_UNPROTECTED: Final = (
    "TLS and SASL for clients are not built yet, and without them the node would be open to all"
)
_INTERNAL_TLS: Final = (
    "nodes need no more for TLS than listener.name.internal.ssl.keystore.location and "
    ".truststore.location, PEM files without a pass phrase"
)

TOPIC: Final = (
    WithoutRow(("flush.messages", "flush.ms"), _FLUSH),
    WithoutRow(("preallocate",), "segments reserve room ahead by themselves"),
    WithoutRow(
        ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas"),
        "replication is not throttled",
    ),
    WithoutRow(("remote.", "local.retention.ms", "local.retention.bytes"), _TIERED),
    WithoutRow(
        ("message.format.version", "message.downconversion.enable"),
        "the one record format is version 2",
    ),
    WithoutRow(
        ("message.timestamp.difference.max.ms",),
        "Kafka 4 has message.timestamp.before.max.ms and .after.max.ms instead",
    ),
    WithoutRow(("internal.",), "it is meant for the tests of Kafka itself"),
)

NODE: Final = (
    WithoutRow(
        ("queued.max.requests",),
        "no request waits to be served; each connection has its own bound on those that wait for "
        "their answers",
    ),
    WithoutRow(
        (
            "num.network.threads",
            "num.io.threads",
            "num.replica.fetchers",
            "num.recovery.threads.per.data.dir",
            "num.replica.alter.log.dirs.threads",
            "background.threads",
            "log.cleaner.threads",
            "group.coordinator.threads",
        ),
        _THREADS,
    ),
    WithoutRow(
        (
            "log.flush.interval.messages",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            "log.flush.start.offset.checkpoint.interval.ms",
        ),
        _FLUSH,
    ),
    WithoutRow(("log.preallocate",), "segments reserve room ahead by themselves"),
    WithoutRow(("metadata.log.dir",), "metadata is kept in log.dirs"),
    WithoutRow(("log.dir.failure.timeout.ms",), "there is one log directory"),
    WithoutRow(
        ("log.cleaner.io.", "log.cleaner.dedupe.buffer.load.factor"),
        "the cleaner is not throttled, and its buffers have fixed sizes",
    ),
    WithoutRow(
        (
            "log.message.format.version",
            "inter.broker.protocol.version",
            "log.message.downconversion.enable",
        ),
        "the one record format is version 2, and nodes do not speak Kafka's protocol to each other",
    ),
    WithoutRow(
        ("log.message.timestamp.difference.max.ms",),
        "Kafka 4 has log.message.timestamp.before.max.ms and .after.max.ms instead",
    ),
    WithoutRow(
        ("controller.quorum.bootstrap.servers", "controller.quorum.auto.join.enable"),
        "controller.quorum.voters names the voters",
    ),
    WithoutRow(
        (
            "controller.quorum.election.timeout.ms",
            "controller.quorum.election.backoff.max.ms",
            "controller.quorum.fetch.timeout.ms",
            "controller.quorum.request.timeout.ms",
            "controller.quorum.retry.backoff.ms",
            "controller.quorum.append.linger.ms",
            "controller.quorum.fetch.max.bytes",
            "controller.quorum.fetch.snapshot.max.bytes",
            "controller.socket.timeout.ms",
            "controller.performance.",
            "metadata.log.segment.",
            "metadata.log.max.snapshot.interval.ms",
            "metadata.max.",
            "server.max.startup.time.ms",
        ),
        _QUORUM,
    ),
    WithoutRow(
        (
            "controller.listener.names",
            "inter.broker.listener.name",
            "control.plane.listener.name",
            "early.start.listeners",
        ),
        "nodes meet on INTERNAL",
    ),
    WithoutRow(
        (
            "replica.fetch.min.bytes",
            "replica.fetch.max.bytes",
            "replica.fetch.backoff.ms",
            "replica.socket.timeout.ms",
            "replica.socket.receive.buffer.bytes",
        ),
        "followers hold one stream to each leader and are sent what there is",
    ),
    WithoutRow(("replica.selector.class",), "consumers read from leaders only"),
    WithoutRow(
        (
            "auto.leader.rebalance.enable",
            "leader.imbalance.per.broker.percentage",
            "controlled.shutdown.",
            "delete.topic.enable",
            "broker.id.generation.enable",
            "reserved.broker.max.id",
            "initial.broker.registration.timeout.ms",
            "unclean.leader.election.interval.ms",
            "eligible.leader.replicas.enable",
            "log.initial.task.delay.ms",
        ),
        "the node always behaves as with Kafka's default",
    ),
    WithoutRow(
        (
            "socket.send.buffer.bytes",
            "socket.receive.buffer.bytes",
            "socket.listen.backlog.size",
            "connection.failed.authentication.delay.ms",
            "connections.max.reauth.ms",
            "socket.connection.setup.timeout.ms",
            "socket.connection.setup.timeout.max.ms",
            "request.timeout.ms",
            "max.connection.creation.rate",
            "max.connections.per.ip.overrides",
        ),
        "the operating system's values and fixed limits are used",
    ),
    WithoutRow(
        (
            "max.incremental.fetch.session.cache.slots",
            "fetch.purgatory.purge.interval.requests",
            "producer.purgatory.purge.interval.requests",
            "delete.records.purgatory.purge.interval.requests",
            "producer.id.expiration.check.interval.ms",
        ),
        "the node sizes this itself",
    ),
    WithoutRow(
        ("group.consumer.", "group.streams.", "streams.", "group.coordinator."), _CONSUMER_GROUPS
    ),
    WithoutRow(
        (
            "offsets.commit.",
            "offsets.load.buffer.size",
            "offsets.retention.check.interval.ms",
            "offsets.topic.compression.codec",
        ),
        "the group coordinator chooses this itself",
    ),
    WithoutRow(("group.share.", "share."), _SHARE),
    WithoutRow(
        (
            "transaction.partition.verification.enable",
            "transaction.state.log.load.buffer.size",
            "add.partitions.to.txn.",
            "producer.id.quota.",
        ),
        _TRANSACTIONS,
    ),
    WithoutRow(("remote.", "log.local.retention.ms", "log.local.retention.bytes"), _TIERED),
    WithoutRow(
        (
            "quota.",
            "replication.quota.",
            "follower.replication.throttled.rate",
            "leader.replication.throttled.rate",
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "alter.log.dirs.replication.quota.",
            "controller.quota.",
            "client.quota.callback.class",
        ),
        _NO_QUOTAS,
    ),
    WithoutRow(
        (
            "metric.reporters",
            "metrics.",
            "kafka.metrics.",
            "auto.include.jmx.reporter",
            "telemetry.",
        ),
        _METRICS,
    ),
    WithoutRow(
        (
            "alter.config.policy.class.name",
            "create.topic.policy.class.name",
            "log.dir.assignment.class",
            "config.providers",
        ),
        _NO_PLUGINS,
    ),
    WithoutRow(("password.encoder.",), "no secrets are stored"),
    WithoutRow(("internal.", "unstable."), "it is meant for the tests of Kafka itself"),
)

# ZooKeeper's sentence is the one that people coming from an old cluster will meet first.
REFUSED: Final = (
    WithoutRow(
        ("zookeeper.",),
        "there is no ZooKeeper here, controllers elect each other; list them in "
        "controller.quorum.voters and take this line out",
    ),
    WithoutRow(
        (
            "ssl.",
            "sasl.",
            "listener.name.client.",
            "listener.name.http.",
            "listener.name.plaintext.",
            "listener.name.internal.sasl.",
            "security.inter.broker.protocol",
            "principal.builder.class",
            "security.providers",
            "delegation.token.",
        ),
        _UNPROTECTED,
    ),
    WithoutRow(
        (
            "listener.name.controller.",
            "listener.name.replication.",
            "listener.name.internal.ssl.keystore.type",
            "listener.name.internal.ssl.keystore.password",
            "listener.name.internal.ssl.keystore.key",
            "listener.name.internal.ssl.keystore.certificate.chain",
            "listener.name.internal.ssl.truststore.type",
            "listener.name.internal.ssl.truststore.password",
            "listener.name.internal.ssl.truststore.certificates",
            "listener.name.internal.ssl.key.password",
            "listener.name.internal.ssl.client.auth",
        ),
        _INTERNAL_TLS,
    ),
    WithoutRow(
        ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"),
        "access control is not built yet, and without it everybody may do everything",
    ),
)


def reason_of(rows: Iterable[WithoutRow], name: str) -> str | None:
    """Return why an option has no row, or None if none of `rows` knows it."""
    return next((row.reason for row in rows if row.covers(name)), None)
