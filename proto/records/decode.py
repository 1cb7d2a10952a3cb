"""Takes the records out of a batch, and believes nothing that stands in them.

A customs officer opens the parcel: every length is held against what is left, every count against
what could fit, before anything is made from it.

D1  work and memory are bounded by `max_bytes`, not by any number inside the batch
D2  what breaks the format is a `RecordsError` with a sentence, never another exception
D3  the records returned are those the header speaks of: as many as its count, with offsets that
    increase and stay within [base offset, last offset]

Kafka is more lenient in three points: it reads a key or value of length -2 as null, replaces what
is not UTF-8 in the key of a header, and does not compare offsets. We refuse, because what we give
out must be buildable again, byte for byte (`build.py`), by compaction and by tools.

Not here: the checksum (`validate.py`), and whether a producer may send this (`validate.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.proto.errors import ErrorCode, RecordsError
from ottla.proto.ids import INT64_MAX
from ottla.proto.records.compression import codec_of, decompress
from ottla.proto.records.header import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    TimestampType,
    read_batch_length,
    read_header,
)
from ottla.proto.records.record import Record
from ottla.proto.records.varint import read_varint, read_varlong

DECODE_BYTES_MAX: Final = 64 * 1024 * 1024
# Length, attributes, timestamp delta, offset delta, key length, value length, header count.
RECORD_SIZE_MIN: Final = 7
# The length of the key and of the value of a header.
_HEADER_SIZE_MIN: Final = 2
_MAGIC_POSITION: Final = 16

Headers = tuple[tuple[str, bytes | None], ...]


def decode_records(
    batch: bytes | bytearray | memoryview, *, max_bytes: int = DECODE_BYTES_MAX
) -> list[Record]:
    """Return all the records of exactly one whole batch, whose checksum the caller trusts."""
    return list(iterate_records(batch, max_bytes=max_bytes))


def iterate_records(
    batch: bytes | bytearray | memoryview, *, max_bytes: int = DECODE_BYTES_MAX
) -> Iterator[Record]:
    """Yield the records of exactly one whole batch, for a reader who may stop early.

    What is wrong behind the record where the reader stops is not found.
    """
    data = records_bytes(batch, max_bytes=max_bytes)
    header = read_header(batch)
    require_possible_count(header.count, len(data))
    return _iterate(data, header)


def records_bytes(
    batch: bytes | bytearray | memoryview, *, max_bytes: int = DECODE_BYTES_MAX
) -> bytes:
    """Return the records of exactly one whole batch unpacked, but not looked at."""
    header = _require_whole(batch)
    payload = memoryview(batch)[HEADER_SIZE:]
    # An empty batch has nothing to unpack, not even the frame of its codec.
    if header.count == 0 and not payload:
        return b""
    return decompress(codec_of(header.codec_bits), payload, max_bytes=max_bytes)


def require_possible_count(count: int, size: int) -> None:
    """Refuse a record count that `size` bytes of unpacked records cannot hold."""
    if count < 0 or count * RECORD_SIZE_MIN > size:
        raise _invalid(f"{size} bytes cannot hold the {count} records that the header counts.")


def _require_whole(batch: bytes | bytearray | memoryview) -> BatchHeader:
    size = len(batch)
    if size < HEADER_SIZE:
        raise _invalid(f"A batch has a header of {HEADER_SIZE} bytes; here are {size}.")
    if size != read_batch_length(batch) + LENGTH_END or batch[_MAGIC_POSITION] != MAGIC:
        raise _invalid(f"These {size} bytes are not exactly one batch with magic {MAGIC}.")
    return read_header(batch)


def _iterate(data: bytes, header: BatchHeader) -> Iterator[Record]:
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = (
        header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    )
    position = 0
    last_delta = -1
    for index in range(header.count):
        size, start = read_varint(data, position)
        position = start + size
        # A negative size ends before it starts; zero has no room for the attributes.
        if not start < position <= len(data):
            raise _invalid(f"Record {index} claims {size} bytes, and {len(data) - start} are left.")
        timestamp, delta, key, value, headers = _read_record(data, start, position)
        if not last_delta < delta <= header.last_offset_delta:
            raise _invalid(
                f"Record {index} has offset delta {delta}, after {last_delta} and with "
                f"{header.last_offset_delta} as the last."
            )
        last_delta = delta
        timestamp += base_timestamp
        if not -INT64_MAX - 1 <= timestamp <= INT64_MAX:
            raise _invalid(f"The timestamp of record {index} ({timestamp}) has more than 64 bits.")
        if append_time is not None:
            timestamp = append_time
        yield Record(base_offset + delta, timestamp, key, value, headers)
    if position != len(data):
        raise _invalid(f"{len(data) - position} bytes are left after {header.count} records.")


def _read_record(
    data: bytes, start: int, end: int
) -> tuple[int, int, bytes | None, bytes | None, Headers]:
    """Return timestamp delta, offset delta, key, value and headers of the record in [start, end).

    The attributes of a single record, its first byte, mean nothing yet and are skipped.
    """
    timestamp, position = read_varlong(data, start + 1)
    delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    # Nearly all records have no headers, and most of these end here.
    if position == end - 1 and data[position] == 0:
        return timestamp, delta, key, value, ()
    count, position = read_varint(data, position)
    headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise _invalid(f"A record ends at byte {position}, and its length says byte {end}.")
    return timestamp, delta, key, value, headers


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    if not 0 <= count * _HEADER_SIZE_MIN <= end - position:
        raise _invalid(f"A record claims {count} headers in {end - position} bytes.")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise _invalid("The key of a header is null.")
        value, position = _read_bytes(data, position, end)
        try:
            headers.append((key.decode(), value))
        except UnicodeDecodeError:
            raise _invalid(f"The key of a header is not UTF-8: {key[:32]!r}.") from None
    return tuple(headers), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position >= end:
        raise _invalid(f"A record ends at byte {end}, before its key, value or header.")
    size = data[position]
    # A length of one byte is read in place: this is most of the work of reading records.
    if size < 0x80:
        start = position + 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, start = read_varint(data, position)
    stop = start + size
    if size >= 0 and stop <= end:
        return data[start:stop], stop
    if size == -1:
        return None, start
    raise _invalid(
        f"A key, value or header at byte {start} claims {size} bytes, and its record has "
        f"{end - start} left."
    )


def _invalid(sentence: str) -> RecordsError:
    return RecordsError(ErrorCode.INVALID_RECORD, sentence)
