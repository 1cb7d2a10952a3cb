"""Files and a state store in memory, for simulated nodes: quick, and the same on every run.

They keep everything and never fail; loss and errors are added by `faults.py` on top. Errors have
the kernel's numbers, so that nobody can tell the difference (`tests/contract/` proves it).

Not here: symbolic links, permissions, descriptors (`fileno` raises).

M1  a name leads to an inode and a handle holds one: renaming or removing touches names only
M2  a view from `map` shows the file as it was at that moment. On a real disk it may show later
    writes as well, so no caller may count on either
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.proto.errors import StorageError
from ottla.replication.storage.errors import os_error
from ottla.replication.storage.ports import Buffer

KEY_SIZE_MAX: Final = 511


class _Inode:
    """The bytes of a file, whatever it is called."""

    __slots__ = ("data", "locked", "view")

    def __init__(self) -> None:
        self.data = bytearray()
        self.locked = False
        # The last view given out, if nothing was written since. A view of `data` itself would
        # forbid its growth.
        self.view: memoryview | None = None


class _Directory(dict[str, "_Inode | _Directory"]):
    """Names, and what they lead to."""


class MemoryFile:
    """One open handle. It keeps its inode alive."""

    __slots__ = ("_holds_lock", "_inode", "_writable")

    def __init__(self, inode: _Inode, *, writable: bool, holds_lock: bool = False) -> None:
        self._inode: _Inode | None = inode
        self._writable = writable
        self._holds_lock = holds_lock

    def _open_inode(self) -> _Inode:
        if self._inode is None:
            raise os_error(errno.EBADF)
        return self._inode

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        inode = self._open_inode()
        if not self._writable:
            raise os_error(errno.EBADF)
        if position < 0:
            raise os_error(errno.EINVAL)
        inode.view = None
        data = inode.data
        if position > len(data) and any(buffers):
            data.extend(bytes(position - len(data)))
        for buffer in filter(None, buffers):
            end = position + len(buffer)
            data[position:end] = buffer
            position = end

    def read_at(self, position: int, size: int) -> bytes:
        if position < 0 or size < 0:
            raise os_error(errno.EINVAL)
        return bytes(self._open_inode().data[position : position + size])

    def size(self) -> int:
        return len(self._open_inode().data)

    def truncate(self, size: int) -> None:
        inode = self._open_inode()
        if size < 0 or not self._writable:
            raise os_error(errno.EINVAL)
        inode.view = None
        if size <= len(inode.data):
            del inode.data[size:]
        else:
            inode.data.extend(bytes(size - len(inode.data)))

    def reserve(self, size: int) -> None:
        """There is always room."""

    def sync(self) -> None:
        self._open_inode()

    def begin_kernel_sync(self) -> None:
        return None

    def map(self) -> memoryview:
        inode = self._open_inode()
        if inode.view is None:
            inode.view = memoryview(bytes(inode.data))
        # A view of its own for each caller, who may release it.
        return inode.view[:]

    def fileno(self) -> int:
        raise os_error(errno.EOPNOTSUPP)

    def close(self) -> None:
        if self._inode is not None and self._holds_lock:
            self._inode.locked = False
        self._inode = None


class MemoryFiles:
    """A tree of its own. `/` and the empty path are both its root, which is always there."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Directory()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> MemoryFile:
        return MemoryFile(self._file(path, create=create), writable=writable)

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size_of(self, path: str) -> int:
        node = self._node(path)
        return len(node.data) if isinstance(node, _Inode) else 0

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path))

    def is_dir(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._node(path), _Directory)

    def make_dir(self, path: str) -> None:
        parent, name = self._place(path)
        if not isinstance(parent.setdefault(name, _Directory()), _Directory):
            raise os_error(errno.EEXIST, path)

    def rename(self, source: str, target: str) -> None:
        node = self._node(source)
        old_parent, old_name = self._place(source)
        parent, name = self._place(target)
        replaced = parent.get(name)
        if replaced is node:
            return
        if isinstance(node, _Directory) and f"{target}/".startswith(f"{source}/"):
            raise os_error(errno.EINVAL, target)
        if replaced is not None:
            self._require_replaceable(node, replaced, target)
        del old_parent[old_name]
        parent[name] = node

    @staticmethod
    def _require_replaceable(
        node: _Inode | _Directory, replaced: _Inode | _Directory, target: str
    ) -> None:
        if isinstance(node, _Directory):
            if not isinstance(replaced, _Directory):
                raise os_error(errno.ENOTDIR, target)
            if replaced:
                raise os_error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, _Directory):
            raise os_error(errno.EISDIR, target)

    def remove(self, path: str) -> None:
        if isinstance(self._node(path), _Directory):
            raise os_error(errno.EISDIR, path)
        parent, name = self._place(path)
        del parent[name]

    def remove_dir(self, path: str) -> None:
        if self._directory(path):
            raise os_error(errno.ENOTEMPTY, path)
        parent, name = self._place(path)
        del parent[name]

    def sync_dir(self, path: str) -> None:
        self._directory(path)

    def lock(self, path: str) -> MemoryFile:
        inode = self._file(path, create=True)
        if inode.locked:
            raise os_error(errno.EWOULDBLOCK, path)
        inode.locked = True
        return MemoryFile(inode, writable=True, holds_lock=True)

    def _file(self, path: str, *, create: bool) -> _Inode:
        parent, name = self._place(path)
        node = parent.get(name)
        if node is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            node = parent[name] = _Inode()
        if isinstance(node, _Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _node(self, path: str) -> _Inode | _Directory:
        if not path.strip("/"):
            return self._root
        parent, name = self._place(path)
        node = parent.get(name)
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        """Return the directory that holds, or would hold, the last name of `path`."""
        *parents, name = [part for part in path.split("/") if part] or [""]
        directory = self._root
        for part in parents:
            node = directory.get(part)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if not isinstance(node, _Directory):
                raise os_error(errno.ENOTDIR, path)
            directory = node
        if not name:
            raise os_error(errno.EBUSY, path)
        return directory, name


class MemoryStateStore:
    """A state store whose disk is the dictionary handed in: open a second one on it to restart."""

    __slots__ = ("_closed", "_disk", "_keys")

    def __init__(self, disk: dict[bytes, bytes] | None = None) -> None:
        self._disk: dict[bytes, bytes] = {} if disk is None else disk
        # Sorted, or None after keys came or went.
        self._keys: list[bytes] | None = None
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        self._require_open()
        return self._disk.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._require_open()
        if self._keys is None:
            self._keys = sorted(self._disk)
        start = bisect_left(self._keys, prefix)
        # The state as it is now, also when somebody commits while the caller still walks.
        found: list[tuple[bytes, bytes]] = []
        for position in range(start, len(self._keys)):
            key = self._keys[position]
            if not key.startswith(prefix):
                break
            found.append((key, self._disk[key]))
        return iter(found)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        self._require_open()
        for key in changes:
            require_key(key)
        for key, value in changes.items():
            if value is None:
                if self._disk.pop(key, None) is not None:
                    self._keys = None
            else:
                if key not in self._disk:
                    self._keys = None
                self._disk[key] = bytes(value)

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            raise StorageError("The state store is closed.")


def require_key(key: bytes) -> None:
    """Refuse a key that LMDB could not hold."""
    if not 0 < len(key) <= KEY_SIZE_MAX:
        raise StorageError(f"A key has 1 to {KEY_SIZE_MAX} bytes, not {len(key)}.")
