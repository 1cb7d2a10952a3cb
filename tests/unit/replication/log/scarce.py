"""A disk in memory on which only so many files can be open at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from ottla.replication.storage.memory import MemoryFile, MemoryFiles
from ottla.replication.storage.ports import Buffer


class ScarceFile:
    """One open file; it counts until it is closed or the last holder lets go, as a real one."""

    def __init__(self, files: ScarceFiles, inner: MemoryFile, path: str) -> None:
        self._files, self._inner, self._path = files, inner, path
        self._is_counted = True
        files.open_count += 1

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._inner.write_at(position, buffers)

    def read_at(self, position: int, size: int) -> bytes:
        return self._inner.read_at(position, size)

    def size(self) -> int:
        return self._inner.size()

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def reserve(self, size: int) -> None:
        self._inner.reserve(size)

    def sync(self) -> None:
        if self._files.sync_error is not None:
            raise OSError(self._files.sync_error, os.strerror(self._files.sync_error))
        self._inner.sync()
        self._files.synced.append(self._path)

    def begin_kernel_sync(self) -> None:
        return None

    def map(self) -> memoryview:
        return self._inner.map()

    def fileno(self) -> int:
        return self._inner.fileno()

    def close(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._files.open_count -= 1
            self._inner.close()

    def __del__(self) -> None:
        self.close()


class ScarceFiles(MemoryFiles):
    """`limit` may be changed while things run; `open_count` files count against it."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 1_000_000
        self.open_count = 0
        self.most_open = 0
        self.sync_error: int | None = None
        # The paths of the files that were synced, in order.
        self.synced: list[str] = []

    def take_all(self) -> None:
        """Let no descriptor be left."""
        self.limit = self.open_count

    def give_all(self) -> None:
        self.limit = 1_000_000

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> ScarceFile:  # type: ignore[override]
        self._require_one_more(path)
        opened = ScarceFile(self, super().open(path, create=create, writable=writable), path)
        self.most_open = max(self.most_open, self.open_count)
        return opened

    def sync_dir(self, path: str) -> None:
        self._require_one_more(path)
        super().sync_dir(path)

    def _require_one_more(self, path: str) -> None:
        if self.open_count >= self.limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
