"""The two doors that every batch comes through: from a producer, and from another copy of the log.

`validate_produced` gives Kafka's answer to the same bytes, and so asks in Kafka's order:

    is it one batch?    bytes, length, magic, nothing behind it      INVALID_RECORD, CORRUPT_MESSAGE
    is it sound?        base offset, size, checksum, codec           + MESSAGE_TOO_LARGE
    may a client?       count, control bit, producer id              INVALID_RECORD
    when was it made?   timestamps against the topic's limits        INVALID_TIMESTAMP
    does it fit?        segment size, producer epoch                 RECORD_LIST_TOO_LARGE

The inside stays closed: the envelope is checked, the letter is the sender's business. It is opened
only for a compacted topic (every record needs a key) and on request (`validate_records`).

W1  a batch that passes has exactly the size, magic and checksum that its header says
W2  a batch that passes takes `count` offsets, and its size can hold so many records
W3  on the way of a good batch nothing is copied and nothing is unpacked

Where we are stricter than Kafka, a comment beginning with "Stricter" says why. Every case with its
code stands in `tests/unit/proto/records/bad_batches.py`.
Not here: sequences against earlier ones (the log's producer state), and whatever concerns the
request (acks, transactional id, topic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from ottla.proto.errors import CorruptionError, ErrorCode, RecordsError, RequestError
from ottla.proto.ids import INT64_MAX, NO_TIMESTAMP
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import DECODE_BYTES_MAX, RECORD_SIZE_MIN, iterate_records
from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
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
from ottla.proto.records.record import Record

# Up to here Kafka reads before it knows the format; a message of magic 0 has at least 14 bytes.
_MAGIC_END: Final = 17
_LEGACY_LENGTH_MIN: Final = 14
# A member of an enum that is looked up by name costs as much as a comparison of three numbers.
_CREATE_TIME: Final = TimestampType.CREATE_TIME
# What only the leader and the cleaner may set, and what needs a producer id.
_QUESTIONABLE_BITS: Final = (
    CONTROL_BIT | DELETE_HORIZON_BIT | TRANSACTIONAL_BIT | TIMESTAMP_TYPE_BIT
)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one topic allows, in Kafka's words; the defaults are Kafka's."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    # The topic keeps the last value of every key, so every record needs one.
    compacted: bool = False
    # Look at every record on the way in (`ottla.validate.records`).
    validate_records: bool = False


def validate_produced(
    batch: bytes | bytearray | memoryview | None, limits: BatchLimits, *, now_ms: int
) -> BatchHeader:
    """Return the header of what a producer sent for one partition, or raise `RequestError`."""
    if batch is None or len(batch) < HEADER_SIZE:
        raise _not_one_batch(batch)
    size = len(batch)
    header = read_header(batch)
    # Taken apart once: looking the fields up by name, one by one, is what costs time here.
    (base_offset, length, _, magic, told_crc, attributes, delta, base_ms, max_ms, producer_id,
     producer_epoch, sequence, count) = header  # fmt: skip
    if length != size - LENGTH_END or magic != MAGIC:
        raise _not_one_batch(batch)
    if base_offset != 0:
        raise _invalid(f"A producer's batch begins at offset 0, not {header.base_offset}.")
    if size > limits.max_message_bytes:
        require_size(size, limits)
    view = batch if type(batch) is memoryview else memoryview(batch)
    crc = crc32c(view[CRC_START:])
    if told_crc != crc:
        raise RequestError(
            ErrorCode.CORRUPT_MESSAGE,
            f"The batch carries checksum {told_crc:#010x}, and its bytes give {crc:#010x}.",
        )
    # The usual batch passes with one look; any other is asked question by question.
    fits = 0 < count == delta + 1 and count * RECORD_SIZE_MIN <= size - HEADER_SIZE
    if not fits or attributes or (producer_id >= 0 and (sequence < 0 or producer_epoch < 0)):
        _require_from_client(header, size)
    if limits.timestamp_type is _CREATE_TIME and not (
        0 <= base_ms <= max_ms
        and now_ms - base_ms <= limits.timestamp_before_max_ms
        and max_ms - now_ms <= limits.timestamp_after_max_ms
    ):
        _require_time(max_ms, limits, now_ms)
        _require_time(base_ms, limits, now_ms)
    if limits.compacted or limits.validate_records:
        _require_records(batch, header, limits, now_ms)
    if size > limits.segment_bytes:
        require_size(size, limits)
    return header


def require_size(size: int, limits: BatchLimits) -> None:
    """Refuse a batch that is too large, as it came or as the leader has packed it anew."""
    if size > limits.max_message_bytes:
        raise RequestError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {size} bytes, and max.message.bytes is {limits.max_message_bytes}.",
        )
    if size > limits.segment_bytes:
        raise RequestError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batch has {size} bytes, and segment.bytes is {limits.segment_bytes}.",
        )


def _require_from_client(header: BatchHeader, size: int) -> None:
    """Check what needs the header only, and is not about time."""
    count = header.count
    codec_bits = header.attributes & CODEC_MASK
    if codec_bits > Codec.ZSTD:
        # Stricter in words only: Kafka answers UNKNOWN_SERVER_ERROR.
        raise RequestError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"No codec has the number {codec_bits}; 0 to 4 exist.",
        )
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(
            f"The header counts {count} records, and its last offset delta is "
            f"{header.last_offset_delta}."
        )
    # Kafka finds this when it reads the records. Without the check, a header alone would take two
    # thousand million offsets of the partition.
    if count * RECORD_SIZE_MIN > (DECODE_BYTES_MAX if codec_bits else size - HEADER_SIZE):
        raise _invalid(f"A batch of {size} bytes cannot hold {count} records.")
    if header.attributes & _QUESTIONABLE_BITS:
        _require_client_attributes(header)
    if header.producer_id >= 0:
        _require_producer(header)


def _require_client_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("A client may not write control records.")
    if header.has_delete_horizon:
        # Stricter: it changes what the base timestamp means and how long a tombstone stays, and
        # that is for the cleaner to say.
        raise _invalid("A client may not set a delete horizon.")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # Stricter for a CreateTime topic, where Kafka clears the bit and seals the batch again.
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP, "A client may not say that its times are the leader's."
        )
    if header.is_transactional and header.producer_id < 0:
        # Stricter: nobody could ever end this transaction.
        raise _invalid("A transactional batch needs a producer id.")


def _require_producer(header: BatchHeader) -> None:
    if header.base_sequence < 0:
        raise _invalid(
            f"A batch of producer {header.producer_id} has sequence {header.base_sequence}."
        )
    if header.producer_epoch < 0:
        # Stricter for -1, which Kafka takes from a producer it has not met before.
        raise RequestError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"A batch of producer {header.producer_id} has epoch {header.producer_epoch}.",
        )


def _require_time(timestamp: int, limits: BatchLimits, now_ms: int) -> None:
    """Refuse a time too far from now, as Kafka does record by record.

    Applied to the highest time and to that of the first record, which is what a header tells.
    """
    if timestamp == NO_TIMESTAMP:
        return
    # Stricter for times before 1970: in a lookup by time negative numbers are commands.
    if (
        timestamp < 0
        or now_ms - timestamp > limits.timestamp_before_max_ms
        or timestamp - now_ms > limits.timestamp_after_max_ms
    ):
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP,
            f"The time {timestamp} is not within [{now_ms} - {limits.timestamp_before_max_ms}, "
            f"{now_ms} + {limits.timestamp_after_max_ms}].",
        )


def _require_records(
    batch: bytes | bytearray | memoryview, header: BatchHeader, limits: BatchLimits, now_ms: int
) -> None:
    """Read all the records and check each; with a bound on memory and time.

    That offsets go up by one needs no check here: the header counts as many records as offsets,
    and reading has refused offsets that do not increase or go beyond the last.
    """
    max_timestamp = NO_TIMESTAMP
    for index, record in enumerate(iterate_records(batch)):
        _require_record(record, index, limits, now_ms)
        max_timestamp = max(max_timestamp, record.timestamp)
    # Stricter: Kafka writes the right one and seals again. What lies would mislead lookups by time.
    if limits.validate_records and max_timestamp != header.max_timestamp:
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP,
            f"The header says that the highest time is {header.max_timestamp}, and it is "
            f"{max_timestamp}.",
        )


def _require_record(record: Record, index: int, limits: BatchLimits, now_ms: int) -> None:
    if limits.compacted and record.key is None:
        raise RecordsError(
            ErrorCode.INVALID_RECORD, f"Record {index} has no key, and the topic is compacted."
        )
    if limits.timestamp_type is TimestampType.CREATE_TIME:
        _require_time(record.timestamp, limits, now_ms)


def _not_one_batch(batch: bytes | bytearray | memoryview | None) -> RequestError:
    """Return what Kafka says of bytes that are not exactly one batch.

    Kafka reads batch after batch, and has two different answers for a batch that is cut off and
    for one that is damaged.
    """
    if batch is None:
        return _invalid("The records are null; one batch was expected.")
    view = memoryview(batch)
    error, size = _frame(view)
    if error is not None:
        return error
    if view[_MAGIC_END - 1] != MAGIC:
        return _invalid(
            f"Only batches with magic {MAGIC} can be produced, not magic {view[_MAGIC_END - 1]}."
        )
    if size < len(view):
        error, _ = _frame(view[size:])
        if error is not None and error.code is not ErrorCode.INVALID_RECORD:
            return error
        # A length that was damaged on the way shows here as well, and a retry mends that.
        if error is not None and size >= HEADER_SIZE and not _is_sealed(view[:size]):
            return RequestError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch says it has {size} bytes, and those have another checksum.",
            )
        # Stricter for a second batch that is cut off: Kafka drops its bytes without a word.
        return _invalid(f"{len(view) - size} bytes follow the one batch that is allowed.")
    # Stricter in words below a length of 39: Kafka answers UNKNOWN_SERVER_ERROR.
    return RequestError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch length is {size - LENGTH_END}, and a header alone has {BATCH_LENGTH_MIN}.",
    )


def _is_sealed(view: memoryview) -> bool:
    return read_header(view).crc == crc32c(view[CRC_START:])


def _frame(view: memoryview) -> tuple[RequestError | None, int]:
    """Return the size of the batch that begins here, or why there is none."""
    size = len(view)
    if size < LENGTH_END:
        return _invalid(f"{size} bytes are no batch."), 0
    batch_length = read_batch_length(view)
    if batch_length < _LEGACY_LENGTH_MIN:
        return RequestError(ErrorCode.CORRUPT_MESSAGE, f"The batch length is {batch_length}."), 0
    if size < _MAGIC_END:
        return _invalid(f"{size} bytes are no batch."), 0
    if view[_MAGIC_END - 1] > MAGIC:
        return RequestError(
            ErrorCode.CORRUPT_MESSAGE, f"There is no magic {view[_MAGIC_END - 1]}."
        ), 0
    if batch_length + LENGTH_END > size:
        return _invalid(
            f"The batch is cut off: {batch_length + LENGTH_END} bytes, of which {size} are here."
        ), 0
    return None, batch_length + LENGTH_END


def _invalid(sentence: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_RECORD, sentence)


def validate_stored(batch: bytes | bytearray | memoryview) -> BatchHeader:
    """Return the header of one batch that a log gave us, or raise `CorruptionError`.

    For what was accepted once: a follower's fetch, a file after a crash, a client's fetch. The
    batch may be sparse or empty, transactional, control, or cleaned.
    """
    size = len(batch)
    if size < HEADER_SIZE:
        raise CorruptionError(f"A batch has a header of {HEADER_SIZE} bytes; here are {size}.")
    header = read_header(batch)
    if header.batch_length != size - LENGTH_END or header.magic != MAGIC:
        raise CorruptionError(
            f"A batch of magic {header.magic} and length {header.batch_length} was found where "
            f"{size - LENGTH_END} bytes of magic {MAGIC} should be."
        )
    crc = crc32c(memoryview(batch)[CRC_START:])
    if header.crc != crc:
        raise CorruptionError(
            f"The batch at offset {header.base_offset} carries checksum {header.crc:#010x}, and "
            f"its bytes give {crc:#010x}."
        )
    delta = header.last_offset_delta
    if delta < 0 or not (
        0 <= header.count <= delta + 1 and 0 <= header.base_offset < INT64_MAX - delta
    ):
        raise CorruptionError(
            f"A batch at offset {header.base_offset} counts {header.count} records up to offset "
            f"delta {delta}."
        )
    return header
