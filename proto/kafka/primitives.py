"""Numbers, texts and counts at a place in a frame, read without trust.

Every reader takes the bytes, a place in them and the name of what it reads (for the error's
sentence only), and returns the value and the place after it. The bytes come from strangers:

B1  no length or count is believed before it was compared with the bytes that are left
B2  a message has at most `ELEMENTS_MAX` array elements in all (`Budget`), so that nested arrays
    cannot multiply a small frame into a large heap
B3  a section of tagged fields has at most `TAGS_MAX` of them, in rising order; unknown ones are
    stepped over, never stored
B4  whatever the bytes, a reader returns or raises `RemoteProtocolError`

Where Kafka 4.3.1 is more lenient we are not, because no client sends these: a length below -1
(Kafka takes it for null), numbers of more than 32 bits (it drops the rest), a text that is not
UTF-8 (it puts replacement characters in), tags twice or out of order, a tagged field of wrong size.

Not here: which fields a message has (`schema.py`).
"""

from __future__ import annotations

import struct
from typing import Final, NoReturn

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.uuids import UUID, uuid_of

# Requests. A node refuses far smaller requests for its own reasons; this bounds memory.
ELEMENTS_MAX: Final = 100_000
# Answers of a broker that we chose to ask: a large cluster's metadata is long.
RESPONSE_ELEMENTS_MAX: Final = 1_000_000
TAGS_MAX: Final = 64
# Kafka's own limit, for compact strings too.
STRING_MAX: Final = 0x7FFF
UUID_SIZE: Final = 16
_UINT32_MAX: Final = 0xFFFF_FFFF

_int16: Final = struct.Struct(">h").unpack_from
_int32: Final = struct.Struct(">i").unpack_from

# What a reader reads from. The node's frames are memoryviews.
Buffer = memoryview | bytes


class Budget:
    """How many array elements the message being read may still have."""

    __slots__ = ("left",)

    def __init__(self, left: int = ELEMENTS_MAX) -> None:
        self.left = left

    def take(self, count: int, what: str) -> None:
        self.left -= count
        if self.left < 0:
            raise RemoteProtocolError(f"{what}: the message has too many array elements in all")


def ends_early(what: str) -> NoReturn:
    raise RemoteProtocolError(f"{what}: the frame ends before it does")


def is_null(what: str) -> NoReturn:
    raise RemoteProtocolError(f"{what}: null, where the protocol allows no null")


def read_uvarint(data: Buffer, at: int, what: str) -> tuple[int, int]:
    """Return a number of at most 32 bits. Needless zero groups are fine, as they are for Kafka.

    Readers on the hot path do its first lines themselves: nearly all numbers take one byte.
    """
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value = byte & 0x7F
        for place in range(1, 5):
            byte = data[at + place]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                if value > _UINT32_MAX:
                    break
                return value, at + place + 1
    except IndexError:
        ends_early(what)
    raise RemoteProtocolError(f"{what}: a variable-length number of more than 32 bits")


def read_size(data: Buffer, at: int, what: str) -> tuple[int, int]:
    """Return the size of bytes that are all there, or -1 for null: four bytes in front."""
    try:
        (size,) = _int32(data, at)
    except struct.error:
        ends_early(what)
    at += 4
    if size < -1 or size > len(data) - at:
        raise RemoteProtocolError(
            f"{what}: a size of {size}, where {len(data) - at} bytes are left"
        )
    return size, at


def read_compact_size(data: Buffer, at: int, what: str) -> tuple[int, int]:
    """Return the size of bytes that are all there, or -1 for null: size + 1 in front."""
    if at < len(data) and (size := data[at]) < 0x80:
        at += 1
    else:
        size, at = read_uvarint(data, at, what)
    if size > len(data) - at + 1:
        raise RemoteProtocolError(
            f"{what}: a size of {size - 1}, where {len(data) - at} bytes are left"
        )
    return size - 1, at


def _text(data: Buffer, at: int, size: int, what: str) -> tuple[str, int]:
    end = at + size
    if size > STRING_MAX or end > len(data):
        raise RemoteProtocolError(
            f"{what}: a text of {size} bytes, where {len(data) - at} are left"
            f" and {STRING_MAX} are allowed"
        )
    try:
        return str(data[at:end], "utf-8"), end
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"{what}: a text that is not UTF-8") from None


def read_nullable_string(data: Buffer, at: int, what: str) -> tuple[str | None, int]:
    try:
        (size,) = _int16(data, at)
    except struct.error:
        ends_early(what)
    if size >= 0:
        return _text(data, at + 2, size, what)
    if size < -1:
        raise RemoteProtocolError(f"{what}: a text of {size} bytes")
    return None, at + 2


def read_string(data: Buffer, at: int, what: str) -> tuple[str, int]:
    value, at = read_nullable_string(data, at, what)
    if value is None:
        is_null(what)
    return value, at


def read_nullable_compact_string(data: Buffer, at: int, what: str) -> tuple[str | None, int]:
    size, at = read_uvarint(data, at, what)
    return (None, at) if size == 0 else _text(data, at, size - 1, what)


def read_compact_string(data: Buffer, at: int, what: str) -> tuple[str, int]:
    if at < len(data) and (size := data[at]) < 0x80:
        at += 1
    else:
        size, at = read_uvarint(data, at, what)
    if size == 0:
        is_null(what)
    return _text(data, at, size - 1, what)


def read_uuid(data: Buffer, at: int, what: str) -> tuple[UUID, int]:
    end = at + UUID_SIZE
    if end > len(data):
        ends_early(what)
    return uuid_of(bytes(data[at:end])), end


def read_count(data: Buffer, at: int, least: int, budget: Budget, what: str) -> tuple[int, int]:
    """Return how many elements follow, or -1 for null. Each takes at least `least` bytes."""
    try:
        (count,) = _int32(data, at)
    except struct.error:
        ends_early(what)
    at += 4
    if count < -1 or count * least > len(data) - at:
        _too_many(count, data, at, what)
    if count > 0:
        budget.take(count, what)
    return count, at


def read_compact_count(
    data: Buffer, at: int, least: int, budget: Budget, what: str
) -> tuple[int, int]:
    """Return how many elements follow, or -1 for null. Each takes at least `least` bytes."""
    if at < len(data) and (count := data[at]) < 0x80:
        at += 1
    else:
        count, at = read_uvarint(data, at, what)
    count -= 1
    if count * least > len(data) - at:
        _too_many(count, data, at, what)
    if count > 0:
        budget.take(count, what)
    return count, at


def _too_many(count: int, data: Buffer, at: int, what: str) -> NoReturn:
    raise RemoteProtocolError(f"{what}: {count} elements, where {len(data) - at} bytes are left")


def read_tags(data: Buffer, at: int, what: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return (tag, start, end) of each tagged field, and the place after the last."""
    count, at = read_uvarint(data, at, what)
    if count > TAGS_MAX:
        raise RemoteProtocolError(f"{what}: {count} tagged fields; {TAGS_MAX} are allowed")
    places = []
    previous = -1
    for _ in range(count):
        tag, at = read_uvarint(data, at, what)
        if tag <= previous:
            raise RemoteProtocolError(f"{what}: tagged field {tag} comes after {previous}")
        size, at = read_uvarint(data, at, what)
        if size > len(data) - at:
            raise RemoteProtocolError(
                f"{what}: tagged field {tag} of {size} bytes, where {len(data) - at} are left"
            )
        places.append((tag, at, at + size))
        previous = tag
        at += size
    return places, at


def skip_tags(data: Buffer, at: int, what: str) -> int:
    return read_tags(data, at, what)[1]


def uvarint(value: int) -> bytes:
    """Return a number from 0 up in its shortest form."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes([value]) for value in range(0x80))
