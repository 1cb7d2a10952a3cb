"""What a log would be if it were nothing but writes: the limit that the log is held against.

The same bytes in the same pieces, in files that are rolled at the same size. No checks, no
offsets, no index, no way to find anything again. With `is_ahead` it asks for room as the log does:
then it is the limit of that way, too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.proto.records.header import STAMP_END
from ottla.replication.log.ahead import RoomAhead
from ottla.replication.storage.disk import DiskFile, DiskFiles
from ottla.replication.storage.ports import Buffer


def in_two(batch: memoryview) -> tuple[memoryview, memoryview]:
    """Return a batch as the log writes it: the stamp, and the rest."""
    return batch[:STAMP_END], batch[STAMP_END:]


class RawFiles:
    """Files that are only written to, one after another. `remove` ends them."""

    def __init__(self, directory: str, *, roll_bytes: int, is_ahead: bool = False) -> None:
        self._directory = directory
        self._roll_bytes = roll_bytes
        self._is_ahead = is_ahead
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._file: DiskFile = DiskFiles().open(
            f"{self._directory}/raw-{self._number}", create=True
        )
        self._fd = self._file.fileno()
        self._size = 0
        self._ahead = RoomAhead(0)
        self._due_at = self._ahead.due_at if self._is_ahead else self._roll_bytes

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        if self._size + size > self._roll_bytes:
            self._roll()
        os.writev(self._fd, buffers)
        self._size += size
        if self._size >= self._due_at and self._is_ahead:
            self._ahead.ask(self._file, self._size, self._roll_bytes)
            self._due_at = self._ahead.due_at

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def _roll(self) -> None:
        if self._is_ahead:
            self._ahead.give_back(lambda: self._file)
        self._file.close()
        self._number += 1
        self._begin()

    def remove(self) -> None:
        self._file.close()
        for number in range(self._number + 1):
            os.unlink(f"{self._directory}/raw-{number}")
