"""The real files: the kernel's own calls behind `ports.Files`, and nothing clever.

`write_at` carries every byte of the product. So it is one `pwritev` and one comparison; the rest
of this file may take its time.

Not here: what a path means, when to sync, what an error leads to. Errors are the kernel's.

K1  no symbolic link is followed at the end of a path, and nothing but a regular file is opened
K2  no descriptor survives into a child process
K3  a descriptor lives as long as its `DiskFile`: who holds the object can read, whatever was
    renamed or removed meanwhile

A view from `map` looks at the file itself. Whoever truncates a file must have dropped the parts of
its views beyond the new end: touching them afterwards kills the process (SIGBUS).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ottla.replication.storage.errors import os_error
from ottla.replication.storage.ports import Buffer

_FILE_MODE: Final = 0o640
_DIR_MODE: Final = 0o750
# The kernel takes no more buffers than this in one call (UIO_MAXIOV).
_BUFFERS_MAX: Final = 1024
# A pipe or a device that somebody planted must be refused, and not waited for: hence O_NONBLOCK.
# It means nothing to regular files.
_OPEN_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# Nobody asks ahead for more than this part of what is free: a disk that fills up is for what is
# written.
_SHARE_OF_FREE: Final = 64
# FALLOC_FL_KEEP_SIZE: blocks beyond the end, which no reader sees.
_KEEP_SIZE: Final = 1


def _found_fallocate() -> Callable[[int, int, int, int], int] | None:
    """Return the kernel's call, or None where there is none.

    Not `os.posix_fallocate`: that moves the end, and writes zeros where it is not supported.
    """
    found = getattr(ctypes.CDLL(None), "fallocate", None)
    if found is None or ctypes.sizeof(ctypes.c_long) != ctypes.sizeof(ctypes.c_int64):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call


_fallocate: Final = _found_fallocate()


class DiskFile:
    """One open descriptor. It is given back by `close`, or when the last holder lets go."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        if position < 0:
            # The kernel takes −1 for "wherever the cursor is", and there must be no cursor.
            raise os_error(errno.EINVAL)
        size = sum(map(len, buffers))
        if len(buffers) > _BUFFERS_MAX or os.pwritev(self._fd, buffers, position) != size:
            # Writing the first part again is harmless, and keeps the usual case to one line.
            self._write_rest(position, buffers)

    def _write_rest(self, position: int, buffers: Sequence[Buffer]) -> None:
        rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while rest:
            written = os.pwritev(self._fd, rest[:_BUFFERS_MAX], position)
            if not written:
                raise os_error(errno.EIO)
            position += written
            done = 0
            while done < len(rest) and written >= len(rest[done]):
                written -= len(rest[done])
                done += 1
            del rest[:done]
            if written:
                rest[0] = rest[0][written:]

    def read_at(self, position: int, size: int) -> bytes:
        found = os.pread(self._fd, size, position)
        if len(found) == size:
            return found
        parts = [found]
        while found and size > len(found):
            position += len(found)
            size -= len(found)
            found = os.pread(self._fd, size, position)
            parts.append(found)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        with suppress(OSError):
            end = self.size()
            if size == 0:
                # Also at its own size it lets go of the blocks behind it.
                os.ftruncate(self._fd, end)
            elif _fallocate is not None and size <= self._free_bytes() // _SHARE_OF_FREE:
                # Whatever it answers: without these blocks the kernel finds others when it writes.
                _fallocate(self._fd, _KEEP_SIZE, end, size)

    def _free_bytes(self) -> int:
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    def sync(self) -> None:
        # The size counts as data for fdatasync, also when it shrinks; only times are left out.
        os.fdatasync(self.fileno())

    def begin_kernel_sync(self) -> DiskFile | None:
        return self if self._fd >= 0 else None

    @property
    def fd(self) -> int:
        return self._fd

    def ended(self, error: OSError | None) -> None:
        """Nobody keeps a list of what is durable here."""

    def map(self) -> memoryview:
        size = self.size()
        if not size:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ))

    def fileno(self) -> int:
        if self._fd < 0:
            raise os_error(errno.EBADF)
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # No warning: readers share a file and none of them knows that it is the last (K3).
        self.close()


class DiskFiles:
    """The file system of this machine. Paths are taken as they are."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> DiskFile:
        flags = _OPEN_FLAGS | (os.O_RDWR if writable else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        file = DiskFile(os.open(path, flags, _FILE_MODE))
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            file.close()
            raise os_error(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, path)
        return file

    def exists(self, path: str) -> bool:
        # A dangling link does exist: whoever takes it for absent would try to create over it.
        return os.path.lexists(path)

    def size_of(self, path: str) -> int:
        return os.lstat(path).st_size

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False

    def make_dir(self, path: str) -> None:
        try:
            os.mkdir(path, _DIR_MODE)
        except FileExistsError:
            if not self.is_dir(path):
                raise

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskFile:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        return file
