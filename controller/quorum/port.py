"""What the controller asks of its quorum, whoever that is: Raft, or the simulator's stand-in.

A command goes in as bytes; when a majority holds it durably, every member applies it, in the same
order. Answers come through a callback that is called exactly once, in the thread that ticks.

Not here: what a command means. `StateMachine.apply` must be a pure function of the state and the
command, and total; what depends on time or chance travels inside the command.

Q1  `Committed`: the command was applied here, once, at that index
Q2  `Refused`: the command was not applied and never will be
Q3  `Unknown`: nobody here can tell; read, or send it again with the same request id
Q4  after `read` says `Committed`, the state holds everything that was committed before the call
Q5  every call is answered within its time
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ottla.controller.quorum.membership import Standing


class StateMachine(Protocol):
    """What every member keeps, and changes only by committed commands."""

    def apply(self, command: bytes) -> object:
        """Take in one command and return the answer for whoever proposed it."""

    def snapshot(self) -> bytes:
        """Return the whole state, so that `restore` makes an equal one of it."""

    def restore(self, state: bytes) -> None:
        """Become a state that `snapshot` returned, here or on another member."""


class Why(Enum):
    """Why a command was refused, or why its fate is not known."""

    NOT_LEADER = "This member does not lead the quorum."
    TOO_LARGE = "The command is too large."
    BUSY = "Too many commands are waiting."
    HALTED = "This member has stopped after an error."
    TIMED_OUT = "The time allowed ran out."
    REPLACED = "Another leader's entry stands in its place."
    NO_VOTER = "It is not among the other voters."
    NOT_HEARD = "That voter does not speak from that data directory at the moment."
    ADMITTED_ALREADY = "That data directory was admitted already."
    DIRECTORY_REPLACED = "That data directory was replaced by a newer one, and may not vote again."
    TOO_FEW = "Too few of the other voters acknowledge anything at the moment."
    ADMITTING = "Another data directory of that voter is being admitted."


@dataclass(frozen=True, slots=True)
class Committed:
    """It was applied, at this index, and this is what `apply` answered (Q1)."""

    index: int
    answer: object


@dataclass(frozen=True, slots=True)
class Refused:
    """It did not happen and will not (Q2)."""

    why: Why
    # Who leads, as far as is known: ask there.
    leader: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have happened, or may yet (Q3)."""

    why: Why


Outcome = Committed | Refused | Unknown
Done = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class ApplyFailed:
    """The answer to a command on which `apply` raised: a bug, the same on every member."""

    sentence: str


class Role(Enum):
    """What a member does at the moment, as it sees it itself."""

    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """For people and for DescribeQuorum. Never a ground for a decision: two may think they lead."""

    node_id: int
    standing: Standing
    role: Role
    term: int
    leader: int | None
    voters: tuple[int, ...]
    first_index: int
    last_index: int
    commit_index: int
    applied_index: int
    # Known to the leader only: the last entry that each other voter has acknowledged.
    acknowledged: Mapping[int, int] = field(default_factory=dict)
    # Why this member stopped, if it did.
    halted: str | None = None
    # From which data directory each voter votes, by this member's journal; None: not known.
    admitted: Mapping[int, str | None] = field(default_factory=dict)
    # What keeps this member from voting, or its quorum from having a leader, in a sentence.
    trouble: str | None = None
    # The last other leader that was heard by this process, and when, on the clock of `at_ms`.
    last_heard: tuple[int, int] | None = field(default=None, compare=False)
    # When it was so, on the member's own monotonic clock. It tells when its thread hangs, or slept.
    at_ms: int = field(default=0, compare=False)


class Quorum(Protocol):
    """One member's door to the quorum."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader(self) -> int | None:
        """Return who leads, as far as this member knows."""

    def propose(self, command: bytes, timeout_ms: int, done: Done) -> None:
        """Have a command committed. Only the leader can; others refuse and name it."""

    def read(self, timeout_ms: int, done: Done) -> None:
        """Say when this member's state is as new as anything committed before now (Q4)."""

    def status(self) -> QuorumStatus: ...
