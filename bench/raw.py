"""What a log would be if it were nothing but writes: the limit that the log is held against.

The same bytes in the same pieces, in files that are rolled at the same size. No checks, no
offsets, no index, no way to find anything again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ottla.proto.records.header import STAMP_END
from ottla.replication.storage.ports import Buffer


def in_two(batch: memoryview) -> tuple[memoryview, memoryview]:
    """Return a batch as the log writes it: the stamp, and the rest."""
    return batch[:STAMP_END], batch[STAMP_END:]


class RawFiles:
    """Files that are only written to, one after another. `remove` ends them."""

    def __init__(self, directory: str, *, roll_bytes: int) -> None:
        self._directory = directory
        self._roll_bytes = roll_bytes
        self._number = 0
        self._size = 0
        self._fd = self._open()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        return os.open(f"{self._directory}/raw-{self._number}", flags, 0o640)

    def write(self, buffers: Sequence[Buffer], size: int) -> None:
        if self._size + size > self._roll_bytes:
            self._roll()
        os.writev(self._fd, buffers)
        self._size += size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def _roll(self) -> None:
        os.close(self._fd)
        self._number += 1
        self._size = 0
        self._fd = self._open()

    def remove(self) -> None:
        os.close(self._fd)
        for number in range(self._number + 1):
            os.unlink(f"{self._directory}/raw-{number}")
