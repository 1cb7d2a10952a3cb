"""Snapshots on their way between members, and in place of the library's own handling of them.

The library forks to write a snapshot, writes it beside the journal and trims the journal later: a
crash in between loses everything after it. Here the journal stores both in one transaction, and
this class, which stands where the library's serializer stood, only hands parts to and fro.

Not here: when a snapshot is taken (`seam.py`), and how it is kept (`journal.py`).

S1  parts are put together only if they are of one snapshot and leave no gap
S2  a snapshot is taken over only if it is whole and brings something that is not here, so that one
    that comes late never takes away what was acknowledged since
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.controller.quorum.entries import Snapshot, decode_snapshot, encode_snapshot
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.transport import SNAPSHOT_PART_BYTES_MAX
from ottla.proto.errors import CorruptionError

INCOMING_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Part:
    """A run of bytes of one snapshot."""

    index: int
    entry_term: int
    position: int
    data: bytes
    is_last: bool


@dataclass(slots=True)
class _Outgoing:
    """A snapshot that is being sent to one member."""

    index: int
    term: int
    data: bytes
    position: int = 0


class Snapshots:
    """The parts that go out and come in."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._outgoing: dict[object, _Outgoing] = {}
        self._incoming: bytearray | None = None
        self._incoming_of: tuple[int, int] | None = None

    def forget_outgoing(self) -> None:
        """Begin anew with everybody, since there is a newer snapshot."""
        self._outgoing.clear()

    def cancel(self, receiver: object) -> None:
        self._outgoing.pop(receiver, None)

    def next_part(self, receiver: object) -> Part | None:
        """Return the next part for a member, or None if there is no snapshot."""
        sending = self._outgoing.get(receiver)
        if sending is None:
            snapshot = self._journal.snapshot
            if snapshot is None:
                return None
            sending = _Outgoing(snapshot.index, snapshot.term, encode_snapshot(snapshot))
            self._outgoing[receiver] = sending
        start = sending.position
        data = sending.data[start : start + SNAPSHOT_PART_BYTES_MAX]
        sending.position += len(data)
        is_last = sending.position == len(sending.data)
        if is_last:
            del self._outgoing[receiver]
        return Part(sending.index, sending.term, start, data, is_last)

    def take_part(self, part: Part) -> Snapshot | None:
        """Return the snapshot if this part completes one that is wanted."""
        if not self._collect(part) or not part.is_last or self._incoming is None:
            return None
        data, self._incoming = bytes(self._incoming), None
        try:
            snapshot = decode_snapshot(data, "A snapshot from the leader")
        except CorruptionError:
            # It will be sent again: we do not acknowledge what we do not have.
            return None
        if (snapshot.index, snapshot.term) != (part.index, part.entry_term):
            return None
        return snapshot

    def _collect(self, part: Part) -> bool:
        if not self._journal.wants(part.index, part.entry_term):
            self._incoming = None
            return False
        of = (part.index, part.entry_term)
        if part.position == 0:
            self._incoming, self._incoming_of = bytearray(), of
        incoming = self._incoming
        if incoming is None or self._incoming_of != of or part.position != len(incoming):
            self._incoming = None
            return False
        incoming += part.data
        if len(incoming) > INCOMING_BYTES_MAX:
            self._incoming = None
            return False
        return True
