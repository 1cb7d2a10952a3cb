"""The five ways in which the records of a batch may be packed, with output that has a bound.

A suitcase that claims to hold a house is opened only as far as the room allows: `decompress` never
makes more than `max_bytes`, whatever the packed bytes say, and takes time in proportion to that.

C1  the output never exceeds `max_bytes`, and about twice that is allocated at most on the way
C2  what does not unpack is a `RecordsError`, never another exception
C3  `compress` is deterministic: the same bytes, codec and level give the same bytes

C2 answers INVALID_RECORD and not CORRUPT_MESSAGE: the checksum over the packed bytes was right, so
the producer sent just that, and sending it again (which CORRUPT_MESSAGE asks for) cannot help.

What is written is what Kafka's Java readers take: snappy in the blocks of `snappy-java`, lz4 in
frames of independent blocks. Not here: which codec a topic wants (`compression.type`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal

import cramjam

from ottla.proto.errors import ErrorCode, RecordsError, ensure

Buffer = bytes | bytearray | memoryview

# Most batches unpack to less than this, so that the first try is the only one.
_FIRST_TRY_BYTES: Final = 64 * 1024
_FIRST_TRY_RATIO: Final = 8
_GROWTH: Final = 8
# The stream header of `snappy-java`: magic, version 1, readable since version 1.
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
# One element of snappy gives at most 64 bytes and takes at least two.
_SNAPPY_RATIO_MAX: Final = 64

# Magic, version 01 with independent blocks, blocks of 64 KiB at most, checksum of these two bytes.
# Written by hand because cramjam links the blocks of a frame, and Java refuses linked blocks.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_STORED_BIT: Final = 0x8000_0000
_LZ4_END: Final = b"\x00\x00\x00\x00"

_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3


class Codec(IntEnum):
    """A packing, under the number that the attributes of a batch carry."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Kafka's words for the option `compression.type`.
CODEC_NAMES: Final = {
    Codec.NONE: "uncompressed",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}


# How to unpack, and how many bytes the densest stream of a format can give for one: a room larger
# than that would stay empty.
_UNPACKERS: Final[dict[Codec, tuple[Callable[[Buffer, bytearray], int], int]]] = {
    Codec.GZIP: (cramjam.gzip.decompress_into, 1032),
    Codec.LZ4: (cramjam.lz4.decompress_into, 255),
    Codec.ZSTD: (cramjam.zstd.decompress_into, 128 * 1024 // 4),
}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return `data` packed. Without a level, each codec's usual one; snappy has no levels."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            # Kafka writes -1 for "the usual level", and cramjam does not know that word.
            usual = level is None or level < 0
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if usual else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, *, max_bytes: int) -> bytes:
    """Return what `data` unpacks to, or raise `RecordsError` if that is not possible in bounds."""
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(codec, len(data), max_bytes)
            return bytes(data)
        case Codec.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Codec.GZIP | Codec.LZ4 | Codec.ZSTD:
            return _decompress_growing(codec, data, max_bytes)


def _decompress_growing(codec: Codec, data: Buffer, max_bytes: int) -> bytes:
    """Unpack into a room that grows eightfold until it fits or may not grow any more.

    The sizes claimed inside the packed bytes are never believed. All tries together write at most
    8/7 of the last one. A broken stream is tried again too: it cannot be told from a full room
    except by the text of an error, and the tries are bounded.
    """
    decompress_into, ratio_max = _UNPACKERS[codec]
    max_bytes = min(max_bytes, _FIRST_TRY_BYTES + ratio_max * len(data))
    room_bytes = min(max_bytes, max(_FIRST_TRY_BYTES, _FIRST_TRY_RATIO * len(data)))
    while True:
        room = bytearray(room_bytes)
        try:
            size = decompress_into(data, room)
        except cramjam.DecompressionError as error:
            if room_bytes == max_bytes:
                raise _unreadable(codec, len(data), max_bytes, error) from None
            room_bytes = min(max_bytes, room_bytes * _GROWTH)
        else:
            return bytes(memoryview(room)[:size])


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if not _is_xerial(view, 0):
        return _decompress_snappy_block(view, 0, max_bytes)
    parts: list[bytes] = []
    size = 0
    position = len(_XERIAL_HEADER)
    while position < len(view):
        # `snappy-java` allows streams to be joined, so a header may stand where a block could.
        if _is_xerial(view, position):
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        position = start + int.from_bytes(view[position:start], "big")
        if position > len(view):
            raise RecordsError(
                ErrorCode.INVALID_RECORD,
                f"A snappy block at byte {start} ends at byte {position} of {len(view)}.",
            )
        parts.append(_decompress_snappy_block(view[start:position], size, max_bytes))
        size += len(parts[-1])
    return b"".join(parts)


def _is_xerial(view: memoryview, position: int) -> bool:
    return bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _decompress_snappy_block(block: memoryview, size_before: int, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size_before + size > max_bytes:
            raise _too_large(Codec.SNAPPY, size_before + size, max_bytes)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise RecordsError(
                ErrorCode.INVALID_RECORD,
                f"A snappy block of {len(block)} bytes cannot hold the {size} bytes it claims.",
            )
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _unreadable(Codec.SNAPPY, len(block), max_bytes, error) from None


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    mode: Literal["default", "high_compression"] = (
        "default" if level is None else "high_compression"
    )
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(
            cramjam.lz4.compress_block(plain, mode=mode, compression=level, store_size=False)
        )
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED_BIT).to_bytes(4, "little"), bytes(plain))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _too_large(codec: Codec, size: int, max_bytes: int) -> RecordsError:
    return RecordsError(
        ErrorCode.INVALID_RECORD,
        f"The records ({codec.name.lower()}) unpack to at least {size} bytes, above {max_bytes}.",
    )


def _unreadable(codec: Codec, size: int, max_bytes: int, error: Exception) -> RecordsError:
    return RecordsError(
        ErrorCode.INVALID_RECORD,
        f"{size} bytes of {codec.name.lower()} do not unpack into {max_bytes} bytes at most: "
        f"{error}.",
    )


def codec_of(bits: int) -> Codec:
    """Return the codec that a batch's attributes name; 5 to 7 name none (`RecordsError`)."""
    ensure(bits >= 0, "codec bits are a masked number", bits=bits)
    if bits > Codec.ZSTD:
        raise RecordsError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"No codec has the number {bits}; 0 to 4 exist."
        )
    return Codec(bits)
