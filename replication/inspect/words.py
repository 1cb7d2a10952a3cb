"""The items of a dump in words and columns, for people.

Text is shown as text if it can be printed, else in hexadecimal; what is long is shortened, unless
all of it is asked for. Nothing is printed that could move a terminal's cursor.

Not here: reading files.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ottla.proto.ids import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.proto.records.header import TimestampType
from ottla.replication.inspect.dump import (
    BatchItem,
    IndexItem,
    Item,
    ProblemItem,
    RecordItem,
    TimeItem,
    codec_name,
)

_SHORT_CHARACTERS: Final = 80
# Years 1 to 9999: what can be written as a date.
_DATE_MS_MIN: Final = -62_135_596_800_000
_DATE_MS_MAX: Final = 253_402_300_799_999


def in_words(item: Item, *, full: bool = False) -> str:
    """Return one item as one line."""
    match item:
        case BatchItem():
            return _batch(item)
        case RecordItem():
            return _record(item, full=full)
        case IndexItem(offset, position):
            return f"{offset:>12}  at {position}"
        case TimeItem(timestamp, offset):
            return f"{time_in_words(timestamp)}  at offset {offset}"
        case ProblemItem(_, position, problem):
            return f"  ! at position {position}: {problem}"


def _batch(item: BatchItem) -> str:
    header = item.at.header
    parts = [
        f"{header.base_offset:>8} to {header.last_offset:<8}",
        f"at {item.at.position:<10}",
        f"{header.size:>8} bytes",
        f"{header.count:>6} records",
        f"{codec_name(header):<6}",
        time_in_words(header.max_timestamp),
    ]
    if header.leader_epoch != NO_EPOCH:
        parts.append(f"leader epoch {header.leader_epoch}")
    if header.producer_id != NO_PRODUCER_ID:
        parts.append(
            f"producer {header.producer_id} epoch {header.producer_epoch} "
            f"sequence {header.base_sequence} to {header.last_sequence}"
        )
    flags = {
        "append time": header.timestamp_type is TimestampType.LOG_APPEND_TIME,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
    parts += [name for name, is_set in flags.items() if is_set]
    if header.has_delete_horizon:
        parts.append(f"tombstones go {time_in_words(header.base_timestamp)}")
    parts.append("crc ok" if item.crc_ok else "CRC WRONG")
    return "  ".join(parts)


def _record(item: RecordItem, *, full: bool) -> str:
    record = item.record
    parts = [f"    {record.offset:>8}", time_in_words(record.timestamp)]
    parts.append(f"key {bytes_in_words(record.key, full=full)}")
    parts.append(f"value {bytes_in_words(record.value, full=full)}")
    for name, content in record.headers:
        shown = bytes_in_words(name.encode(), full=full)
        parts.append(f"header {shown} = {bytes_in_words(content, full=full)}")
    return "  ".join(parts)


def bytes_in_words(content: bytes | None, *, full: bool = False) -> str:
    """Return bytes as one would want to see them: text in quotes, or hexadecimal after 0x."""
    if content is None:
        return "null"
    # A character has four bytes at most, so that no more need to be looked at.
    head = content if full else content[: 4 * _SHORT_CHARACTERS + 4]
    text = _printable(head, is_cut=len(head) < len(content))
    if text is None:
        limit = len(content) if full else _SHORT_CHARACTERS // 2
        shown, is_short = f"0x{content[:limit].hex()}", len(content) > limit
    else:
        limit = len(text) if full else _SHORT_CHARACTERS
        shown = f'"{text[:limit]}"'
        is_short = len(text) > limit or len(head) < len(content)
    return f"{shown}… ({len(content)} bytes)" if is_short else shown


def _printable(head: bytes, *, is_cut: bool) -> str | None:
    # The cut may have gone through a character: up to three bytes of it may be left.
    for dropped in range(4 if is_cut else 1):
        try:
            text = head[: len(head) - dropped].decode()
        except UnicodeDecodeError:
            continue
        return text if text.isprintable() else None
    return None


def counted(count: int, thing: str) -> str:
    """Return how many things there are: `1 partition`, `2 partitions`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def time_in_words(timestamp: int) -> str:
    """Return a time as a date in UTC, or the bare number if it is none."""
    if timestamp == NO_TIMESTAMP:
        return "no time"
    if not _DATE_MS_MIN <= timestamp <= _DATE_MS_MAX:
        return f"time {timestamp}"
    seconds, millis = divmod(timestamp, 1000)
    date = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{date.isoformat(' ')}.{millis:03d}"
