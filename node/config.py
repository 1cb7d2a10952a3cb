"""From the option table to the settings that packages obey.

`replication` never sees a table, a name or a text: what it obeys is built here, with types.

Not here: the rows and their checks (`ottla.proto.options`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.proto.errors import ConfigError
from ottla.proto.options import node, topic
from ottla.proto.options.load import load, load_topic
from ottla.proto.options.option import Option, shown
from ottla.proto.options.properties import FILE_BYTES_MAX
from ottla.proto.options.sources import ConfigFile, Options
from ottla.proto.records.header import TimestampType
from ottla.replication.settings import LogSettings

_TIMESTAMP_TYPES: Final = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_LEVELS: Final[dict[str, Option[int]]] = {
    "gzip": topic.COMPRESSION_GZIP_LEVEL,
    "lz4": topic.COMPRESSION_LZ4_LEVEL,
    "zstd": topic.COMPRESSION_ZSTD_LEVEL,
}
# What compression.gzip.level says to leave the choice to gzip.
_GZIP_CHOOSES: Final = -1


def load_node_options(
    *, path: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> Options:
    """Return the options of a node from its three sources, or raise `ConfigError`."""
    file = None if path is None else ConfigFile(str(path), _read_bounded(path))
    return load(file=file, environment=environment, flags=flags)


def _read_bounded(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # One byte more than allowed is enough to see that it is too large.
            return file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"cannot read the file {shown(str(path))}: {reason}.") from None


def log_settings(overrides: Mapping[str, str], node_options: Options) -> LogSettings:
    """Return what the log of a topic obeys, or raise `ConfigError` if an override is wrong."""
    return settings_from(load_topic(overrides, node_options), node_options)


def settings_from(options: Options, node_options: Options) -> LogSettings:
    """Return the settings that a topic's options, complete, come to."""
    of = options.value_of
    return LogSettings(
        delete="delete" in of(topic.CLEANUP_POLICY),
        compact="compact" in of(topic.CLEANUP_POLICY),
        compression_type=of(topic.COMPRESSION_TYPE),
        compression_level=_level_of(options),
        segment_bytes=of(topic.SEGMENT_BYTES),
        segment_ms=of(topic.SEGMENT_MS),
        segment_jitter_ms=of(topic.SEGMENT_JITTER_MS),
        segment_index_bytes=of(topic.SEGMENT_INDEX_BYTES),
        index_interval_bytes=of(topic.INDEX_INTERVAL_BYTES),
        retention_ms=of(topic.RETENTION_MS),
        retention_bytes=of(topic.RETENTION_BYTES),
        file_delete_delay_ms=of(topic.FILE_DELETE_DELAY_MS),
        delete_retention_ms=of(topic.DELETE_RETENTION_MS),
        min_cleanable_dirty_ratio=of(topic.MIN_CLEANABLE_DIRTY_RATIO),
        min_compaction_lag_ms=of(topic.MIN_COMPACTION_LAG_MS),
        max_compaction_lag_ms=of(topic.MAX_COMPACTION_LAG_MS),
        max_message_bytes=of(topic.MAX_MESSAGE_BYTES),
        timestamp_type=_TIMESTAMP_TYPES[of(topic.TIMESTAMP_TYPE)],
        timestamp_before_max_ms=of(topic.TIMESTAMP_BEFORE_MAX_MS),
        timestamp_after_max_ms=of(topic.TIMESTAMP_AFTER_MAX_MS),
        fsync=of(topic.DURABILITY) == "fsync",
        validate_records=of(topic.VALIDATE_RECORDS),
        producer_expiry_ms=node_options.value_of(node.PRODUCER_EXPIRATION_MS),
    )


def _level_of(options: Options) -> int | None:
    row = _LEVELS.get(options.value_of(topic.COMPRESSION_TYPE))
    if row is None:
        return None
    level = options.value_of(row)
    is_left_open = row is topic.COMPRESSION_GZIP_LEVEL and level == _GZIP_CHOOSES
    return None if is_left_open else level
