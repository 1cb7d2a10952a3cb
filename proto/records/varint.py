"""Numbers of variable length, as the inside of a record batch writes them.

Seven bits a byte, the lowest first, and the top bit says that more follow. Zigzag folds the sign
into the lowest bit (0, -1, 1, -2, …), so that small numbers of either sign stay short.

V1  a varint has at most 5 bytes and 32 bits, a varlong at most 10 bytes and 64 bits
V2  a reader never looks beyond the buffer

A number written longer than it need be is accepted, because Kafka's own reader accepts it.
Not here: the unsigned varints of the flexible request versions, which `kio` reads.
"""

from __future__ import annotations

from typing import Final

from ottla.proto.errors import ErrorCode, RecordsError

_INT32_BITS: Final = 32
_INT64_BITS: Final = 64


def read_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a number of 32 bits and the position after it, or raise `RecordsError`."""
    try:
        folded = buffer[position]
    except IndexError:
        raise _cut_off(position) from None
    if folded < 0x80:
        return (folded >> 1) ^ -(folded & 1), position + 1
    return _read_long(buffer, position, _INT32_BITS)


def read_varlong(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a number of 64 bits and the position after it, or raise `RecordsError`."""
    try:
        folded = buffer[position]
    except IndexError:
        raise _cut_off(position) from None
    if folded < 0x80:
        return (folded >> 1) ^ -(folded & 1), position + 1
    return _read_long(buffer, position, _INT64_BITS)


def _read_long(buffer: bytes | memoryview, start: int, bits: int) -> tuple[int, int]:
    folded = 0
    position = start
    for shift in range(0, bits, 7):
        try:
            byte = buffer[position]
        except IndexError:
            raise _cut_off(start) from None
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise RecordsError(
            ErrorCode.INVALID_RECORD,
            f"A number of {bits} bits at byte {start} goes on after {position - start} bytes.",
        )
    if folded >> bits:
        raise RecordsError(
            ErrorCode.INVALID_RECORD,
            f"The number at byte {start} needs {folded.bit_length()} bits, and {bits} are allowed.",
        )
    return (folded >> 1) ^ -(folded & 1), position


def _cut_off(position: int) -> RecordsError:
    return RecordsError(
        ErrorCode.INVALID_RECORD, f"The records end inside the number at byte {position}."
    )


def write_varint(output: bytearray, value: int) -> None:
    """Append a number of 32 or 64 bits; the caller has made sure that it fits (V1)."""
    # The second shift leaves only the sign: 0 or -1.
    folded = (value << 1) ^ (value >> _INT64_BITS)
    while folded > 0x7F:
        output.append(folded & 0x7F | 0x80)
        folded >>= 7
    output.append(folded)


def size_of_varint(value: int) -> int:
    """Return how many bytes `write_varint` appends."""
    folded = (value << 1) ^ (value >> _INT64_BITS)
    return max(1, (folded.bit_length() + 6) // 7)
