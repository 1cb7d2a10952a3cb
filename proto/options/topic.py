"""The options of a topic, under Kafka's names.

A topic takes its own value, else the node's value under one of the synonyms, else the default.

Not here: what a log does with them (`ottla.replication`), and Kafka's options that have no effect
here (`ignored.py`).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.proto.ids import INT64_MAX
from ottla.proto.options.option import (
    BOOL,
    DOUBLE,
    INT,
    LIST,
    LONG,
    STRING,
    Difference,
    Option,
    Synonym,
    at_least,
    between,
    minus_one_or_between,
    one_of,
    rows_of,
    some_of,
)

_MINUTE_MS: Final = 60 * 1000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_MIB: Final = 1024**2

CLEANUP_POLICY: Final = Option(
    name="cleanup.policy",
    kind=LIST,
    default=("delete",),
    check=some_of("delete", "compact", empty=True),
    doc="How old records go: delete removes whole segments by age and size, compact keeps the last "
    "record of every key. Both may be given. Empty keeps everything for ever.",
    synonyms=(Synonym("log.cleanup.policy"),),
    dynamic=True,
)
COMPRESSION_TYPE: Final = Option(
    name="compression.type",
    kind=STRING,
    default="producer",
    check=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    doc="How batches are stored. producer keeps each batch as it came, which is by far the "
    "cheapest; anything else makes the leader open and compress what comes differently.",
    synonyms=(Synonym("compression.type"),),
    dynamic=True,
)
COMPRESSION_GZIP_LEVEL: Final = Option(
    name="compression.gzip.level",
    kind=INT,
    default=-1,
    check=minus_one_or_between(1, 9),
    doc="The level when compression.type is gzip. -1 leaves it to gzip.",
    synonyms=(Synonym("compression.gzip.level"),),
    dynamic=True,
)
COMPRESSION_LZ4_LEVEL: Final = Option(
    name="compression.lz4.level",
    kind=INT,
    default=9,
    check=between(1, 17),
    doc="The level when compression.type is lz4.",
    synonyms=(Synonym("compression.lz4.level"),),
    dynamic=True,
)
COMPRESSION_ZSTD_LEVEL: Final = Option(
    name="compression.zstd.level",
    kind=INT,
    default=3,
    check=between(-131072, 22),
    doc="The level when compression.type is zstd.",
    synonyms=(Synonym("compression.zstd.level"),),
    dynamic=True,
)
DELETE_RETENTION_MS: Final = Option(
    name="delete.retention.ms",
    kind=LONG,
    default=_DAY_MS,
    check=at_least(0),
    unit="ms",
    doc="How long a tombstone stays in a compacted topic, so that a reader who began at the start "
    "of the log learns of the deletion.",
    synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
    dynamic=True,
)
FILE_DELETE_DELAY_MS: Final = Option(
    name="file.delete.delay.ms",
    kind=LONG,
    default=_MINUTE_MS,
    check=at_least(0),
    unit="ms",
    doc="How long a segment that was taken out of the log stays on disk, renamed, for those who "
    "are still reading it.",
    synonyms=(Synonym("log.segment.delete.delay.ms"),),
    dynamic=True,
)
INDEX_INTERVAL_BYTES: Final = Option(
    name="index.interval.bytes",
    kind=INT,
    default=4096,
    check=at_least(0),
    unit="bytes",
    doc="One index entry about every so many bytes of log: smaller finds an offset faster, and "
    "makes the index larger.",
    synonyms=(Synonym("log.index.interval.bytes"),),
    dynamic=True,
)
SEGMENT_BYTES: Final = Option(
    name="segment.bytes",
    kind=INT,
    default=1024 * _MIB,
    check=at_least(_MIB),
    unit="bytes",
    doc="The size at which a log begins a new segment file. Retention and compaction work on whole "
    "segments and never on the newest. The floor of 1 MiB is Kafka's.",
    synonyms=(Synonym("log.segment.bytes"),),
    dynamic=True,
)
SEGMENT_MS: Final = Option(
    name="segment.ms",
    kind=LONG,
    default=7 * _DAY_MS,
    check=at_least(1),
    unit="ms",
    doc="The age at which a log begins a new segment file even if the old one is not full, so that "
    "retention can reach it.",
    synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    dynamic=True,
)
SEGMENT_JITTER_MS: Final = Option(
    name="segment.jitter.ms",
    kind=LONG,
    default=0,
    check=at_least(0),
    unit="ms",
    doc="Up to this much is taken off segment.ms by lot, so that many logs do not roll at once.",
    synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    dynamic=True,
)
SEGMENT_INDEX_BYTES: Final = Option(
    name="segment.index.bytes",
    kind=INT,
    default=10 * _MIB,
    check=at_least(4),
    unit="bytes",
    doc="The size at which an index is full, which begins a new segment.",
    synonyms=(Synonym("log.index.size.max.bytes"),),
    dynamic=True,
)
RETENTION_MS: Final = Option(
    name="retention.ms",
    kind=LONG,
    default=7 * _DAY_MS,
    check=at_least(-1),
    unit="ms",
    doc="With cleanup.policy delete: a segment goes when its newest record is older than this. "
    "-1 keeps it whatever its age.",
    synonyms=(
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    dynamic=True,
)
RETENTION_BYTES: Final = Option(
    name="retention.bytes",
    kind=LONG,
    default=-1,
    check=at_least(-1),
    unit="bytes",
    doc="With cleanup.policy delete: the oldest segments of a partition go while the rest is at "
    "least this large. -1 sets no limit.",
    synonyms=(Synonym("log.retention.bytes"),),
    dynamic=True,
)
MAX_MESSAGE_BYTES: Final = Option(
    name="max.message.bytes",
    kind=INT,
    default=_MIB + 12,
    check=at_least(0),
    unit="bytes",
    doc="The largest batch taken, compressed as it comes, header and all.",
    synonyms=(Synonym("message.max.bytes"),),
    dynamic=True,
)
TIMESTAMP_TYPE: Final = Option(
    name="message.timestamp.type",
    kind=STRING,
    default="CreateTime",
    check=one_of("CreateTime", "LogAppendTime"),
    doc="Whose clock dates the records: the producer's, or the leader's on arrival.",
    synonyms=(Synonym("log.message.timestamp.type"),),
    dynamic=True,
)
TIMESTAMP_BEFORE_MAX_MS: Final = Option(
    name="message.timestamp.before.max.ms",
    kind=LONG,
    default=INT64_MAX,
    check=at_least(0),
    unit="ms",
    doc="How far a producer's timestamp may lie before the leader's clock. It is not looked at "
    "with LogAppendTime.",
    synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
    dynamic=True,
)
TIMESTAMP_AFTER_MAX_MS: Final = Option(
    name="message.timestamp.after.max.ms",
    kind=LONG,
    default=_HOUR_MS,
    check=at_least(0),
    unit="ms",
    doc="How far a producer's timestamp may lie after the leader's clock: one record dated years "
    "ahead would keep its segment for years. It is not looked at with LogAppendTime.",
    synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
    dynamic=True,
)
MIN_CLEANABLE_DIRTY_RATIO: Final = Option(
    name="min.cleanable.dirty.ratio",
    kind=DOUBLE,
    default=0.5,
    check=between(0, 1),
    doc="With cleanup.policy compact: the share of the log that must be new since the last "
    "cleaning before it is cleaned again. Smaller saves disk and costs work.",
    synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
    dynamic=True,
)
MIN_COMPACTION_LAG_MS: Final = Option(
    name="min.compaction.lag.ms",
    kind=LONG,
    default=0,
    check=at_least(0),
    unit="ms",
    doc="A record younger than this is never compacted away.",
    synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
    dynamic=True,
)
MAX_COMPACTION_LAG_MS: Final = Option(
    name="max.compaction.lag.ms",
    kind=LONG,
    default=INT64_MAX,
    check=at_least(1),
    unit="ms",
    doc="A record older than this makes its log due for cleaning, whatever the dirty ratio.",
    synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
    dynamic=True,
)
MIN_INSYNC_REPLICAS: Final = Option(
    name="min.insync.replicas",
    kind=INT,
    default=2,
    check=at_least(1),
    doc="A write with acks=all needs this many replicas in sync, and is refused otherwise. A topic "
    "with fewer replicas needs all of them.",
    synonyms=(Synonym("min.insync.replicas"),),
    dynamic=True,
    differs=Difference("1", "with 1, a record that only the leader holds counts as acknowledged."),
)
UNCLEAN_LEADER_ELECTION: Final = Option(
    name="unclean.leader.election.enable",
    kind=BOOL,
    default=False,
    doc="Whether a replica that is not in sync may lead when no other is left. It brings the "
    "partition back and loses acknowledged records.",
    synonyms=(Synonym("unclean.leader.election.enable"),),
    dynamic=True,
)
DURABILITY: Final = Option(
    name="ottla.durability",
    kind=STRING,
    default="fsync",
    check=one_of("fsync", "pagecache"),
    doc="What a replica has done when it counts a record as held: fsync has it on disk, pagecache "
    "has handed it to the operating system, and a power cut takes what was not written yet.",
    synonyms=(Synonym("ottla.durability"),),
    dynamic=True,
    differs=Difference(
        "pagecache", "acknowledged should survive a power cut of all nodes at once."
    ),
)
VALIDATE_RECORDS: Final = Option(
    name="ottla.validate.records",
    kind=BOOL,
    default=False,
    doc="Open every batch on the way in and refuse one whose records are malformed. Otherwise only "
    "header and checksum are looked at, and a batch is stored as its producer signed it.",
    synonyms=(Synonym("ottla.validate.records"),),
    dynamic=True,
    differs=Difference("true", "opening every batch costs more than all the rest of a write."),
)

TABLE: Final[tuple[Option[Any], ...]] = rows_of(globals())
BY_NAME: Final = {row.name: row for row in TABLE}


def effective_min_insync(min_insync: int, *, replication_factor: int) -> int:
    """Return how many replicas acks=all needs: a topic cannot need more than it has."""
    return min(min_insync, replication_factor)
