"""Puts records into a batch: what clients send, what compaction writes, what tools make.

B1  the result is sealed: `validate_stored` accepts it, and `decode_records` gives the records back
B2  the same arguments give the same bytes
B3  a batch may be sparse, and even empty: compaction keeps the header of an empty batch as the
    only memory of a producer's last sequence

Arguments that contradict each other are a bug of ours (`InvariantError`), because everything that
comes from outside has been checked before it gets here.
Not here: gathering records until a batch is full (`clients/`), and stamping (`header.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.proto.errors import ensure
from ottla.proto.ids import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    seal,
    write_header,
)
from ottla.proto.records.record import Record
from ottla.proto.records.varint import write_varint


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon_ms: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Return one sealed batch with these records at their own, absolute offsets.

    `last_offset` is needed when there are no records, or when the last ones are gone.
    `max_timestamp` is needed for LogAppendTime, and for an empty batch that is to keep its time.
    """
    if last_offset is None:
        ensure(records, "an empty batch is told its last offset")
        last_offset = records[-1].offset
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    ensure(0 <= base_offset <= last_offset <= INT64_MAX, "offsets go forward", base=base_offset)
    ensure(last_offset - base_offset <= INT32_MAX, "offset deltas have 32 bits", last=last_offset)
    base_timestamp = records[0].timestamp if records else max_timestamp
    attributes = int(codec) if records else int(Codec.NONE)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    payload = encode_records(records, header)
    return assemble(header, compress(codec, payload, level) if records else payload)


def assemble(header: BatchHeader, payload: bytes | bytearray) -> bytes:
    """Return a sealed batch of this header, with its length and checksum made right."""
    batch_length = HEADER_SIZE - LENGTH_END + len(payload)
    ensure(batch_length <= INT32_MAX, "the length of a batch has 31 bits", length=batch_length)
    batch = bytearray(write_header(header._replace(batch_length=batch_length)))
    batch += payload
    seal(batch)
    return bytes(batch)


def encode_records(records: Sequence[Record], header: BatchHeader) -> bytearray:
    """Return the records as they stand in a batch of this header, not packed."""
    output = bytearray()
    last_delta = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - header.base_offset
        ensure(
            last_delta < delta <= header.last_offset_delta,
            "offsets increase up to the last offset",
            offset=offset,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
        )
        last_delta = delta
        timestamp_delta = timestamp - header.base_timestamp
        ensure(abs(timestamp_delta) <= INT64_MAX, "timestamp deltas have 64 bits", time=timestamp)
        body = bytearray(1)
        write_varint(body, timestamp_delta)
        write_varint(body, delta)
        _write_bytes(body, key)
        _write_bytes(body, value)
        write_varint(body, len(headers))
        for name, content in headers:
            _write_bytes(body, name.encode())
            _write_bytes(body, content)
        write_varint(output, len(body))
        output += body
    return output


def _write_bytes(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body.append(1)  # The zigzag of -1.
        return
    write_varint(body, len(content))
    body += content
