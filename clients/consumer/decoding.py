"""Bytes of a fetch into records, quickly and without trust.

The same bytes as `proto/records/decode.py` reads, and the same refusals; that one is the measure of
this one (a property test compares them). What is different is the pace: no call per field, no
object per header, one tuple per record.

F1  a batch is believed only if its checksum is right, unless `check.crcs` is off
F2  a length is believed because the end of each record is where its own length says, and the end of
    the last is the end of the bytes: a slice that reached too far is found out before anything
    is given out
F3  control batches, batches of aborted transactions (if asked for) and records below the position
    are passed over, and the position after them is still told
F4  a batch that is cut off at the end of a fetch is no error: it comes whole next time. One that is
    cut off at the beginning of a fetch is told, because it would never come
F5  unpacking is bounded by `DECODE_BYTES_MAX`, whatever a batch says
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.clients.consumer.record import Record
from ottla.proto.errors import CorruptionError, ErrorCode, RecordsError
from ottla.proto.ids import INT64_MAX
from ottla.proto.records.compression import codec_of, decompress
from ottla.proto.records.decode import (
    DECODE_BYTES_MAX,
    Headers,
    require_possible_count,
)
from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    read_batch_length,
    read_header,
)
from ottla.proto.records.varint import read_varint, read_varlong

_ZIGZAG: Final = tuple((folded >> 1) ^ -(folded & 1) for folded in range(0x80))
_new: Final = tuple.__new__
_NO_HEADERS: Final[Headers] = ()
# The length of the key and of the value of a header.
_HEADER_SIZE_MIN: Final = 2
_CONTROL_ABORT: Final = b"\x00\x00\x00\x00"


class Decoded(NamedTuple):
    """What a run of batches held."""

    records: list[Record]
    # Where the next fetch goes on; at least the position that was asked for.
    next_offset: int
    # Bytes of whole batches; 0 if there was none.
    size: int
    # The epoch of the last batch, or -1.
    leader_epoch: int


def decode_fetched(
    data: memoryview,
    topic: str,
    partition: int,
    position: int,
    *,
    check_crcs: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
) -> Decoded:
    """Return the records at or after `position`, in order.

    `aborted` is for read_committed: producer ids and first offsets of aborted transactions.
    Raises `CorruptionError` for a damaged batch and `RecordsError` for one that cannot be read; the
    sentence names topic, partition and offset.
    """
    records: list[Record] = []
    at = 0
    next_offset = position
    epoch = -1
    filter_aborted = AbortedFilter(aborted) if aborted else None
    total = len(data)
    while at + HEADER_SIZE <= total:
        length = read_batch_length(data, at)
        end = at + LENGTH_END + length
        if length < BATCH_LENGTH_MIN or end > total:
            if length >= BATCH_LENGTH_MIN and at > 0:
                break
            _refuse_length(length, topic, partition, next_offset, left=total - at)
        header = read_header(data, at)
        batch = data[at:end]
        at = end
        epoch = header.leader_epoch
        after = header.base_offset + header.last_offset_delta + 1
        if after <= next_offset:
            continue
        try:
            if check_crcs:
                _require_seal(batch, header)
            is_dropped = filter_aborted is not None and filter_aborted.drops(batch, header)
            if not is_dropped and not header.attributes & CONTROL_BIT:
                _decode_batch(batch, header, topic, partition, next_offset, records)
        except (CorruptionError, RecordsError) as error:
            raise _told(error, topic, partition, next_offset) from error
        next_offset = after
    return Decoded(records, next_offset, at, epoch)


def scan(data: memoryview, position: int) -> tuple[int, int]:
    """Return where the whole batches end, as an offset, and the epoch of the last one or -1.

    Only headers are looked at; what is in the batches is for `decode_fetched`.
    """
    at = 0
    epoch = -1
    total = len(data)
    while at + HEADER_SIZE <= total:
        end = at + LENGTH_END + read_batch_length(data, at)
        if end < at + HEADER_SIZE or end > total:
            break
        header = read_header(data, at)
        position = max(position, header.base_offset + header.last_offset_delta + 1)
        epoch = header.leader_epoch
        at = end
    return position, epoch


class AbortedFilter:
    """Tells which batches belong to aborted transactions (KIP-98)."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        # By first offset, the earliest last: popped as the batches come by.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def drops(self, batch: memoryview, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1][0] <= header.base_offset + header.last_offset_delta:
            self._open.add(self._coming.pop()[1])
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        if header.attributes & CONTROL_BIT:
            if _is_abort(batch, header):
                self._open.discard(header.producer_id)
            return True
        return header.producer_id in self._open


def _is_abort(batch: memoryview, header: BatchHeader) -> bool:
    marks: list[Record] = []
    _decode_batch(batch, header, "", -1, header.base_offset, marks)
    return bool(marks) and marks[0].key == _CONTROL_ABORT


def _require_seal(batch: memoryview, header: BatchHeader) -> None:
    if header.magic != MAGIC:
        raise CorruptionError(f"the batch has magic {header.magic}, and only {MAGIC} is read")
    crc = crc32c(batch[CRC_START:])
    if crc != header.crc:
        raise CorruptionError(
            f"the batch carries checksum {header.crc:#010x}, and its bytes give {crc:#010x}"
        )


def _refuse_length(length: int, topic: str, partition: int, offset: int, *, left: int) -> None:
    if length < BATCH_LENGTH_MIN:
        raise CorruptionError(
            f"{topic}-{partition} at offset {offset}: a batch length of {length}."
        )
    raise CorruptionError(
        f"{topic}-{partition} at offset {offset}: a batch of {length + LENGTH_END} bytes of which "
        f"{left} came; raise max.partition.fetch.bytes and fetch.max.bytes."
    )


def _told(
    error: CorruptionError | RecordsError, topic: str, partition: int, offset: int
) -> CorruptionError | RecordsError:
    where = f"{topic}-{partition} at offset {offset}"
    if isinstance(error, RecordsError):
        return RecordsError(error.code, f"{where}: {error.sentence}")
    return CorruptionError(f"{where}: {error}.")


def _decode_batch(
    batch: memoryview,
    header: BatchHeader,
    topic: str,
    partition: int,
    position: int,
    records: list[Record],
) -> None:
    count = header.count
    payload = batch[HEADER_SIZE:]
    if count == 0 and not payload:
        return
    codec_bits = header.attributes & CODEC_MASK
    if codec_bits:
        data = decompress(codec_of(codec_bits), payload, max_bytes=DECODE_BYTES_MAX)
    else:
        data = bytes(payload)
    require_possible_count(count, len(data))
    first = len(records)
    _read_records(data, header, topic, partition, records)
    if records and len(records) > first and records[first].offset < position:
        records[first:] = [record for record in records[first:] if record.offset >= position]


def _read_records(
    data: bytes, header: BatchHeader, topic: str, partition: int, records: list[Record]
) -> None:
    """Append all records of a batch; the bytes must hold exactly those (F2)."""
    try:
        at = _read_all(data, header, topic, partition, records)
    except IndexError:
        raise _invalid("The records end inside a number.") from None
    if at != len(data):
        raise _invalid(f"{len(data) - at} bytes are left after {header.count} records.")
    is_given = not header.attributes & TIMESTAMP_TYPE_BIT
    if is_given and not -INT64_MAX <= header.base_timestamp <= INT64_MAX - (1 << 62):
        _require_times(records[-header.count :])


def _read_all(  # noqa: C901, PLR0915 - every call taken out of this loop costs a tenth of its pace
    data: bytes, header: BatchHeader, topic: str, partition: int, records: list[Record]
) -> int:
    """Append all records, and return where the last one ends.

    A number of one byte or two is read in place; `IndexError` says that the bytes end too early.
    """
    base_offset, base_ms, epoch = header.base_offset, header.base_timestamp, header.leader_epoch
    by_leader = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    kind = TimestampType.LOG_APPEND_TIME if by_leader else TimestampType.CREATE_TIME
    time_ms = header.max_timestamp
    last, delta_max = -1, header.last_offset_delta
    zigzag, new, append, headers = _ZIGZAG, _new, records.append, _NO_HEADERS
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
            time_delta, at = zigzag[byte], at + 1
        else:
            time_delta, at = read_varlong(data, at)
        if (byte := data[at]) < 0x80:
            delta, at = zigzag[byte], at + 1
        elif (high := data[at + 1]) < 0x80 and not byte & 1:
            delta, at = (byte & 0x7F | high << 7) >> 1, at + 2
        else:
            delta, at = read_varint(data, at)
        key: bytes | None = None
        value: bytes | None = None
        if (byte := data[at]) == 1:
            at += 1
        elif byte < 0x80:
            key = data[at + 1 : (at := at + 1 + zigzag[byte])]
        else:
            key, at = _bytes_at(data, at)
        if (byte := data[at]) >= 0x80 and (high := data[at + 1]) < 0x80 and not byte & 1:
            value = data[at + 2 : (at := at + 2 + ((byte & 0x7F | high << 7) >> 1))]
        elif byte < 0x80 and byte != 1:
            value = data[at + 1 : (at := at + 1 + zigzag[byte])]
        else:
            value, at = _bytes_at(data, at)
        headers, at = (_NO_HEADERS, at + 1) if data[at] == 0 else _headers_at(data, at, end)
        if at != end or not last < delta <= delta_max:
            raise _misplaced(at, end, last, delta, delta_max)
        last = delta
        if not by_leader:
            time_ms = base_ms + time_delta
        place = (topic, partition, base_offset + delta, time_ms, key, value, headers, kind, epoch)
        append(new(Record, place))
    return at


def _bytes_at(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return a key or value and the place after it, read the slow way; None for null."""
    size, at = read_varint(data, at)
    if size == -1:
        return None, at
    end = at + _sound(size)
    return data[at:end], end


def _headers_at(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count * _HEADER_SIZE_MIN <= end - at:
        raise _invalid(f"A record claims {count} headers in {end - at} bytes.")
    headers = []
    for _ in range(count):
        size, at = read_varint(data, at)
        name = data[at : at + _sound(size)]
        size, at = read_varint(data, at + size)
        value = None if size == -1 else data[at : at + _sound(size)]
        at += max(size, 0)
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise _invalid(f"The key of a header is not UTF-8: {name[:32]!r}.") from None
    return tuple(headers), at


def _sound(size: int) -> int:
    if size < 0:
        raise _invalid(f"A key or value claims {size} bytes.")
    return size


def _misplaced(at: int, end: int, last: int, delta: int, delta_max: int) -> RecordsError:
    if at != end:
        return _invalid(f"A record ends at byte {at}, and its length says byte {end}.")
    return _invalid(
        f"A record has offset delta {delta}, after {last} and with {delta_max} as the last."
    )


def _require_times(records: Sequence[Record]) -> None:
    for record in records:
        if not -INT64_MAX - 1 <= record.timestamp_ms <= INT64_MAX:
            raise _invalid(f"The timestamp {record.timestamp_ms} has more than 64 bits.")


def _invalid(sentence: str) -> RecordsError:
    return RecordsError(ErrorCode.INVALID_RECORD, sentence)
