"""What Raft agrees on: numbered entries, and a snapshot that stands for the first of them.

An entry is a tuple in the library's own order, so that the library can take ours for its own. Its
bytes begin with the kind of entry; there are three kinds, and every other is refused wherever one
might come in: the wire (`transport.py`) and the disk (`journal.py`).

    a command    for the state machine
    a no-op      of a new leader, and of reads
    an admission of a voter's new data directory; the library passes over kinds it does not know

Not here: what a command means, what an admission does, and how entries are kept.

E1  what was encoded decodes to an equal value; anything else raises `CorruptionError`
E2  a snapshot carries the data directories that were admitted up to its end
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.proto.errors import CorruptionError

COMMAND: Final = b"\x00"
NO_OP: Final = b"\x01"
# Far from the kinds that the library has for itself.
ADMIT: Final = b"\x10"
# Half of what the library sends in one piece: it splits larger ones, and does it wrongly.
COMMAND_BYTES_MAX: Final = 32 * 1024
FIRST_INDEX: Final = 1
DIRECTORY_ID_BYTES_MAX: Final = 255

# Checksum of the rest, index, term.
_ENTRY: Final = Struct(">IQQ")
_AFTER_CHECKSUM: Final = 4
# Checksum of the rest, lengths of the two entries and of the directories.
_SNAPSHOT: Final = Struct(">IIII")
_VOTER: Final = Struct(">Q")


class Entry(NamedTuple):
    """One entry of the log."""

    command: bytes
    # Instead of the method of this name that tuples have, which nobody wants here.
    index: int  # type: ignore[assignment]
    term: int


class Admit(NamedTuple):
    """From now on this voter votes from this data directory, and from no other."""

    voter: int
    directory_id: str


# Every member's log begins with it, in term 0, without a vote.
FIRST_ENTRY: Final = Entry(NO_OP, FIRST_INDEX, 0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after `last` was applied. `previous` is kept for the library's comparison."""

    previous: Entry
    last: Entry
    state: bytes
    # Every directory that each voter ever had, the newest last; empty: those of the formation.
    directories: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

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
    if command[:1] == ADMIT:
        return admission_in(command) is not None
    return command[:1] == COMMAND and len(command) <= COMMAND_BYTES_MAX + 1


def encode_admission(admission: Admit) -> bytes:
    """Return the bytes of an admission without its kind, which whoever appends it puts first."""
    return _VOTER.pack(admission.voter) + admission.directory_id.encode()


def admission_in(command: bytes) -> Admit | None:
    """Return the admission that these bytes are, if they are one."""
    size = len(command) - len(ADMIT) - _VOTER.size
    if command[:1] != ADMIT or not 0 < size <= DIRECTORY_ID_BYTES_MAX:
        return None
    (voter,) = _VOTER.unpack_from(command, len(ADMIT))
    try:
        return Admit(voter, command[-size:].decode())
    except UnicodeDecodeError:
        return None


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
    directories = json.dumps(
        {str(voter): snapshot.directories[voter] for voter in sorted(snapshot.directories)}
    ).encode()
    sizes = (len(previous), len(last), len(directories))
    header = _SNAPSHOT.pack(0, *sizes)[_AFTER_CHECKSUM:]
    body = header + previous + last + directories + snapshot.state
    return crc32c(body).to_bytes(_AFTER_CHECKSUM, "big") + body


def decode_snapshot(data: bytes, what: str) -> Snapshot:
    if len(data) < _SNAPSHOT.size:
        raise CorruptionError(f"{what} is too short.")
    checksum, *sizes = _SNAPSHOT.unpack_from(data)
    if crc32c(data[_AFTER_CHECKSUM:]) != checksum:
        raise CorruptionError(f"{what} is not what was written.")
    parts, start = [], _SNAPSHOT.size
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    previous, last = decode_entry(parts[0], what), decode_entry(parts[1], what)
    if last.index != previous.index + 1 or last.term < previous.term:
        raise CorruptionError(f"{what} joins entries that do not follow one another.")
    return Snapshot(previous, last, data[start:], _decode_directories(parts[2], what))


def _decode_directories(data: bytes, what: str) -> Mapping[int, tuple[str, ...]]:
    try:
        told = json.loads(data)
        return {int(voter): tuple(map(str, ids)) for voter, ids in told.items() if ids}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptionError(f"{what} names its directories in a way not known.") from error
