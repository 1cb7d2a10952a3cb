"""Values as bytes, by shapes that are put together: a record of a text and a list of numbers, say.

A shape writes and reads one kind of value, so a table of shapes is at once the description of a
format and its code. Whole numbers are zigzag varints: small ones, which nearly all are, take one
byte. Maps are written in the order of their keys, so equal values have equal bytes.

Not here: what is written (`proposal.py`, `delta.py`, `snapshot.py`), and partitions, of which there
are too many for shapes (`encoding.py`).

S1  what a shape writes it reads back equal, and stops where that ends
S2  anything else raises `CorruptionError`, after work that is bounded by the bytes there are
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, unpack_from
from typing import Any, Final, Generic, TypeVar

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID, uuid_of

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_ID_BYTES: Final = 16
_COUNT: Final = Struct(">I")
# Ten groups of seven bits: seeds have 64 bits, and a sign.
_VARINT_BYTES_MAX: Final = 10
# A run of numbers takes few bytes however long it is; this is more than any topic has.
_INDEXES_MAX: Final = 100_000


class Reader:
    """Takes bytes apart from front to back, and says what they were when it cannot."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def garbage(self, why: str) -> CorruptionError:
        return CorruptionError(f"{self._what} cannot be read: {why}.")

    @property
    def what(self) -> str:
        return self._what

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def rewind(self) -> None:
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self.garbage("it ends too early")
        self._at += size
        return taken

    def unpack(self, shape: Struct) -> Sequence[int]:
        return shape.unpack(self.take(shape.size))

    def count(self, size_of_each: int) -> int:
        """Return a number of things to come, for which there is room in what is left."""
        (count,) = self.unpack(_COUNT)
        return self.require_room(count, size_of_each)

    def require_room(self, count: int, size_of_each: int) -> int:
        if count < 0 or count * size_of_each > self.left:
            raise self.garbage("it ends too early")
        return count

    def brokers(self, count: int) -> tuple[BrokerId, ...]:
        return tuple(map(BrokerId, unpack_from(f">{count}i", self.take(4 * count))))

    def number(self) -> int:
        """Return a zigzag varint."""
        found = 0
        for turn in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << (7 * turn)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)
        raise self.garbage("a number in it is too long")

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise self.garbage("a text in it is not UTF-8") from None

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise self.garbage("there is more than belongs to it")


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """How one kind of value is written, and read back."""

    write: Callable[[bytearray, T], None]
    read: Callable[[Reader], T]


# ── Single values ─────────────────────────────────────────────────────────────────────────────


def _write_number(out: bytearray, value: int) -> None:
    left = value << 1 if value >= 0 else ((-value) << 1) - 1
    if left >> (7 * _VARINT_BYTES_MAX):
        raise ValueError(f"{value} is too large a number")
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)


def _write_bytes(out: bytearray, value: bytes) -> None:
    _write_number(out, len(value))
    out += value


def _read_size(reader: Reader) -> int:
    return reader.require_room(reader.number(), 1)


def _read_flag(reader: Reader) -> bool:
    found = reader.number()
    if found not in (0, 1):
        raise reader.garbage("a yes or no in it is neither")
    return found == 1


NUMBER: Final[Shape[int]] = Shape(_write_number, Reader.number)
FLAG: Final[Shape[bool]] = Shape(lambda out, value: _write_number(out, int(value)), _read_flag)
BYTES: Final[Shape[bytes]] = Shape(_write_bytes, lambda reader: reader.take(_read_size(reader)))
TEXT: Final[Shape[str]] = Shape(
    lambda out, value: _write_bytes(out, value.encode()),
    lambda reader: reader.text(_read_size(reader)),
)
ID: Final[Shape[UUID]] = Shape(
    lambda out, value: out.extend(value.bytes),
    lambda reader: uuid_of(reader.take(_ID_BYTES)),
)


# ── Put together ──────────────────────────────────────────────────────────────────────────────


def optional(shape: Shape[T]) -> Shape[T | None]:
    def write(out: bytearray, value: T | None) -> None:
        FLAG.write(out, value is not None)
        if value is not None:
            shape.write(out, value)

    return Shape(write, lambda reader: shape.read(reader) if FLAG.read(reader) else None)


def listed(shape: Shape[T]) -> Shape[tuple[T, ...]]:
    def write(out: bytearray, value: Iterable[T]) -> None:
        items = tuple(value)
        _write_number(out, len(items))
        for item in items:
            shape.write(out, item)

    def read(reader: Reader) -> tuple[T, ...]:
        return tuple(shape.read(reader) for _ in range(_read_size(reader)))

    return Shape(write, read)


def paired(first: Shape[K], second: Shape[V]) -> Shape[tuple[K, V]]:
    def write(out: bytearray, value: tuple[K, V]) -> None:
        first.write(out, value[0])
        second.write(out, value[1])

    return Shape(write, lambda reader: (first.read(reader), second.read(reader)))


def mapped(key: Shape[K], value: Shape[V]) -> Shape[Mapping[K, V]]:
    pairs = listed(paired(key, value))

    def write(out: bytearray, values: Mapping[K, V]) -> None:
        pairs.write(out, tuple(sorted(values.items(), key=_key_of)))

    def read(reader: Reader) -> Mapping[K, V]:
        found = pairs.read(reader)
        values = dict(found)
        if len(values) < len(found):
            raise reader.garbage("a key stands in it twice")
        return values

    return Shape(write, read)


def _key_of(pair: tuple[Any, object]) -> Any:
    return pair[0]


def chosen(*words: T) -> Shape[T]:
    """Return the shape of one of these, which is written as its place among them."""

    def read(reader: Reader) -> T:
        place = reader.number()
        if not 0 <= place < len(words):
            raise reader.garbage("it chooses what there is not")
        return words[place]

    return Shape(lambda out, value: _write_number(out, words.index(value)), read)


def record(kind: type[T], /, **fields: Shape[Any]) -> Shape[T]:
    """Return the shape of a dataclass: its fields one after another, as they are named here."""

    def write(out: bytearray, value: T) -> None:
        for name, shape in fields.items():
            shape.write(out, getattr(value, name))

    def read(reader: Reader) -> T:
        return kind(**{name: shape.read(reader) for name, shape in fields.items()})

    return Shape(write, read)


# ── Numbers of partitions ─────────────────────────────────────────────────────────────────────


def _write_indexes(out: bytearray, value: Iterable[int]) -> None:
    runs: list[list[int]] = []
    for index in sorted(set(value)):
        if runs and runs[-1][0] + runs[-1][1] == index:
            runs[-1][1] += 1
        else:
            runs.append([index, 1])
    _write_number(out, len(runs))
    end = 0
    for start, length in runs:
        _write_number(out, start - end)
        _write_number(out, length)
        end = start + length


def _read_indexes(reader: Reader) -> tuple[int, ...]:
    found: list[int] = []
    end = 0
    for _ in range(_read_size(reader)):
        start = end + reader.number()
        length = reader.number()
        if start < end or not 0 < length <= _INDEXES_MAX - len(found):
            raise reader.garbage("its runs of numbers make no sense")
        end = start + length
        found += range(start, end)
    return tuple(found)


# Ascending, as runs: all the partitions of a topic take three bytes.
INDEXES: Final[Shape[tuple[int, ...]]] = Shape(_write_indexes, _read_indexes)
