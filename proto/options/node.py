"""The options of a node, under Kafka's names, in the order in which a person would ask for them.

The last rows are the node's defaults for topics. They are made from the rows of `topic.py`, so
that a topic's option and its synonyms at the node cannot differ in kind, bounds or meaning.

Not here: what must hold between two options (`load.py`).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.proto.ids import INT32_MAX
from ottla.proto.options import topic, transactions
from ottla.proto.options.endpoints import (
    ADVERTISED,
    LISTENERS,
    VOTERS,
    Address,
    Listener,
    ListenerName,
    Voter,
)
from ottla.proto.options.option import (
    BOOL,
    INT,
    LIST,
    LONG,
    STRING,
    Check,
    Difference,
    Option,
    Synonym,
    at_least,
    between,
    one_of,
    rows_of,
    some_of,
)

_MIB: Final = 1024**2
_DAY_MS: Final = 24 * 60 * 60 * 1000

DEFAULT_LISTENERS: Final[dict[ListenerName, Listener]] = {
    "CLIENT": Listener("CLIENT", Address("127.0.0.1", 9092)),
    "INTERNAL": Listener("INTERNAL", Address("127.0.0.1", 9093)),
    "HTTP": Listener("HTTP", Address("127.0.0.1", 9100)),
}
_ALONE: Final[tuple[Voter, ...]] = ()
_AS_LISTENERS: Final[tuple[Listener, ...]] = ()

# ── Who this node is ──────────────────────────────────────────────────────────────────────────

NODE_ID: Final = Option(
    name="node.id",
    kind=INT,
    default=1,
    check=at_least(0),
    doc="The number of this node, different for every node of a cluster. It must be given where "
    "controller.quorum.voters names more than one.",
    synonyms=(Synonym("broker.id"),),
    differs=Difference("none, it is required", "a single node should start without a file."),
)
PROCESS_ROLES: Final = Option(
    name="process.roles",
    kind=LIST,
    default=("broker", "controller"),
    check=some_of("broker", "controller", empty=False),
    doc="What this node does: store partitions, vote on metadata, or both.",
    differs=Difference("none, it is required", "both suits small clusters."),
)
LOG_DIRS: Final = Option(
    name="log.dirs",
    kind=LIST,
    default=("data",),
    check=Check("one directory (several are not supported yet)", lambda dirs: len(dirs) == 1),
    doc="The data directory. Everything the node must remember is in it.",
    synonyms=(Synonym("log.dir"),),
    differs=Difference("/tmp/kafka-logs", "/tmp is emptied at a restart on many machines."),
)
STRICT_DATA_DIR: Final = Option(
    name="ottla.strict.data.dir",
    kind=BOOL,
    default=False,
    doc="Refuse to start with an empty data directory: for a node that should have data, so that "
    "a volume that was not mounted is noticed.",
)
BROKER_RACK: Final = Option(
    name="broker.rack",
    kind=STRING,
    default="",
    doc="Where this broker stands, in a word of your own. The replicas of a partition are spread "
    "over as many racks as there are. Empty: it is not said.",
)
CONTROLLER_VOTERS: Final = Option(
    name="controller.quorum.voters",
    kind=VOTERS,
    default=_ALONE,
    doc="The controllers that vote, as id@host:port of their INTERNAL listeners, the same list on "
    "every node. Empty: this node alone.",
    differs=Difference("none", "a single node should start without a file."),
)

# ── Where it listens ──────────────────────────────────────────────────────────────────────────

LISTENERS_OPTION: Final = Option(
    name="listeners",
    kind=LISTENERS,
    default=tuple(DEFAULT_LISTENERS.values()),
    doc="Where this node listens, as NAME://host:port: CLIENT speaks Kafka's protocol, INTERNAL "
    "and REPLICATION are for nodes only, HTTP serves metrics and health. One that is left out "
    "keeps its default address; an empty host means every address, port 0 any free port. "
    "REPLICATION, where brokers give their followers what is written, is at any free port of "
    "INTERNAL's host unless it is named, because followers learn the port over INTERNAL: name it "
    "where a firewall stands between nodes. Kafka's names PLAINTEXT and CONTROLLER are taken for "
    "CLIENT and INTERNAL. Any other name, INSIDE and OUTSIDE say, is a listener for clients too: "
    "there may be several, instead of CLIENT or beside it.",
    differs=Difference("PLAINTEXT://:9092", "nothing is open to the network unless asked for."),
)
ADVERTISED_LISTENERS: Final = Option(
    name="advertised.listeners",
    kind=ADVERTISED,
    default=_AS_LISTENERS,
    doc="The addresses that clients (CLIENT) and other nodes (INTERNAL, REPLICATION) are told to "
    "use, where they differ from those in listeners. REPLICATION, unless it is named here, is told "
    "with the host that is told of INTERNAL, or with its own where it listens on another one. "
    "Where there are several listeners for clients, each client is told the addresses of the one "
    "that it came in by.",
)
LISTENER_PROTOCOLS: Final = Option(
    name="listener.security.protocol.map",
    kind=LIST,
    default=(),
    doc="Kafka's NAME:PROTOCOL for each listener. It is read only to refuse what is not given: "
    "listeners for clients speak plain text, so theirs must be PLAINTEXT.",
    differs=Difference("one entry for each protocol", "there is nothing to choose yet."),
)
INTERNAL_KEYSTORE: Final = Option(
    name="listener.name.internal.ssl.keystore.location",
    kind=STRING,
    default="",
    doc="A PEM file with this node's private key and its certificate, which must carry the DNS "
    "name ottla-node-<id>. With it, and with the truststore, nodes speak TLS to one another, on "
    "INTERNAL and on REPLICATION, and each proves who it is.",
    differs=Difference("none", "a single node should start without a file."),
)
INTERNAL_TRUSTSTORE: Final = Option(
    name="listener.name.internal.ssl.truststore.location",
    kind=STRING,
    default="",
    doc="A PEM file with the certificates of the authorities that vouch for the nodes. It must be "
    "one of their own: whoever holds a certificate of it may speak as the node named there.",
    differs=Difference("none", "a single node should start without a file."),
)
MAX_CONNECTIONS: Final = Option(
    name="max.connections",
    kind=INT,
    default=INT32_MAX,
    check=at_least(1),
    doc="How many client connections may be open at once. 1000 is a strict choice.",
    dynamic=True,
)
MAX_CONNECTIONS_PER_IP: Final = Option(
    name="max.connections.per.ip",
    kind=INT,
    default=INT32_MAX,
    check=at_least(1),
    doc="How many of them may come from one address. 100 is a strict choice.",
    dynamic=True,
)
CONNECTIONS_MAX_IDLE_MS: Final = Option(
    name="connections.max.idle.ms",
    kind=LONG,
    default=10 * 60 * 1000,
    check=at_least(1),
    unit="ms",
    doc="A client connection on which nothing happened for this long is closed.",
)
SOCKET_REQUEST_MAX_BYTES: Final = Option(
    name="socket.request.max.bytes",
    kind=INT,
    default=100 * _MIB,
    check=at_least(1024),
    unit="bytes",
    doc="A client that announces a larger request is disconnected. 8 MiB is a strict choice.",
)
QUEUED_MAX_REQUEST_BYTES: Final = Option(
    name="queued.max.request.bytes",
    kind=LONG,
    default=512 * _MIB,
    check=Check("-1, or at least 1048576", lambda size: size == -1 or size >= _MIB),
    unit="bytes",
    doc="Memory for large requests that are still arriving, of all clients together. When it is "
    "used up, clients that send more wait until others are done; one of them may always go on. "
    "−1: as much as they want.",
    differs=Difference("-1", "a few clients with half-sent requests could take all the memory."),
)
MAX_REQUEST_PARTITIONS: Final = Option(
    name="max.request.partition.size.limit",
    kind=INT,
    default=2000,
    check=at_least(1),
    doc="How many partitions one answer to DescribeTopicPartitions holds; the rest is asked for "
    "again.",
)
FETCH_MAX_BYTES: Final = Option(
    name="fetch.max.bytes",
    kind=INT,
    default=55 * _MIB,
    check=at_least(1024),
    unit="bytes",
    doc="The most that one fetch is answered with, whatever it asks for; the first batch is "
    "always whole.",
)

# ── Topics ────────────────────────────────────────────────────────────────────────────────────

NUM_PARTITIONS: Final = Option(
    name="num.partitions",
    kind=INT,
    default=1,
    check=at_least(1),
    doc="How many partitions a topic gets whose maker did not say.",
)
DEFAULT_REPLICATION_FACTOR: Final = Option(
    name="default.replication.factor",
    kind=INT,
    default=3,
    check=between(1, 32767),
    doc="How many replicas a topic gets whose maker did not say; at most as many as there are "
    "brokers.",
    differs=Difference("1", "one replica is lost with its disk."),
)
AUTO_CREATE_TOPICS: Final = Option(
    name="auto.create.topics.enable",
    kind=BOOL,
    default=False,
    doc="Whether asking for a topic that is not there makes it.",
    differs=Difference("true", "a misspelt name should be an error and not a topic."),
)

# ── Replication and failover ──────────────────────────────────────────────────────────────────

REPLICA_LAG_MAX_MS: Final = Option(
    name="replica.lag.time.max.ms",
    kind=LONG,
    default=10_000,
    check=at_least(100),
    unit="ms",
    doc="A follower that has not caught up with its leader for this long leaves the in-sync set.",
    differs=Difference("30000", "writes with acks=all wait for a stuck follower until it leaves."),
)
REPLICA_FETCH_WAIT_MAX_MS: Final = Option(
    name="replica.fetch.wait.max.ms",
    kind=INT,
    default=500,
    check=at_least(1),
    unit="ms",
    doc="How long a leader lets a follower's fetch wait for data before it answers with nothing.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = Option(
    name="replica.fetch.response.max.bytes",
    kind=INT,
    default=10 * _MIB,
    check=at_least(1024),
    unit="bytes",
    doc="The most that a follower is sent in one answer; the first batch is always whole.",
)
BROKER_SESSION_TIMEOUT_MS: Final = Option(
    name="broker.session.timeout.ms",
    kind=INT,
    default=2000,
    check=at_least(100),
    unit="ms",
    doc="A broker that was silent for this long is fenced, and its leaderships move.",
    differs=Difference("9000", "a failover should take seconds, not ten."),
)
BROKER_HEARTBEAT_INTERVAL_MS: Final = Option(
    name="broker.heartbeat.interval.ms",
    kind=INT,
    default=300,
    check=at_least(10),
    unit="ms",
    doc="How often a broker tells the controller that it is there.",
    differs=Difference("2000", "it goes with the shorter session."),
)
LEADER_IMBALANCE_CHECK_SECONDS: Final = Option(
    name="leader.imbalance.check.interval.seconds",
    kind=LONG,
    default=30,
    check=at_least(1),
    unit="s",
    doc="How often leaderships are moved back to the preferred replicas.",
    differs=Difference("300", "a node that came back should soon carry its share."),
)
SNAPSHOT_BYTES: Final = Option(
    name="metadata.log.max.record.bytes.between.snapshots",
    kind=LONG,
    default=20 * _MIB,
    check=at_least(1),
    unit="bytes",
    doc="A controller replaces its journal of the metadata by a snapshot when it is longer than "
    "this, or has more than a thousand entries.",
)

# ── The log ───────────────────────────────────────────────────────────────────────────────────

RETENTION_CHECK_INTERVAL_MS: Final = Option(
    name="log.retention.check.interval.ms",
    kind=LONG,
    default=5 * 60 * 1000,
    check=at_least(1),
    unit="ms",
    doc="How often the node looks for segments that retention may remove.",
)
OFFSET_CHECKPOINT_INTERVAL_MS: Final = Option(
    name="log.flush.offset.checkpoint.interval.ms",
    kind=INT,
    default=5000,
    check=at_least(1),
    unit="ms",
    doc="How often recovery points are written down. After a crash a log is read from there on.",
    differs=Difference("60000", "one transaction for all partitions is cheap, recovery is not."),
)
HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = Option(
    name="replica.high.watermark.checkpoint.interval.ms",
    kind=LONG,
    default=5000,
    check=at_least(1),
    unit="ms",
    doc="How often high watermarks are written down.",
)
CLEANER_ENABLE: Final = Option(
    name="log.cleaner.enable",
    kind=BOOL,
    default=True,
    doc="Whether compacted topics are compacted. Without it they, and the committed offsets of "
    "groups, only grow.",
)
CLEANER_DEDUPE_BUFFER_BYTES: Final = Option(
    name="log.cleaner.dedupe.buffer.size",
    kind=LONG,
    default=128 * _MIB,
    check=at_least(_MIB),
    unit="bytes",
    doc="Memory for the keys of one cleaning. More keys than fit are cleaned in several rounds.",
    dynamic=True,
)
CLEANER_BACKOFF_MS: Final = Option(
    name="log.cleaner.backoff.ms",
    kind=LONG,
    default=15_000,
    check=at_least(0),
    unit="ms",
    doc="How long the cleaner rests when it found nothing to clean.",
)
PRODUCER_EXPIRATION_MS: Final = Option(
    name="producer.id.expiration.ms",
    kind=INT,
    default=_DAY_MS,
    check=at_least(1),
    unit="ms",
    doc="A partition forgets an idempotent producer that was silent for this long, and the longest "
    "silent one when it knows more than 5000.",
    dynamic=True,
)

# ── Consumer groups ───────────────────────────────────────────────────────────────────────────

GROUP_INITIAL_REBALANCE_DELAY_MS: Final = Option(
    name="group.initial.rebalance.delay.ms",
    kind=INT,
    default=500,
    check=at_least(0),
    unit="ms",
    doc="How long a new group waits for more members before it first shares out partitions.",
    differs=Difference("3000", "people who start one consumer should not wait three seconds."),
)
GROUP_MIN_SESSION_TIMEOUT_MS: Final = Option(
    name="group.min.session.timeout.ms",
    kind=INT,
    default=6000,
    check=at_least(1),
    unit="ms",
    doc="The shortest session time-out that a group member may ask for.",
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = Option(
    name="group.max.session.timeout.ms",
    kind=INT,
    default=30 * 60 * 1000,
    check=at_least(1),
    unit="ms",
    doc="The longest session time-out that a group member may ask for.",
)
GROUP_MAX_SIZE: Final = Option(
    name="group.max.size",
    kind=INT,
    default=INT32_MAX,
    check=at_least(1),
    doc="How many members a group may have.",
)
OFFSETS_TOPIC_PARTITIONS: Final = Option(
    name="offsets.topic.num.partitions",
    kind=INT,
    default=50,
    check=at_least(1),
    doc="Partitions of __consumer_offsets. It cannot be changed once the topic is there.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = Option(
    name="offsets.topic.replication.factor",
    kind=INT,
    default=3,
    check=between(1, 32767),
    doc="Replicas of __consumer_offsets; at most as many as there are configured nodes.",
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = Option(
    name="offsets.topic.segment.bytes",
    kind=INT,
    default=4 * _MIB,
    check=at_least(1),
    unit="bytes",
    doc="segment.bytes of __consumer_offsets: small, so that a new coordinator soon has read it.",
    differs=Difference("104857600", "the last segment is never compacted (ADR 0026)."),
)
OFFSETS_RETENTION_MINUTES: Final = Option(
    name="offsets.retention.minutes",
    kind=INT,
    default=7 * 24 * 60,
    check=at_least(1),
    unit="min",
    doc="Committed offsets are kept for this long after their group has become empty.",
)
OFFSET_METADATA_MAX_BYTES: Final = Option(
    name="offset.metadata.max.bytes",
    kind=INT,
    default=4096,
    check=between(0, 32767),
    unit="bytes",
    doc="The longest text that a consumer may keep beside a committed offset.",
)

# ── Looking inside ────────────────────────────────────────────────────────────────────────────

LOG_FORMAT: Final = Option(
    name="ottla.log.format",
    kind=STRING,
    default="text",
    check=one_of("text", "json"),
    doc="How the node's own log is written to standard error: a line for people, or a JSON object "
    "for programs, with the same keys.",
)
LOG_LEVEL: Final = Option(
    name="ottla.log.level",
    kind=STRING,
    default="info",
    check=one_of("debug", "info", "warning", "error"),
    doc="What is written there. A healthy idle node is silent at info.",
)
TRACE_FILE: Final = Option(
    name="trace.file",
    kind=STRING,
    default="",
    doc="Write leader changes, in-sync sets, high watermarks, truncations and syncs to this file "
    "as JSON lines. Empty: do not.",
)

OWN_TABLE: Final[tuple[Option[Any], ...]] = (*rows_of(globals()), *transactions.TABLE)


def _default_for_topics(row: Option[Any]) -> Option[Any]:
    first, *others = row.synonyms
    same_name = first.name == row.name
    return Option(
        name=first.name,
        kind=row.kind,
        default=row.default,
        check=row.check,
        doc=row.doc if same_name else f"The {row.name} of topics that do not set it.",
        unit=row.unit,
        synonyms=tuple(others),
        dynamic=row.dynamic,
        differs=row.differs,
        topic_option=row.name,
    )


DEFAULTS_FOR_TOPICS: Final = tuple(_default_for_topics(row) for row in topic.TABLE)
TABLE: Final = OWN_TABLE + DEFAULTS_FOR_TOPICS
BY_NAME: Final = {row.name: row for row in TABLE}
# By every name that a file may use: the row, and what the name means for it.
BY_ANY_NAME: Final = {name.name: (row, name) for row in TABLE for name in row.names}
OF_TOPIC_OPTION: Final = {row.topic_option: row for row in DEFAULTS_FOR_TOPICS}
