"""The settings that this package obeys, as plain values.

Not here: option names, parsing, bounds, sources. A log never sees the option table or the
environment; `ottla.node.config` reads the table and builds these. The values themselves are not
checked, so that a test may roll a segment every hundred bytes.

The defaults equal those of the option table; a test keeps the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.proto.ids import INT64_MAX
from ottla.proto.records.header import TimestampType

_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What one partition's log obeys: its topic's options, merged with the node's."""

    # Retention removes old segments; compaction keeps the last record of each key. Neither: the
    # log is kept for ever.
    delete: bool = True
    compact: bool = False

    # `producer` keeps each batch as it came; else uncompressed, gzip, snappy, lz4 or zstd.
    compression_type: str = "producer"
    # For `compression_type` gzip, lz4 and zstd. None: the codec has no levels, or chooses itself.
    compression_level: int | None = None

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    # Up to this much is taken off `segment_ms` by lot, so that logs do not all roll at once.
    segment_jitter_ms: int = 0
    # Room for the entries of each index file; a full index rolls the segment.
    segment_index_bytes: int = 10 * 1024**2
    # One index entry about every this many bytes of log.
    index_interval_bytes: int = 4096

    # -1: for ever, or without bound.
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    # Between the rename of a segment and its removal.
    file_delete_delay_ms: int = 60_000

    # A tombstone stays this long after the cleaner first met it.
    delete_retention_ms: int = _DAY_MS
    # The share of a log that must be uncleaned before cleaning it pays.
    min_cleanable_dirty_ratio: float = 0.5
    # A record younger than this is never compacted away.
    min_compaction_lag_ms: int = 0
    # A record older than this makes its log due for cleaning whatever the ratio.
    max_compaction_lag_ms: int = INT64_MAX

    # Of a whole batch as it would be stored, header and all.
    max_message_bytes: int = 1024**2 + 12
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    # How far a producer's timestamp may lie before and after the leader's clock.
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = _HOUR_MS

    # Acknowledged means synced; without it, handed to the page cache.
    fsync: bool = True
    # Open every batch on the way in, not only its header and checksum.
    validate_records: bool = False
    # A producer that was silent for this long is forgotten.
    producer_expiry_ms: int = _DAY_MS
