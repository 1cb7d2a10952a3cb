"""Reads keys and values of the topics that coordinators keep, in Kafka's own bytes.

Not here: what is in them (`records.py`, `node/transactions/records.py`).
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.proto.errors import ErrorCode, RecordsError

_COUNT_MAX: Final = 1_000_000
_UVARINT_BYTES_MAX: Final = 5


class RecordReader:
    """Reads one key or value from its beginning to its end."""

    __slots__ = ("_at", "_data", "is_flexible")

    def __init__(self, data: bytes) -> None:
        self._data: Final = data
        self._at = 0
        # Lengths are short, and fields that nobody knows may follow.
        self.is_flexible = False

    def number(self, shape: str) -> int:
        try:
            (value,) = struct.unpack_from(shape, self._data, self._at)
        except struct.error:
            raise _cut_off() from None
        self._at += struct.calcsize(shape)
        return int(value)

    def _uvarint(self) -> int:
        value = 0
        for place in range(_UVARINT_BYTES_MAX):
            byte = self.number(">B")
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise unreadable("a length has more than 32 bits")

    def _size(self, shape: str) -> int:
        return self._uvarint() - 1 if self.is_flexible else self.number(shape)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _cut_off()
        data, self._at = self._data[self._at : end], end
        return data

    def maybe_text(self) -> str | None:
        size = self._size(">h")
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise unreadable("a text is not UTF-8") from None

    def text(self) -> str:
        return self.maybe_text() or ""

    def data(self) -> bytes:
        size = self._size(">i")
        return b"" if size == -1 else self._take(size)

    def maybe_count(self) -> int:
        """Return how many follow; none, if there is no list at all."""
        at = self._at
        if self._size(">i") == -1:
            return 0
        self._at = at
        return self.count()

    def count(self) -> int:
        count = self._size(">i")
        if not 0 <= count <= _COUNT_MAX:
            raise unreadable(f"it counts {count} of something")
        return count

    def tags(self) -> dict[int, bytes]:
        """Return the fields that only newer writers know, by their numbers."""
        found = dict[int, bytes]()
        if self.is_flexible:
            for _ in range(self._uvarint()):
                tag = self._uvarint()
                found[tag] = self._take(self._uvarint())
        return found


def unreadable(why: str) -> RecordsError:
    sentence = f"A record of a coordinator cannot be read: {why}."
    return RecordsError(ErrorCode.INVALID_RECORD, sentence)


def _cut_off() -> RecordsError:
    return unreadable("it ends before it should")
