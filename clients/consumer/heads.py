"""Records that differ in size, read with one step for the numbers before their keys.

Where values differ in size there are no columns to cut out (`columns.py`). But the numbers at the
beginning of a record still have the same widths as those of the record before it, nearly always:

    length  0  time  delta  key length | key  value length  value  0

So one call of `struct` reads them all, and tables that are made once say what they mean.

K1, K2 of `columns.py` hold here too: every byte is checked or given out, and the first record that
does not fit ends the run; `decoding.py` knows what to do with it.

Not here: records with headers, keys of 64 bytes and more, tombstones. They are read one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from ottla.clients.consumer.columns import Run
from ottla.proto.records.varint import read_varint, read_varlong

_NO_KEY: Final = 1
# So that whatever is added to it, no record ends there.
_NOWHERE: Final = -(1 << 40)


def _folded(low: int, high: int) -> int:
    return low & 0x7F | high << 7


def _of_two_bytes(meaning: Callable[[int], int | None]) -> tuple[int | None, ...]:
    """Return what each pair of bytes means as a number of two bytes; None if it is none."""
    return tuple(
        meaning(_folded(pair & 0xFF, pair >> 8)) if pair & 0x8080 == 0x80 else None
        for pair in range(1 << 16)
    )


# What to add to the place of a record with a length of one byte or two, to get to its end.
_END_1: Final = tuple(_NOWHERE if byte & 1 else 1 + (byte >> 1) for byte in range(1 << 7))
_END_2: Final = tuple(
    _NOWHERE if end is None else end
    for end in _of_two_bytes(lambda folded: None if folded & 1 else 2 + (folded >> 1))
)
# Time deltas, by the number of their bytes; None if it is another number of bytes.
_TIMES: Final = {
    1: tuple((byte >> 1) ^ -(byte & 1) if byte < 0x80 else None for byte in range(1 << 8)),
    2: _of_two_bytes(lambda folded: (folded >> 1) ^ -(folded & 1)),
}
# The first offset delta of so many bytes, and all of them as they are written.
_DELTAS: Final = {
    1: (0, tuple(range(0, 1 << 7, 2))),
    2: (1 << 6, tuple(2 * one & 0x7F | 0x80 | (2 * one >> 7) << 8 for one in range(64, 1 << 13))),
}
_LETTER: Final = {1: "B", 2: "H"}


class _Head(NamedTuple):
    """How the numbers before a key are read, for records with a length of one byte and of two."""

    read_1: Callable[..., tuple[Any, ...]]
    key_1: int
    read_2: Callable[..., tuple[Any, ...]]
    key_2: int


def _head(time_width: int, delta_width: int) -> _Head:
    rest = f"x{_LETTER[time_width]}{_LETTER[delta_width]}B"
    one, two = Struct(f"<B{rest}"), Struct(f"<H{rest}")
    return _Head(one.unpack_from, one.size, two.unpack_from, two.size)


_HEADS: Final = {(time, delta): _head(time, delta) for time in _TIMES for delta in _DELTAS}


def read_heads(data: bytes, at: int, delta: int, left: int) -> Run | None:
    """Return the records from this byte and this offset delta on, at most `left`, that are plain.

    None if the first one is not. Raises `RecordsError` if it ends inside of a number.
    """
    _, body_at = read_varint(data, at)
    # One byte of attributes that mean nothing yet.
    _, delta_at = read_varlong(data, body_at + 1)
    _, delta_end = read_varint(data, delta_at)
    widths = delta_at - body_at - 1, delta_end - delta_at
    head = _HEADS.get(widths)
    if head is None:
        return None
    first, deltas = _DELTAS[widths[1]]
    if not 0 <= delta - first < len(deltas):
        return None
    wanted = deltas[delta - first : delta - first + left]
    return _read(data, at, head, _TIMES[widths[0]], wanted)


def _read(
    data: bytes, at: int, head: _Head, time_of: tuple[int | None, ...], wanted: tuple[int, ...]
) -> Run | None:
    """Return the records whose deltas are these, up to the first one that does not fit."""
    read_1, key_1, read_2, key_2 = head
    end_1, end_2 = _END_1, _END_2
    times, keys, values = list[int](), list[bytes | None](), list[bytes | None]()
    add_time, add_key, add_value = times.append, keys.append, values.append
    key: bytes | None
    try:
        for one in wanted:
            if data[at] < 0x80:
                size, time, delta, byte = read_1(data, at)
                end, place = at + end_1[size], at + key_1
            else:
                size, time, delta, byte = read_2(data, at)
                end, place = at + end_2[size], at + key_2
            if byte == _NO_KEY:
                key = None
            elif not byte & 0x81:  # one byte, and not less than 0
                key = data[place : (place := place + (byte >> 1))]
            else:
                break
            if (byte := data[place]) >= 0x80:
                if (high := data[place + 1]) >= 0x80:
                    break
                value = data[place + 2 : (place := place + 2 + ((byte & 0x7F | high << 7) >> 1))]
            else:
                value = data[place + 1 : (place := place + 1 + (byte >> 1))]
            if (
                place + 1 != end
                or delta != one
                or byte & 1
                or data[place]
                or (time := time_of[time]) is None
            ):
                break
            add_time(time)
            add_key(key)
            add_value(value)
            at = end
    except (IndexError, struct.error):
        # The bytes end too early (K2).
        pass
    return Run(len(values), at, times, keys, values) if values else None
