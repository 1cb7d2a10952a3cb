"""Walks over the batches of a segment file: `walk` by headers alone, `CheckedWalk` byte by byte.

Both stop where no whole, sound batch can be. Not here: what that means (`recovery.py`, `verify`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    read_header,
)
from ottla.replication.storage.ports import File

# One page at a time: small batches share a read, and a large one costs one small read.
_READ_BYTES: Final = 4096
# What `CheckedWalk` holds in memory, whatever a damaged length field says.
_CHECK_BYTES: Final = 1 << 20


class At(NamedTuple):
    """A batch header, and where in its file it stands."""

    position: int
    header: BatchHeader

    @property
    def end_position(self) -> int:
        return self.position + self.header.size


def walk(file: File, position: int, end_position: int) -> Iterator[At]:
    """Yield the batches from `position` on that lie wholly below `end_position`.

    Ends early at bytes that cannot be a batch: the caller compares where it got to.
    """
    window = b""
    window_start = position
    while position + HEADER_SIZE <= end_position:
        inside = position - window_start
        if inside + HEADER_SIZE > len(window):
            window = file.read_at(position, min(_READ_BYTES, end_position - position))
            window_start, inside = position, 0
            if len(window) < HEADER_SIZE:
                return
        header = read_header(window, inside)
        if not _is_whole(header, end_position - position):
            return
        yield At(position, header)
        position += header.size


def batch_at(file: File, position: int, end_position: int) -> At | None:
    """Return the batch that `walk` would yield first, by its header alone."""
    if position + HEADER_SIZE > end_position:
        return None
    found = file.read_at(position, HEADER_SIZE)
    if len(found) < HEADER_SIZE:
        return None
    header = read_header(found)
    return At(position, header) if _is_whole(header, end_position - position) else None


def _is_whole(header: BatchHeader, bytes_left: int) -> bool:
    """Return whether so many bytes can hold this batch, and it can be one."""
    return (
        BATCH_LENGTH_MIN <= header.batch_length <= bytes_left - LENGTH_END
        and header.base_offset >= 0
        and header.last_offset_delta >= 0
    )


class CheckedWalk:
    """Walks like `walk`, reads every byte, and stops at the first batch that is not sound.

    Iterate it; then `position` tells how far it came and `problem` why it stopped, if it did
    before the end.
    """

    def __init__(self, file: File, position: int, end_position: int) -> None:
        self._file: Final = file
        self._end: Final = end_position
        self.position = position
        self.problem: str | None = None
        # The batch is sound but of a later format: bytes that a newer program wrote.
        self.is_from_future = False

    def __iter__(self) -> Iterator[At]:
        while self.position < self._end:
            window = self._file.read_at(self.position, min(_CHECK_BYTES, self._end - self.position))
            at_start = self.position
            for at in self._in_window(window):
                yield at
                self.position = at.end_position
            if self.problem is not None:
                return
            if len(window) < HEADER_SIZE:
                self.problem = f"the file ends at {self.position + len(window)}"
                return
            if self.position == at_start:
                # Larger than the window: taken alone, and read piece by piece.
                header = read_header(window)
                if self._is_bad(header, self._crc_of(header.size)):
                    return
                yield At(self.position, header)
                self.position += header.size

    def bytes_of(self, at: At) -> bytes:
        """Return a batch that was met, whole."""
        return self._file.read_at(at.position, at.header.size)

    def _in_window(self, window: bytes) -> Iterator[At]:
        view, start = memoryview(window), self.position
        while self.problem is None:
            inside = self.position - start
            left = self._end - self.position
            if left == 0:
                return
            if left < HEADER_SIZE:
                self.problem = f"{left} bytes are no batch"
                return
            if len(view) - inside < HEADER_SIZE:
                return
            header = read_header(view, inside)
            if not BATCH_LENGTH_MIN <= header.batch_length <= left - LENGTH_END:
                self.problem = f"a batch of length {header.batch_length} in {left} bytes"
                return
            if inside + header.size > len(view):
                return
            crc = crc32c(view[inside + CRC_START : inside + header.size])
            if not self._is_bad(header, crc):
                yield At(self.position, header)

    def _is_bad(self, header: BatchHeader, crc: int) -> bool:
        self.problem = _problem_of(header, crc)
        self.is_from_future = crc == header.crc and header.magic > MAGIC
        return self.problem is not None

    def _crc_of(self, size: int) -> int:
        crc = 0
        for at in range(self.position + CRC_START, self.position + size, _CHECK_BYTES):
            piece = min(_CHECK_BYTES, self.position + size - at)
            crc = crc32c(self._file.read_at(at, piece), crc)
        return crc


def _problem_of(header: BatchHeader, crc: int) -> str | None:
    if header.crc != crc:
        return f"checksum {crc:#010x} where {header.crc:#010x} was written"
    if header.magic != MAGIC:
        return f"magic {header.magic}; this program knows {MAGIC}"
    if header.base_offset < 0 or not 0 <= header.count <= header.last_offset_delta + 1:
        return (
            f"{header.count} records from offset {header.base_offset} "
            f"to delta {header.last_offset_delta}"
        )
    return None
