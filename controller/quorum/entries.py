"""What Raft agrees on: numbered entries, and a snapshot that stands for the first of them.

An entry is a tuple in the library's own order, so that the library can take ours for its own. Its
bytes begin with the kind of entry; there are two kinds, and every other is refused wherever one
might come in: the wire (`transport.py`) and the disk (`journal.py`).

Not here: what a command means, and how entries are kept.

E1  what was encoded decodes to an equal value; anything else raises `CorruptionError`
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.proto.errors import CorruptionError

COMMAND: Final = b"\x00"
NO_OP: Final = b"\x01"
# Half of what the library sends in one piece: it splits larger ones, and does it wrongly.
COMMAND_BYTES_MAX: Final = 32 * 1024
FIRST_INDEX: Final = 1

# Checksum of the rest, index, term.
_ENTRY: Final = Struct(">IQQ")
_AFTER_CHECKSUM: Final = 4
# Checksum of the rest, lengths of the two entries.
_SNAPSHOT: Final = Struct(">III")


class Entry(NamedTuple):
    """One entry of the log."""

    command: bytes
    # Instead of the method of this name that tuples have, which nobody wants here.
    index: int  # type: ignore[assignment]
    term: int


# Every member's log begins with it, in term 0, without a vote.
FIRST_ENTRY: Final = Entry(NO_OP, FIRST_INDEX, 0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after `last` was applied. `previous` is kept for the library's comparison."""

    previous: Entry
    last: Entry
    state: bytes

    @property
    def index(self) -> int:
        return self.last.index

    @property
    def term(self) -> int:
        return self.last.term


def is_known_kind(command: bytes) -> bool:
    """Tell whether these are the bytes of an entry that we would have made."""
    if command[:1] == NO_OP:
        return len(command) == 1
    return command[:1] == COMMAND and len(command) <= COMMAND_BYTES_MAX + 1


def encode_entry(entry: Entry) -> bytes:
    body = _ENTRY.pack(0, entry.index, entry.term)[_AFTER_CHECKSUM:] + entry.command
    return crc32c(body).to_bytes(_AFTER_CHECKSUM, "big") + body


def decode_entry(data: bytes, what: str) -> Entry:
    if len(data) < _ENTRY.size:
        raise CorruptionError(f"{what} is too short.")
    checksum, index, term = _ENTRY.unpack_from(data)
    if crc32c(data[_AFTER_CHECKSUM:]) != checksum:
        raise CorruptionError(f"{what} is not what was written.")
    command = data[_ENTRY.size :]
    if not is_known_kind(command):
        raise CorruptionError(f"{what} is of a kind that is not known.")
    return Entry(command, index, term)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    previous, last = encode_entry(snapshot.previous), encode_entry(snapshot.last)
    header = _SNAPSHOT.pack(0, len(previous), len(last))[_AFTER_CHECKSUM:]
    body = header + previous + last + snapshot.state
    return crc32c(body).to_bytes(_AFTER_CHECKSUM, "big") + body


def decode_snapshot(data: bytes, what: str) -> Snapshot:
    if len(data) < _SNAPSHOT.size:
        raise CorruptionError(f"{what} is too short.")
    checksum, previous_size, last_size = _SNAPSHOT.unpack_from(data)
    if crc32c(data[_AFTER_CHECKSUM:]) != checksum:
        raise CorruptionError(f"{what} is not what was written.")
    last_start = _SNAPSHOT.size + previous_size
    state_start = last_start + last_size
    previous = decode_entry(data[_SNAPSHOT.size : last_start], what)
    last = decode_entry(data[last_start:state_start], what)
    if last.index != previous.index + 1 or last.term < previous.term:
        raise CorruptionError(f"{what} joins entries that do not follow one another.")
    return Snapshot(previous, last, data[state_start:])
