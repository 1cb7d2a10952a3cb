"""Reads a state store without opening it: no lock, no map, not one byte written.

A night watchman with a torch: he looks through the window and does not try the door. LMDB itself
would at least make a lock file, so the pages are walked as `lmdb_check.py` walks them before every
start.

Not here: what the keys mean (`log/state.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from ottla.proto.errors import CorruptionError, StorageError
from ottla.replication.storage.lmdb_check import check_lmdb_file
from ottla.replication.storage.lmdb_store import _unseal as unseal

STATE_NAME: Final = "state"
_DATA_FILE: Final = "data.mdb"


class StateReader(Protocol):
    """The half of a `StateStore` that changes nothing."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...


class StateFile:
    """All pairs of a state store as they were when the file was read."""

    def __init__(self, sealed: dict[bytes, bytes]) -> None:
        self._sealed: Final = sealed

    def get(self, key: bytes) -> bytes | None:
        sealed = self._sealed.get(key)
        return None if sealed is None else unseal(key, sealed)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self._sealed):
            if key.startswith(prefix):
                yield key, unseal(key, self._sealed[key])


def read_state_file(directory: str) -> StateFile:
    """Return what is in the state store at `directory`, or raise `StorageError`.

    A page that cannot be walked is an error here; a value that is not what was written is one when
    it is asked for, so that one bad value does not hide the others.
    """
    path = Path(directory) / _DATA_FILE
    if not path.exists():
        raise CorruptionError(f"The state store {directory} has lost its file {_DATA_FILE}.")
    sealed: dict[bytes, bytes] = {}
    try:
        check_lmdb_file(str(path), sealed.__setitem__)
    except OSError as error:
        raise StorageError(f"The state store {directory} cannot be read: {error}.") from error
    return StateFile(sealed)
