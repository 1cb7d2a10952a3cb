"""What a file of a log holds, told one item at a time, for people and for programs.

`ottla log dump` prints each item as a line of JSON or in words; both tell the same. What cannot be
read is an item as well, with the place where it stands.

P1  a batch whose inside cannot be read does not hide the next one
P2  memory is bounded by one batch, and a batch larger than `OPEN_BYTES_MAX` is not opened

Not here: the words (`words.py`), directories (`overview.py`).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from ottla.proto.errors import RecordsError
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import DECODE_BYTES_MAX, iterate_records
from ottla.proto.records.header import CRC_START, MAGIC, BatchHeader, TimestampType
from ottla.proto.records.record import Record
from ottla.replication.inspect.entries import OFFSET_ENTRY, TIME_ENTRY, read_entries, used_entries
from ottla.replication.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_of,
)
from ottla.replication.log.scan import At, walk
from ottla.replication.storage.ports import File, Files

OPEN_BYTES_MAX: Final = DECODE_BYTES_MAX
_CRC_BYTES: Final = 1 << 20
# Of a segment that is being cleaned, swapped in (Kafka) or removed.
_TEMPORARY_SUFFIXES: Final = (CLEANED_SUFFIX, ".swap", DELETED_SUFFIX)
_TIME_TYPES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


class BatchItem(NamedTuple):
    """One batch, by its header."""

    at: At
    crc_ok: bool

    def as_json(self) -> dict[str, Any]:
        header = self.at.header
        return {
            "type": "batch",
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "position": self.at.position,
            "size": header.size,
            "leader_epoch": header.leader_epoch,
            "codec": codec_name(header),
            "crc": header.crc,
            "crc_ok": self.crc_ok,
            "count": header.count,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "max_timestamp": header.max_timestamp,
            "timestamp_type": timestamp_type_name(header),
            "transactional": header.is_transactional,
            "control": header.is_control,
            "delete_horizon_ms": header.base_timestamp if header.has_delete_horizon else None,
        }


class RecordItem(NamedTuple):
    """One record of the batch told before it."""

    record: Record

    def as_json(self) -> dict[str, Any]:
        offset, timestamp, key, value, headers = self.record
        return {
            "type": "record",
            "offset": offset,
            "timestamp": timestamp,
            "key": _bytes_as_json(key),
            "value": _bytes_as_json(value),
            "headers": [[name, _bytes_as_json(content)] for name, content in headers],
        }


class IndexItem(NamedTuple):
    """One entry of an offset index."""

    offset: int
    position: int

    def as_json(self) -> dict[str, Any]:
        return {"type": "index_entry", "offset": self.offset, "position": self.position}


class TimeItem(NamedTuple):
    """One entry of a time index."""

    timestamp: int
    offset: int

    def as_json(self) -> dict[str, Any]:
        return {"type": "time_entry", "timestamp": self.timestamp, "offset": self.offset}


class ProblemItem(NamedTuple):
    """Something that could not be told, and where it stands."""

    path: str
    position: int
    problem: str

    def as_json(self) -> dict[str, Any]:
        return {
            "type": "problem",
            "file": self.path,
            "position": self.position,
            "problem": self.problem,
        }


Item = BatchItem | RecordItem | IndexItem | TimeItem | ProblemItem


@dataclass(frozen=True, slots=True)
class DumpChoice:
    """How much of a file to tell."""

    records: bool = False
    # Nothing that lies wholly below.
    from_offset: int = 0
    batches_max: int | None = None


def kind_of(path: str) -> str | None:
    """Return the suffix that says what a file is, or None if it is no file of a segment."""
    name = _plain_name(path)
    kinds = (TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)
    return next((kind for kind in kinds if name.endswith(kind)), None)


def _plain_name(path: str) -> str:
    name = path.rpartition("/")[2]
    for suffix in _TEMPORARY_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def dump_file(files: Files, path: str, choice: DumpChoice) -> Iterator[Item]:
    """Yield what is in a file of a segment. Raises `OSError` if it cannot be opened."""
    kind = kind_of(path)
    file = files.open(path, writable=False)
    try:
        if kind == LOG_SUFFIX:
            yield from _dump_batches(file, path, choice)
        elif kind is not None:
            yield from _dump_index(file, path, kind, choice)
    finally:
        file.close()


def _dump_batches(file: File, path: str, choice: DumpChoice) -> Iterator[Item]:
    size = file.size()
    reached = told = 0
    for at in walk(file, 0, size):
        reached = at.end_position
        if at.header.last_offset < choice.from_offset:
            continue
        if told == choice.batches_max:
            return
        told += 1
        yield from _dump_batch(file, path, at, choice)
    if reached < size:
        yield ProblemItem(path, reached, f"no batch in the last {size - reached} bytes")


def _dump_batch(file: File, path: str, at: At, choice: DumpChoice) -> Iterator[Item]:
    crc = _crc_at(file, at)
    yield BatchItem(at, crc == at.header.crc)
    if crc != at.header.crc:
        sentence = f"checksum {crc:#010x} where {at.header.crc:#010x} was written"
        yield ProblemItem(path, at.position, sentence)
    elif at.header.magic != MAGIC:
        sentence = f"magic {at.header.magic}; this program knows {MAGIC}"
        yield ProblemItem(path, at.position, sentence)
    elif choice.records:
        yield from _dump_records(file, path, at, choice)


def _dump_records(file: File, path: str, at: At, choice: DumpChoice) -> Iterator[Item]:
    if at.header.size > OPEN_BYTES_MAX:
        yield ProblemItem(path, at.position, f"{at.header.size} bytes are too many to open")
        return
    try:
        for record in iterate_records(file.read_at(at.position, at.header.size)):
            if record.offset >= choice.from_offset:
                yield RecordItem(record)
    except RecordsError as error:
        yield ProblemItem(path, at.position, f"the records cannot be read: {error.sentence}")


def _crc_at(file: File, at: At) -> int:
    crc = 0
    for start in range(at.position + CRC_START, at.end_position, _CRC_BYTES):
        crc = crc32c(file.read_at(start, min(_CRC_BYTES, at.end_position - start)), crc)
    return crc


def _dump_index(file: File, path: str, kind: str, choice: DumpChoice) -> Iterator[Item]:
    base = base_of(_plain_name(path), kind)
    if base is None:
        yield ProblemItem(path, 0, "its name does not say at which offset the segment begins")
        return
    entry = OFFSET_ENTRY if kind == INDEX_SUFFIX else TIME_ENTRY
    count = used_entries(file, entry)
    for key, value in read_entries(file, entry, count):
        item = (
            IndexItem(base + key, value) if entry is OFFSET_ENTRY else TimeItem(key, base + value)
        )
        if item.offset >= choice.from_offset:
            yield item
    left = file.size() % entry.size
    if left and count == file.size() // entry.size:
        yield ProblemItem(path, count * entry.size, f"the last {left} bytes are no entry")


def codec_name(header: BatchHeader) -> str:
    bits = header.codec_bits
    return Codec(bits).name.lower() if bits <= Codec.ZSTD else f"unknown ({bits})"


def timestamp_type_name(header: BatchHeader) -> str:
    return _TIME_TYPES[header.timestamp_type]


def _bytes_as_json(content: bytes | None) -> str | dict[str, str] | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}
