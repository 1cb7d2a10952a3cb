"""Records of one shape, read a column at a time instead of one by one.

Most batches hold long rows of records that are built alike: as many bytes for each number, for the
key and for the value. Laid under one another they are a table, and one slice with a step takes out
a whole column of it. Whether a column is what it must be is one comparison; the loops are those of
the interpreter, not ours.

    length  0  time  delta  key length  key  value length  value  0
    length  0  time  delta  key length  key  value length  value  0

K1  a run is believed only as far as every byte of it is either checked or given out: lengths and
    the number of headers equal those of its first record, which was read field by field; deltas
    are one more from record to record; times end where they must
K2  what does not fit is not refused here: it is left to the loop in `decoding.py`, which knows why
K3  a look that is in vain costs little: the first lengths are compared before anything else

Not here: records, batches, checksums (`decoding.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain, repeat
from struct import Struct
from typing import Final, NamedTuple

from ottla.proto.records.varint import read_varint, read_varlong, write_varint

# Fewer are read sooner one by one.
RUN_MIN: Final = 16
_LAST_BYTE: Final = re.compile(rb"[\x00-\x7f]*", re.DOTALL)
_EARLIER_BYTE: Final = re.compile(rb"[\x80-\xff]*", re.DOTALL)
_ZIGZAG: Final = tuple((folded >> 1) ^ -(folded & 1) for folded in range(1 << 14))
_TIME_WIDTH_MAX: Final = 2


class Run(NamedTuple):
    """Records of one shape, as columns of the same height."""

    height: int
    # Where the last of them ends.
    end: int
    time_deltas: Iterable[int]
    keys: Iterable[bytes | None]
    values: Iterable[bytes | None]


class _Shape(NamedTuple):
    """How a record is laid out: places and sizes in bytes, counted from its beginning."""

    size: int
    time_at: int
    delta_at: int
    # The place after the delta: that of the length of the key.
    delta_end: int
    key_at: int
    # -1: there is none.
    key_size: int
    value_at: int
    value_size: int
    # Of the number of headers, which is 0.
    headers_at: int


class _Deltas(NamedTuple):
    """The offset deltas that are written with so many bytes, as columns of those bytes."""

    first: int
    end: int
    columns: tuple[bytes, ...]


def _deltas(first: int, end: int) -> _Deltas:
    written = []
    for delta in range(first, end):
        out = bytearray()
        write_varint(out, delta)
        written.append(bytes(out))
    return _Deltas(first, end, tuple(bytes(column) for column in zip(*written, strict=True)))


# By the number of bytes. Longer batches than that are rare, and read one by one from there on.
_DELTAS: Final = {1: _deltas(0, 1 << 6), 2: _deltas(1 << 6, 1 << 13), 3: _deltas(1 << 13, 1 << 15)}


def read_run(data: bytes, at: int, delta: int, left: int) -> Run | None:
    """Return the run that begins at this byte with this offset delta, of at most `left` records.

    None if there is none: fewer than `RUN_MIN` records of one shape, headers, gaps, long times.
    Raises `RecordsError` if the first record ends inside of a number.
    """
    body, body_at = read_varint(data, at)
    size = body_at - at + body
    # K3. A size that is wrong gives no run, and the loop will tell.
    if body <= 0 or data[at : at + RUN_MIN * size : size] != data[at : at + 1] * RUN_MIN:
        return None
    shape = _shape_of(data, at, body_at, size)
    deltas = None if shape is None else _DELTAS.get(shape.delta_end - shape.delta_at)
    if shape is None or deltas is None or not deltas.first <= delta < deltas.end:
        return None
    count = min(left, (len(data) - at) // size, deltas.end - delta)
    count = _alike(data, at, shape, count)
    if count < RUN_MIN or not _is_consecutive(data, at, shape, deltas, delta, count):
        return None
    return _run(data, at, shape, count)


def _shape_of(data: bytes, at: int, body_at: int, size: int) -> _Shape | None:
    """Return how the record at this byte is laid out, or None if it is unusual or wrong."""
    # One byte of attributes that mean nothing yet.
    time_at = body_at + 1
    _, delta_at = read_varlong(data, time_at)
    _, delta_end = read_varint(data, delta_at)
    key_size, key_at = read_varint(data, delta_end)
    value_size, value_at = read_varint(data, key_at + max(key_size, 0))
    headers_at = value_at + max(value_size, 0)
    if key_size < -1 or value_size < -1 or headers_at + 1 != at + size or data[headers_at]:
        return None
    if delta_at - time_at > _TIME_WIDTH_MAX:
        return None
    return _Shape(
        size,
        time_at - at,
        delta_at - at,
        delta_end - at,
        key_at - at,
        key_size,
        value_at - at,
        value_size,
        headers_at - at,
    )


def _alike(data: bytes, at: int, shape: _Shape, count: int) -> int:
    """Return how many of so many records have this shape; deltas are not looked at (K1)."""
    size = shape.size
    key_end = shape.key_at + max(shape.key_size, 0)
    fixed = (
        *range(shape.time_at - 1),
        *range(shape.delta_end, shape.key_at),
        *range(key_end, shape.value_at),
        shape.headers_at,
    )
    for place in fixed:
        column = data[at + place : at + count * size : size]
        if column.count(column[0]) != count:
            count -= len(column.lstrip(column[:1]))
    # All bytes of a number but its last one say that more follow.
    for place in range(shape.time_at, shape.delta_at):
        wanted = _LAST_BYTE if place == shape.delta_at - 1 else _EARLIER_BYTE
        fits = wanted.match(data[at + place : at + count * size : size])
        count = 0 if fits is None else fits.end()
    return count


def _is_consecutive(
    data: bytes, at: int, shape: _Shape, deltas: _Deltas, delta: int, count: int
) -> bool:
    """Return whether the deltas go on from this one without a gap."""
    first, end = delta - deltas.first, at + count * shape.size
    return all(
        data[at + place : end : shape.size] == column[first : first + count]
        for place, column in enumerate(deltas.columns, shape.delta_at)
    )


def _run(data: bytes, at: int, shape: _Shape, count: int) -> Run:
    end = at + count * shape.size
    lowest = data[at + shape.time_at : end : shape.size]
    if shape.delta_at - shape.time_at == 1:
        times: Iterable[int] = map(_ZIGZAG.__getitem__, lowest)
    else:
        highest = data[at + shape.time_at + 1 : end : shape.size]
        times = [_ZIGZAG[low & 0x7F | high << 7] for low, high in zip(lowest, highest, strict=True)]
    rows = memoryview(data)[at:end]
    return Run(
        count,
        end,
        times,
        _cells(rows, shape.size, shape.key_at, shape.key_size),
        _cells(rows, shape.size, shape.value_at, shape.value_size),
    )


def _cells(rows: memoryview, size: int, at: int, width: int) -> Iterable[bytes | None]:
    """Return the same piece of every row; without an end if there is none in any."""
    if width < 0:
        return repeat(None)
    left = size - at - width
    return chain.from_iterable(Struct(f"{at}x{width}s{left}x").iter_unpack(rows))
