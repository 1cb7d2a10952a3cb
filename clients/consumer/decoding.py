"""Bytes of a fetch into records, quickly and without trust.

The same bytes as `proto/records/decode.py` reads, and the same refusals; that one is the measure of
this one (a property test compares them). What is different is the pace: no call per field, no
object per header, one tuple per record; and rows of records that are built alike are read by
columns (`columns.py`), or if only their sizes differ, with one step for all numbers of a record but
one (`heads.py`).

F1  a batch is believed only if its checksum is right, unless `check.crcs` is off
F2  a length is believed because the end of each record is where its own length says, and the end of
    the last is the end of the bytes: a slice that reached too far is found out before anything
    is given out
F3  control batches, batches of aborted transactions (if asked for) and records below the position
    are passed over, and the position after them is still told
F4  a batch that is cut off at the end of a fetch is no error: it comes whole next time. One that is
    cut off at the beginning of a fetch is told, because it would never come
F5  unpacking is bounded by `DECODE_BYTES_MAX`, whatever a batch says
F6  a fetch is opened in portions of whole batches, as the program reads it. Thousands of records
    made at once would outgrow the caches and keep the garbage collector busy: at 1 KB a record
    that is half of all the work
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.clients.consumer.columns import RUN_MIN, Run, read_run
from ottla.clients.consumer.heads import read_heads
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
# So many records are read one by one before it is looked whether a run begins: more each time that
# there was none.
_BLOCK_MIN: Final = 32
_BLOCK_MAX: Final = 512
# Of records that differ in size: fewer are read sooner one by one, and after so many it is looked
# whether some follow that do not differ.
_HEADS_MIN: Final = 48
_RUN_MAX: Final = 512
# From such a base, deltas of a byte or two stay within 64 bits; longer ones are looked at.
_BASE_MAX: Final = 1 << 62
# The length of the key and of the value of a header.
_HEADER_SIZE_MIN: Final = 2
_CONTROL_ABORT: Final = b"\x00\x00\x00\x00"


class Decoded(NamedTuple):
    """What a run of batches held."""

    records: list[Record]
    # Where the next fetch goes on; at least the position that was asked for.
    next_offset: int
    # Where the last whole batch ends in the bytes; where it began if there was none.
    end: int
    # The epoch of the last batch, or -1.
    leader_epoch: int
    # Whether it ended because there were enough, so that more may follow.
    is_portion: bool


class _Source(NamedTuple):
    """A batch that is being read: its records as bytes, and what is the same for all of them."""

    data: bytes
    header: BatchHeader
    topic: str
    partition: int


def decode_fetched(
    data: memoryview,
    topic: str,
    partition: int,
    position: int,
    *,
    check_crcs: bool = True,
    aborted: AbortedFilter | None = None,
    start: int = 0,
    enough: int = INT64_MAX,
) -> Decoded:
    """Return the records at or after `position`, in order, from the batch at `start` on.

    `aborted` is for read_committed, and goes along from portion to portion. With so many records as
    are `enough` no further batch is opened (F6).
    Raises `CorruptionError` for a damaged batch and `RecordsError` for one that cannot be read; the
    sentence names topic, partition and offset.
    """
    records: list[Record] = []
    at = start
    next_offset = position
    epoch = -1
    total = len(data)
    while at + HEADER_SIZE <= total:
        if len(records) >= enough:
            return Decoded(records, next_offset, at, epoch, True)
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
            is_dropped = aborted is not None and aborted.drops(batch, header)
            if not is_dropped and not header.attributes & CONTROL_BIT:
                _decode_batch(batch, header, topic, partition, next_offset, records)
        except (CorruptionError, RecordsError) as error:
            raise _told(error, topic, partition, next_offset) from error
        next_offset = after
    return Decoded(records, next_offset, at, epoch, False)


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
    """Tells which batches belong to aborted transactions (KIP-98), if it is shown each once."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        # By first offset, the earliest last: popped as the batches come by.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def copy(self) -> AbortedFilter:
        """Return one that has seen as much, for who may have to look again."""
        twin = AbortedFilter(())
        twin._coming, twin._open = self._coming.copy(), self._open.copy()
        return twin

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
        at = _read_all(_Source(data, header, topic, partition), records)
    except IndexError:
        raise _invalid("The records end inside a number.") from None
    if at != len(data):
        raise _invalid(f"{len(data) - at} bytes are left after {header.count} records.")
    if not -_BASE_MAX <= header.base_timestamp <= _BASE_MAX:
        # Nobody writes such times. What their sums are is looked at, even if the leader's count.
        given = header._replace(attributes=header.attributes & ~TIMESTAMP_TYPE_BIT)
        times: list[Record] = []
        _read_all(_Source(data, given, topic, partition), times)
        _require_times(times)


def _read_all(source: _Source, records: list[Record]) -> int:
    """Append all records, and return where the last one ends: in runs if they are plain."""
    data, at, last, left, block = source.data, 0, -1, source.header.count, _BLOCK_MIN
    while left:
        run = _run_at(data, at, last + 1, left) if left >= RUN_MIN else None
        if run is not None:
            _take_run(source, run, last + 1, records)
            at, last, left = run.end, last + run.height, left - run.height
            if run.height >= RUN_MIN:
                # The next one may be the only one that is not plain.
                block = 1
                continue
        count = min(left, block)
        at, last = _read_block(source, at, last, count, records)
        left -= count
        block = min(2 * block, _BLOCK_MAX)
    return at


def _run_at(data: bytes, at: int, delta: int, left: int) -> Run | None:
    run = read_run(data, at, delta, left)
    if run is None and left >= _HEADS_MIN:
        return read_heads(data, at, delta, min(left, _RUN_MAX))
    return run


def _take_run(source: _Source, run: Run, delta: int, records: list[Record]) -> None:
    _, header, topic, partition = source
    if delta + run.height - 1 > header.last_offset_delta:
        raise _misplaced(
            run.end, run.end, delta - 1, delta + run.height - 1, header.last_offset_delta
        )
    first = header.base_offset + delta
    times: Iterable[int]
    if header.attributes & TIMESTAMP_TYPE_BIT:
        kind, times = TimestampType.LOG_APPEND_TIME, repeat(header.max_timestamp)
    else:
        kind, times = TimestampType.CREATE_TIME, map(header.base_timestamp.__add__, run.time_deltas)
    # A tuple a record, and a record of it, without a step of Python for each.
    rows = zip(
        repeat(topic),
        repeat(partition),
        range(first, first + run.height),
        times,
        run.keys,
        run.values,
        repeat(_NO_HEADERS),
        repeat(kind),
        repeat(header.leader_epoch),
    )
    records.extend(map(_new, repeat(Record), rows))


# A number of one byte or two is read in place; `IndexError` says that the bytes end too early.
def _read_block(  # noqa: C901, PLR0915 - a call taken out of its loop costs a tenth of it
    source: _Source, at: int, last: int, count: int, records: list[Record]
) -> tuple[int, int]:
    """Append so many records, and return where the last one ends and its offset delta."""
    data, header, topic, partition = source
    base_offset, base_ms, epoch = header.base_offset, header.base_timestamp, header.leader_epoch
    by_leader = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    kind, time_ms = TimestampType(int(by_leader)), header.max_timestamp
    time_min, time_max = -INT64_MAX - 1 - base_ms, INT64_MAX - base_ms
    delta_max, zigzag = header.last_offset_delta, _ZIGZAG
    key: bytes | None
    value: bytes | None
    places: list[tuple[object, ...]] = []
    append = places.append
    for _ in range(count):
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
            if not time_min <= time_delta <= time_max:
                raise _late(base_ms + time_delta)
        if (byte := data[at]) < 0x80:
            delta, at = zigzag[byte], at + 1
        elif (high := data[at + 1]) < 0x80 and not byte & 1:
            delta, at = (byte & 0x7F | high << 7) >> 1, at + 2
        else:
            delta, at = read_varint(data, at)
        if (byte := data[at]) == 1:
            key, at = None, at + 1
        elif not byte & 0x81:  # one byte, and not less than 0
            key = data[at + 1 : (at := at + 1 + zigzag[byte])]
        else:
            key, at = _bytes_at(data, at)
        if (byte := data[at]) >= 0x80 and (high := data[at + 1]) < 0x80 and not byte & 1:
            value = data[at + 2 : (at := at + 2 + ((byte & 0x7F | high << 7) >> 1))]
        elif not byte & 0x81:
            value = data[at + 1 : (at := at + 1 + zigzag[byte])]
        else:
            value, at = _bytes_at(data, at)
        if data[at] == 0:
            headers, at = _NO_HEADERS, at + 1
        else:
            headers, at = _headers_at(data, at, end)
        if at != end or not last < delta <= delta_max:
            raise _misplaced(at, end, last, delta, delta_max)
        last = delta
        if not by_leader:
            time_ms = base_ms + time_delta
        append((topic, partition, base_offset + delta, time_ms, key, value, headers, kind, epoch))
    # Records are made of the tuples without a step of Python for each.
    records.extend(map(_new, repeat(Record), places))
    return at, last


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
            raise _late(record.timestamp_ms)


def _late(time_ms: int) -> RecordsError:
    return _invalid(f"The timestamp {time_ms} has more than 64 bits.")


def _invalid(sentence: str) -> RecordsError:
    return RecordsError(ErrorCode.INVALID_RECORD, sentence)
