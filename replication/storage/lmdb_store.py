"""The state store of a real node: LMDB, always synced, with a checksum in every value.

Each value is stored as `format byte, CRC-32C of key and value (4 bytes), value`. The key is part
of the sum, so a value that turns up under another key is found as well.

Not here: what the keys mean; who owns the directory (`directory.py` holds the lock).

L1  a store is made elsewhere and renamed into place, whole and synced. So an existing one that is
    empty, short or half there is damage, and never taken for a first start
L2  the file is walked before LMDB maps it (`lmdb_check.py`): damage is an error, not a SIGBUS
L3  after a commit error nothing is committed any more (D4). A full map is no such error: LMDB
    finds it out before it writes anything, so the map is made larger and the commit repeated
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

import lmdb
from crc32c import crc32c

from ottla.proto.errors import CorruptionError, StorageError
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.lmdb_check import check_lmdb_file
from ottla.replication.storage.memory import require_key

MAP_SIZE_DEFAULT: Final = 1 << 30
_FORMAT: Final = 1
_SEAL: Final = Struct(">BI")
_DATA_FILE: Final = "data.mdb"


class LmdbStateStore:
    """One LMDB environment in a directory of its own, which is made if it is absent."""

    def __init__(self, path: str, *, map_size: int = MAP_SIZE_DEFAULT) -> None:
        self._path = path
        # One writer at a time. Readers do not wait for it: they meet only the resizing.
        self._writing = Lock()
        self._resizing = Lock()
        self._refusal: str | None = None
        try:
            if not Path(path).exists():
                _make_store(path)
            elif not (Path(path) / _DATA_FILE).exists():
                raise CorruptionError(
                    f"The state store {path} has lost its file {_DATA_FILE}. Bring it back, or "
                    "remove the whole data directory and let this node copy everything again."
                )
            data_path = Path(path) / _DATA_FILE
            check_lmdb_file(str(data_path), _check_pair)
            # A map smaller than the file would hide pages that are in use.
            self._map_size = max(map_size, data_path.stat().st_size)
            self._environment = lmdb.open(path, map_size=self._map_size, mode=0o640, max_dbs=0)
        except (OSError, lmdb.Error) as error:
            raise StorageError(f"The state store {path} cannot be opened: {error}.") from error

    def get(self, key: bytes) -> bytes | None:
        require_key(key)
        with self._reading() as transaction:
            sealed = transaction.get(key)
        return None if sealed is None else _unseal(key, bytes(sealed))

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        # All at once: a reader that is left open would stop LMDB from reusing pages.
        with self._reading() as transaction, transaction.cursor() as cursor:
            if cursor.set_range(prefix):
                for pair in cursor:
                    key, sealed = map(bytes, pair)
                    if not key.startswith(prefix):
                        break
                    found.append((key, _unseal(key, sealed)))
        return iter(found)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        for key in changes:
            require_key(key)
        with self._writing:
            if self._refusal is not None:
                raise StorageError(self._refusal)
            # Whatever leaves the block early, a simulated crash included, leaves the refusal on.
            self._refusal = f"The state store {self._path} is closed after a commit error."
            try:
                hit("state.commit.before")
                self._write(changes)
                hit("state.commit.after")
            except (OSError, lmdb.Error) as error:
                sentence = f"The state store {self._path} failed to commit: {error}."
                self._refusal = f"{sentence} It commits nothing any more."
                raise StorageError(sentence) from error
            self._refusal = None

    def close(self) -> None:
        with self._writing, self._resizing:
            self._refusal = f"The state store {self._path} is closed."
            self._environment.close()

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction]:
        with self._resizing:
            try:
                with self._environment.begin() as transaction:
                    yield transaction
            except lmdb.Error as error:
                sentence = f"The state store {self._path} cannot be read: {error}."
                raise StorageError(sentence) from error

    def _write(self, changes: Mapping[bytes, bytes | None]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in changes.items():
                        if value is None:
                            transaction.delete(key)
                        else:
                            transaction.put(key, _seal(key, value))
            except lmdb.MapFullError:
                self._grow()
            else:
                return

    def _grow(self) -> None:
        with self._resizing:
            self._map_size *= 2
            self._environment.set_mapsize(self._map_size)


def _seal(key: bytes, value: bytes) -> bytes:
    return _SEAL.pack(_FORMAT, crc32c(value, crc32c(key))) + value


def _unseal(key: bytes, sealed: bytes) -> bytes:
    if len(sealed) < _SEAL.size:
        raise CorruptionError(f"The value of state key {key!r} is too short.")
    form, checksum = _SEAL.unpack_from(sealed)
    if form != _FORMAT:
        raise CorruptionError(f"The value of state key {key!r} has the unknown format {form}.")
    value = sealed[_SEAL.size :]
    if crc32c(value, crc32c(key)) != checksum:
        raise CorruptionError(f"The value of state key {key!r} is not what was written.")
    return value


def _check_pair(key: bytes, sealed: bytes) -> None:
    _unseal(key, sealed)


def _make_store(path: str) -> None:
    """Make an empty store beside `path` and rename it into place (L1)."""
    unfinished = Path(f"{path}.new")
    if unfinished.exists():
        for leftover in unfinished.iterdir():
            leftover.unlink()
    unfinished.mkdir(mode=0o750, exist_ok=True)
    environment = lmdb.open(str(unfinished), map_size=1 << 20, mode=0o640, max_dbs=0)
    environment.close()
    _sync_path(unfinished / _DATA_FILE)
    _sync_path(unfinished)
    unfinished.rename(path)
    _sync_path(unfinished.parent)


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
