"""What members say to one another, and the envelope it travels in.

There is one class for each thing that may be said. What is not here cannot be said: no membership
changes, no change of code version, no hand-over, no read-only guests, no forwarded commands.

Not here: how it looks on the wire, and whether to believe it (`transport.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.controller.quorum.entries import Entry


@dataclass(frozen=True, slots=True)
class RequestVote:
    """The sender stands for election in its term."""

    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class Vote:
    """The sender votes for the receiver in that term."""

    term: int


@dataclass(frozen=True, slots=True)
class Append:
    """The leader's entries after `previous_index`, or none: a heartbeat."""

    term: int
    commit_index: int
    previous_index: int
    previous_term: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of the snapshot up to entry (`index`, `entry_term`), for one who lags far behind."""

    term: int
    index: int
    entry_term: int
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class AppendAnswer:
    """What the sender wants next. With `success` it holds, durably, everything before that.

    A member that may not acknowledge says neither `reset` nor `success`: it is there.
    """

    next_index: int
    reset: bool
    success: bool


@dataclass(frozen=True, slots=True)
class AskPreVote:
    """Would you vote for me? Nobody's term changes by asking."""

    term: int
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVote:
    """The answer to a question asked in `asked_term`; `term` is the sender's own."""

    asked_term: int
    term: int
    granted: bool


Message = RequestVote | Vote | Append | SnapshotPart | AppendAnswer | AskPreVote | PreVote


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message from one member to another."""

    cluster_id: str
    sender: int
    receiver: int
    # The data directory of the sender: a voter with an empty disk has another one.
    directory_id: str
    # One per connection, and a number that grows within it.
    stream: str
    sequence: int
    # The sender's term when it sent this. Some messages have no other.
    sender_term: int
    message: Message
