"""The state store of the quorum's journal, with named places where a judge can end this process.

The journal stores a snapshot and takes away the entries that it stands for in one transaction
(J2 of `controller/quorum/journal.py`). Whoever dies just before or just behind it must come back
with a whole journal. The same goes for a snapshot that was taken over from another member.

Not here: what is in it (`ottla.controller.quorum`), which cannot know of failpoints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.controller.quorum.layout import SNAPSHOT_KEY
from ottla.proto.errors import StorageError
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import StateStore


class QuorumStore:
    """A store that passes two named places when a snapshot is committed."""

    def __init__(self, inner: StateStore) -> None:
        self._inner: Final = inner

    def get(self, key: bytes) -> bytes | None:
        return self._inner.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.scan(prefix)

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        is_snapshot = SNAPSHOT_KEY in changes
        if is_snapshot:
            _reach("quorum.snapshot.before")
        self._inner.commit(changes)
        if is_snapshot:
            _reach("quorum.snapshot.after")


def _reach(place: str) -> None:
    try:
        hit(place)
    except OSError as error:
        raise StorageError(f"The quorum's journal failed to commit a snapshot: {error}.") from error
