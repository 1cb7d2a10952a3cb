"""Bytes of a fetch into columns: keys, values, offsets, times; no object for a record.

The same bytes as `proto/records/decode.py` reads; a property test compares the two. Arrow wants
columns, so a record is never put together: each of its fields goes to the end of its list.

C1  a batch is believed only if its checksum is right, unless `check.crcs` is off
C2  the end of each record is where its length says, and the end of the last is the end of the bytes
C3  records outside of [position, stop) are left out, and so are control batches and aborted ones
C4  unpacking is bounded by `DECODE_BYTES_MAX`, and what is given out at once by `ROWS_MAX` and
    `BYTES_MAX`, or one batch if that is larger

Headers of records, which few ask for, are read by `proto/records/decode.py`.

Not here: Arrow (`arrow.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.clients.consumer.decoding import AbortedFilter
from ottla.proto.errors import CorruptionError, ErrorCode, RecordsError
from ottla.proto.ids import TopicPartition
from ottla.proto.records.compression import codec_of, decompress
from ottla.proto.records.decode import (
    DECODE_BYTES_MAX,
    Headers,
    iterate_records,
    require_possible_count,
)
from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    crc_of,
    read_batch_length,
    read_header,
)
from ottla.proto.records.varint import read_varint, read_varlong

ROWS_MAX: Final = 20_000
BYTES_MAX: Final = 8 << 20
_ZIGZAG: Final = tuple((folded >> 1) ^ -(folded & 1) for folded in range(0x80))


@dataclass(slots=True)
class Columns:
    """Some records of one partition, field by field; all lists have the same length."""

    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    # Milliseconds since 1970, or -1.
    times_ms: list[int] = field(default_factory=list)
    # 0: the producer's time, 1: the leader's.
    time_kinds: list[int] = field(default_factory=list)
    # Empty if nobody asked for them.
    headers: list[Headers] = field(default_factory=list)
    # Unpacked bytes that these came from.
    size: int = 0


def read_columns(
    data: memoryview,
    where: TopicPartition,
    position: int,
    stop: int,
    *,
    with_headers: bool = False,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
) -> Iterator[Columns]:
    """Yield the records of [position, stop) in the whole batches of a fetch, in order.

    Raises `CorruptionError` or `RecordsError` with the place for what cannot be read.
    """
    dropping = AbortedFilter(aborted) if aborted else None
    columns = Columns()
    for batch, header in _batches(data, where, position):
        if header.base_offset >= stop:
            break
        if header.next_offset <= position:
            continue
        try:
            if check_crcs:
                _require_seal(batch, header)
            is_dropped = dropping is not None and dropping.drops(batch, header)
            if not is_dropped and not header.is_control:
                _append(batch, header, columns, position, stop, with_headers=with_headers)
        except (CorruptionError, RecordsError) as error:
            raise _told(error, where, header.base_offset) from error
        if len(columns.offsets) >= ROWS_MAX or columns.size >= BYTES_MAX:
            yield columns
            columns = Columns()
    if columns.offsets:
        yield columns


def _batches(
    data: memoryview, where: TopicPartition, position: int
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Yield whole batches; one that is cut off at the end comes whole with the next fetch."""
    at, total = 0, len(data)
    while at + HEADER_SIZE <= total:
        length = read_batch_length(data, at)
        end = at + LENGTH_END + length
        if length < BATCH_LENGTH_MIN:
            raise CorruptionError(f"{where} after offset {position}: a batch length of {length}.")
        if end > total:
            if at == 0:
                raise CorruptionError(
                    f"{where} at offset {position}: a batch of {end} bytes of which {total} came; "
                    "raise kafka.max.partition.fetch.bytes and kafka.fetch.max.bytes."
                )
            return
        yield data[at:end], read_header(data, at)
        at = end


def _require_seal(batch: memoryview, header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptionError(f"the batch has magic {header.magic}, and only {MAGIC} is read")
    if crc_of(batch) != header.crc:
        raise CorruptionError(f"the bytes of the batch do not give its checksum {header.crc:#010x}")


def _append(
    batch: memoryview,
    header: BatchHeader,
    columns: Columns,
    position: int,
    stop: int,
    *,
    with_headers: bool,
) -> None:
    new = _with_headers(batch, header) if with_headers else _without_headers(batch, header)
    low = bisect_left(new.offsets, position)
    high = bisect_left(new.offsets, stop)
    columns.keys += new.keys[low:high]
    columns.values += new.values[low:high]
    columns.offsets += new.offsets[low:high]
    columns.times_ms += new.times_ms[low:high]
    columns.headers += new.headers[low:high]
    columns.time_kinds += [int(header.timestamp_type)] * (high - low)
    columns.size += new.size


def _with_headers(batch: memoryview, header: BatchHeader) -> Columns:
    new = Columns(size=header.size)
    for record in iterate_records(batch):
        new.keys.append(record.key)
        new.values.append(record.value)
        new.offsets.append(record.offset)
        new.times_ms.append(record.timestamp)
        new.headers.append(record.headers)
    return new


def _without_headers(batch: memoryview, header: BatchHeader) -> Columns:
    payload = batch[HEADER_SIZE:]
    new = Columns()
    if header.count == 0 and not payload:
        return new
    if header.codec_bits:
        data = decompress(codec_of(header.codec_bits), payload, max_bytes=DECODE_BYTES_MAX)
    else:
        data = bytes(payload)
    require_possible_count(header.count, len(data))
    new.size = len(data)
    deltas, times = list[int](), list[int]()
    try:
        at = _read_all(data, header, new.keys, new.values, deltas, times)
    except IndexError:
        raise _invalid("The records end inside a number.") from None
    if at != len(data):
        raise _invalid(f"{len(data) - at} bytes are left after {header.count} records.")
    base = header.base_offset
    new.offsets = [base + delta for delta in deltas]
    if header.attributes & TIMESTAMP_TYPE_BIT:
        new.times_ms = [header.max_timestamp] * len(deltas)
    else:
        base_ms = header.base_timestamp
        new.times_ms = [base_ms + delta for delta in times]
    return new


def _read_all(
    data: bytes,
    header: BatchHeader,
    keys: list[bytes | None],
    values: list[bytes | None],
    deltas: list[int],
    times: list[int],
) -> int:
    """Append every record's fields, and return where the last record ends.

    A number of one byte or two is read in place; `IndexError` says that the bytes end too early.
    """
    last, delta_max, zigzag = -1, header.last_offset_delta, _ZIGZAG
    at = 0
    for _ in range(header.count):
        # The length of the record, then one byte of attributes that mean nothing yet.
        if (byte := data[at]) < 0x80:
            end, at = at + 1 + zigzag[byte], at + 2
        elif (high := data[at + 1]) < 0x80 and not byte & 1:
            end, at = at + 2 + ((byte & 0x7F | high << 7) >> 1), at + 3
        else:
            size, at = read_varint(data, at)
            end, at = at + size, at + 1
        if (byte := data[at]) < 0x80:
            time, at = zigzag[byte], at + 1
        else:
            time, at = read_varlong(data, at)
        if (byte := data[at]) < 0x80:
            delta, at = zigzag[byte], at + 1
        elif (high := data[at + 1]) < 0x80 and not byte & 1:
            delta, at = (byte & 0x7F | high << 7) >> 1, at + 2
        else:
            delta, at = read_varint(data, at)
        key: bytes | None = None
        if (byte := data[at]) == 1:
            at += 1
        elif byte < 0x80 and not byte & 1:
            key = data[at + 1 : (at := at + 1 + (byte >> 1))]
        else:
            key, at = _bytes_at(data, at)
        value, at = _bytes_at(data, at)
        # Something is left for the count of headers, which stay unread.
        if at >= end or not last < delta <= delta_max:
            raise _misplaced(at, end, last, delta, delta_max)
        last, at = delta, end
        keys.append(key)
        values.append(value)
        deltas.append(delta)
        times.append(time)
    return at


def _bytes_at(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size == -1:
        return None, at
    if size < 0:
        raise _invalid(f"A key or value claims {size} bytes.")
    end = at + size
    return data[at:end], end


def _misplaced(at: int, end: int, last: int, delta: int, delta_max: int) -> RecordsError:
    if at >= end:
        return _invalid(f"A record ends at byte {end}, before its headers at byte {at}.")
    return _invalid(
        f"A record has offset delta {delta}, after {last} and with {delta_max} as the last."
    )


def _told(
    error: CorruptionError | RecordsError, where: TopicPartition, offset: int
) -> CorruptionError | RecordsError:
    place = f"{where} at offset {offset}"
    if isinstance(error, RecordsError):
        return RecordsError(error.code, f"{place}: {error.sentence}")
    return CorruptionError(f"{place}: {error}.")


def _invalid(sentence: str) -> RecordsError:
    return RecordsError(ErrorCode.INVALID_RECORD, sentence)
