"""The two doors to the disk: files, and the state store beside them.

Everything that the log keeps goes through these protocols and through nothing else, so that one
fault-injecting stand-in (`faults.py`) can lose, tear and reorder what was not synced, in the
simulator and, by environment, in a real process.

D1  bytes are durable after `File.sync` of their file returned, and not before
D2  a name is durable after `Files.sync_dir` of its directory returned, and not before
D3  `StateStore.commit` is all or nothing, and durable when it returns
D4  an error of `sync`, `sync_dir` or `commit` is final: nobody may try again and believe it

Errors: `OSError` as the kernel gave it. The log turns it into a `StorageError` and goes offline;
the doors themselves decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

# What can be written: bytes, bytearray, or a view of either.
Buffer = bytes | bytearray | memoryview


class KernelSync(Protocol):
    """A sync that the kernel does by itself. Begun; then it has ended, or was not taken at all."""

    @property
    def fd(self) -> int:
        """The descriptor of which fdatasync is all that is to be done."""

    def ended(self, error: OSError | None) -> None:
        """Take note that the kernel is done. D1 and D4 hold as for `File.sync`."""


class File(Protocol):
    """One open file. Positions are explicit: there is no cursor to get wrong."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all the buffers, one after another, from `position` on, or raise `OSError`.

        After an error any part of it may have been written.
        """

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def reserve(self, size: int) -> None:
        """Ask for room for `size` bytes beyond the end; with 0 give back what was asked for.

        Neither bytes nor size change. It is a wish and raises nothing: who writes is told.
        """

    def sync(self) -> None:
        """Make the bytes and the size of this file durable (D1)."""

    def begin_kernel_sync(self) -> KernelSync | None:
        """Return what the kernel may do by itself in place of `sync`, or None if it may not."""

    def map(self) -> memoryview:
        """Return a read-only view of the whole file as it is now; empty for an empty file."""

    def fileno(self) -> int:
        """Return the descriptor, for sendfile. Raises `OSError` where there is none."""

    def close(self) -> None:
        """Give the descriptor back. Closing twice is allowed; a view from `map` stays valid."""


class Files(Protocol):
    """A directory tree. Paths are strings joined with `/`; the caller chooses the root."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a regular file. A symbolic link at the end of `path` is refused (`OSError` ELOOP).

        With `create` it is made if absent; without, `FileNotFoundError`.
        """

    def exists(self, path: str) -> bool: ...

    def size_of(self, path: str) -> int: ...

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def is_dir(self, path: str) -> bool: ...

    def make_dir(self, path: str) -> None:
        """Make one directory; it may exist already. Parents must exist."""

    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically if it exists. Works for files and directories."""

    def remove(self, path: str) -> None:
        """Remove a file. Files that are open stay readable until closed."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable (D2)."""

    def lock(self, path: str) -> File:
        """Take an exclusive lock on a file, made if absent, or raise `BlockingIOError` at once.

        Held until the returned file is closed or the process dies.
        """


class StateStore(Protocol):
    """A small ordered map that survives crashes: checksummed values, atomic synced commits.

    Not for records: those live in segment files.
    """

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None. Raises `CorruptionError` if it is not what was written."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs whose key begins with `prefix`, in key order. Same errors as `get`."""

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Put, or with None delete, all the keys in one durable transaction (D3).

        After an error the store refuses every later commit with `StorageError` (D4).
        """

    def close(self) -> None: ...
