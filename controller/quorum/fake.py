"""A quorum without Raft, for simulations that are about something else.

It keeps the promises of the port (`tests/contract/` holds both to them) and is as unpleasant as
the port allows: leaders are lost, their commands may or may not have been committed, and a caller
of a lost leader learns nothing. There is one log for all; what a real quorum would agree on by
talking, this one simply knows.

Not here: disks. A member that crashes finds the shared log again, and nothing else.

K1  a command is committed only while its leader reaches a majority
K2  there is one leader at a time for those who can reach a majority; one that was cut off may
    still think it leads, and commits nothing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.controller.quorum.entries import COMMAND_BYTES_MAX
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import (
    ApplyFailed,
    Committed,
    Done,
    Outcome,
    QuorumStatus,
    Refused,
    Role,
    StateMachine,
    Unknown,
    Why,
)
from ottla.proto.errors import ensure

ELECTION_MS: Final = 500
STEP_DOWN_MS: Final = 1000
CALLS_MAX: Final = 1000


class Dice(Protocol):
    """What is needed of `random.Random`."""

    def random(self) -> float: ...


@dataclass(slots=True)
class _Call:
    """A proposal, or a read, that was not answered yet."""

    command: bytes | None
    deadline_ms: int
    done: Done
    # Where it stands in the log, once it does.
    index: int | None = None


class FakeCluster:
    """What all members share: who is there, who leads, and what is committed."""

    def __init__(self, voters: int, *, now_ms: Callable[[], int], dice: Dice) -> None:
        self.voters: Final = tuple(range(1, voters + 1))
        self.now_ms: Final = now_ms
        self.dice: Final = dice
        self.members: Final[dict[int, FakeQuorum]] = {}
        # None is a no-op. The first entry has index 1.
        self.log: Final[list[bytes | None]] = []
        self.term = 0
        self.leader: int | None = None
        self._cut: set[int] = set()
        self._without_leader_since_ms = now_ms()

    def start(self, node_id: int, machine: StateMachine) -> FakeQuorum:
        ensure(node_id in self.voters and node_id not in self.members, "it is a voter that is down")
        self.members[node_id] = FakeQuorum(self, node_id, machine)
        return self.members[node_id]

    def crash(self, node_id: int) -> None:
        self.members.pop(node_id).lose_calls(self.reaches_majority(node_id))
        if self.leader == node_id:
            self._lose_leader()

    def cut_off(self, node_id: int) -> None:
        self._cut.add(node_id)

    def heal(self) -> None:
        self._cut.clear()

    def is_reached(self, node_id: int) -> bool:
        return node_id in self.members and node_id not in self._cut

    def reaches_majority(self, node_id: int) -> bool:
        if node_id in self._cut:
            return len(self.voters) == 1
        reached = sum(1 for peer in self.voters if self.is_reached(peer))
        return 2 * reached > len(self.voters)

    def tick(self) -> None:
        """Elect if it is time, then let everybody commit and apply."""
        self._elect_if_due()
        for node_id in sorted(self.members):
            if node_id in self.members:
                self.members[node_id].tick()

    def append(self, command: bytes | None) -> int:
        self.log.append(command)
        return len(self.log)

    def _elect_if_due(self) -> None:
        if self.leader is not None and not self.reaches_majority(self.leader):
            self._lose_leader()
        if self.leader is not None:
            return
        if len(self.voters) > 1 and self.now_ms() - self._without_leader_since_ms < ELECTION_MS:
            return
        able = [n for n in self.voters if n in self.members and self.reaches_majority(n)]
        if able:
            self.leader = able[int(self.dice.random() * len(able))]
            self.term += 1
            self.append(None)

    def _lose_leader(self) -> None:
        self.leader = None
        self._without_leader_since_ms = self.now_ms()


class FakeQuorum:
    """One member: a `Quorum` of the port."""

    def __init__(self, cluster: FakeCluster, node_id: int, machine: StateMachine) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._machine = machine
        self._applied = 0
        self._answers: dict[int, object] = {}
        self._calls: list[_Call] = []
        self._term = cluster.term
        self._believed: int | None = None
        self._believed_ms = cluster.now_ms()

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def leader(self) -> int | None:
        return self._believed

    def propose(self, command: bytes, timeout_ms: int, done: Done) -> None:
        if len(command) > COMMAND_BYTES_MAX:
            done(Refused(Why.TOO_LARGE))
        else:
            self._take(_Call(bytes(command), self._cluster.now_ms() + timeout_ms, done))

    def read(self, timeout_ms: int, done: Done) -> None:
        self._take(_Call(None, self._cluster.now_ms() + timeout_ms, done))

    def status(self) -> QuorumStatus:
        return QuorumStatus(
            node_id=self._node_id,
            standing=Standing.VOTER,
            role=Role.LEADER if self._believed == self._node_id else Role.FOLLOWER,
            term=self._term,
            leader=self._believed,
            voters=self._cluster.voters,
            first_index=1,
            last_index=len(self._cluster.log),
            commit_index=self._applied,
            applied_index=self._applied,
            at_ms=self._cluster.now_ms(),
        )

    def tick(self) -> None:
        cluster = self._cluster
        if cluster.reaches_majority(self._node_id):
            self._believed, self._believed_ms = cluster.leader, cluster.now_ms()
            self._term = cluster.term
            self._commit()
            self._apply()
        elif cluster.now_ms() - self._believed_ms >= STEP_DOWN_MS:
            self._believed = None
        self._answer()

    def lose_calls(self, could_commit: bool) -> None:
        """The process dies with its callers unanswered; what it had sent may be committed."""
        for call in self._calls:
            if could_commit and call.index is None and self._cluster.dice.random() < 0.5:
                self._cluster.append(call.command)

    def _take(self, call: _Call) -> None:
        if self._believed != self._node_id:
            call.done(Refused(Why.NOT_LEADER, self._believed))
        elif len(self._calls) >= CALLS_MAX:
            call.done(Refused(Why.BUSY, self._believed))
        else:
            self._calls.append(call)

    def _commit(self) -> None:
        for call in self._calls:
            if call.index is None and self._cluster.leader == self._node_id:
                call.index = self._cluster.append(call.command)

    def _apply(self) -> None:
        for command in self._cluster.log[self._applied :]:
            self._applied += 1
            if command is not None:
                self._answers[self._applied] = self._applied_answer(command)

    def _applied_answer(self, command: bytes) -> object:
        try:
            return self._machine.apply(command)
        except Exception as error:  # noqa: BLE001  # the answer of the real one, too
            return ApplyFailed(f"{type(error).__name__}: {error}")

    def _answer(self) -> None:
        calls, self._calls = self._calls, []
        told: list[tuple[_Call, Outcome]] = []
        for call in calls:
            if call.index is not None:
                told.append((call, Committed(call.index, self._answers.pop(call.index, None))))
            elif call.deadline_ms <= self._cluster.now_ms():
                told.append((call, Unknown(Why.TIMED_OUT)))
            else:
                self._calls.append(call)
        # Only our own calls are ever asked for.
        self._answers.clear()
        for call, outcome in told:
            call.done(outcome)
