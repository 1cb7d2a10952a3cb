"""The 61 bytes in front of every batch, read and stamped in place.

    0  base offset        int64   stamped by the leader      ┐
    8  batch length       int32   bytes after this field     │ outside the checksum
   12  leader epoch       int32   stamped by the leader      │
   16  magic              int8    2                          │
   17  crc                uint32  CRC-32C from byte 21 on    ┘
   21  attributes         int16   codec, timestamp type, transactional, control, delete horizon
   23  last offset delta  int32
   27  base timestamp     int64   the delete horizon, if that attribute is set (KIP-534)
   35  max timestamp      int64
   43  producer id        int64
   51  producer epoch     int16
   53  base sequence      int32
   57  record count       int32
   61  the records, compressed as the attributes say

An envelope: the post office writes on the outside (offset, epoch), and the seal (the checksum)
covers only what the sender wrote. So a leader places a batch without opening it.

Not here: what is inside (`decode.py`, `build.py`), and whether to accept it (`validate.py`).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.proto.ids import INT32_MAX, NO_SEQUENCE, LeaderEpoch, Offset

HEADER_SIZE: Final = 61
# Base offset and batch length: what must be read to know how long a batch is.
LENGTH_END: Final = 12
# Where stamping ends: base offset, length and epoch are rewritten, the rest is passed on as is.
STAMP_END: Final = 16
CRC_START: Final = 21
# The smallest legal value of the batch-length field: a header without records.
BATCH_LENGTH_MIN: Final = HEADER_SIZE - LENGTH_END
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_STAMP: Final = struct.Struct(">qii")
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_unpack: Final = _HEADER.unpack_from
_new: Final = tuple.__new__


class TimestampType(IntEnum):
    """Who gave the records their time: the producer, or the leader on arrival."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """A batch as its first 61 bytes tell it. Nothing in it has been checked."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # Hides tuple.count, which nobody asks a header for.
    count: int  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2³¹-1 to 0. Without a first one there is no last one."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def codec_bits(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME
            if self.attributes & TIMESTAMP_TYPE_BIT
            else TimestampType.CREATE_TIME
        )

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Return the header at `position`. The caller has made sure that 61 bytes are there."""
    # What `BatchHeader._make` does, without its look at the length: this is the hottest line.
    return _new(BatchHeader, _unpack(buffer, position))


def write_header(header: BatchHeader) -> bytes:
    return _HEADER.pack(*header)


def read_batch_length(buffer: bytes | bytearray | memoryview, position: int = 0) -> int:
    return int(_LENGTH.unpack_from(buffer, position + 8)[0])


def stamp(base_offset: Offset, batch_length: int, epoch: LeaderEpoch) -> bytes:
    """Return the 16 bytes that a leader writes in front of a batch it has accepted."""
    return _STAMP.pack(base_offset, batch_length, epoch)


def crc_of(batch: bytes | bytearray | memoryview) -> int:
    """Return the checksum that exactly one whole batch should carry."""
    return crc32c(memoryview(batch)[CRC_START:])


def seal(batch: bytearray) -> None:
    """Write the right checksum into exactly one whole batch."""
    _CRC.pack_into(batch, 17, crc_of(batch))
