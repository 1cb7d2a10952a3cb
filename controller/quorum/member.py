"""One member of the quorum: the library behind the seam, and what it does not do by itself.

That is: to ask before it stands for election, to answer every call in its time, to trim its
journal, and to stop for good when something is wrong.

It does nothing by itself. Whoever owns it calls `tick` every few milliseconds and after messages
came, always from one thread; time, dice and the wire are handed in. So it runs in a real process
(`runner.py`) and on the virtual time of a simulation alike.

Not here: sockets, threads; how a cluster is formed; whom a leader admits (`joining.py`).

M1  every call is answered exactly once
M2  after an error that is not a command's own fault the member is halted: it says nothing to
    anybody and takes nothing in, until its process starts anew
M3  what only a voter may say, only a voter says (B1); who may not acknowledge says that it is there
M4  a leader that was not at work for longer than a majority may be silent leads no more, before it
    takes anything in: answers that lay in its sockets meanwhile say nothing of now (rule 13)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Protocol

from ottla.controller.quorum.election import PreElection, Rank
from ottla.controller.quorum.entries import COMMAND_BYTES_MAX, Admit
from ottla.controller.quorum.joining import Joiners, may_vote, next_step
from ottla.controller.quorum.journal import Journal
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.messages import (
    Append,
    AppendAnswer,
    AskPreVote,
    Envelope,
    Message,
    PreVote,
    SnapshotPart,
)
from ottla.controller.quorum.port import (
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
from ottla.controller.quorum.seam import Applied, Raft, Timing
from ottla.controller.quorum.transport import Drop, Inbox, Outbox, View, needs_a_voter
from ottla.proto.errors import StorageError

CALLS_MAX: Final = 1000
# Between two members that see the leader's process die at the same moment.
# A round of messages on a busy machine fits into it, or both would stand and split the vote.
RANK_DELAY_MS: Final = 150


class Link(Protocol):
    """Carries envelopes: in order, each at most once, none after its stream broke."""

    def send(self, envelope: Envelope) -> bool:
        """Return whether it was taken. It never blocks: a full queue takes nothing."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a snapshot takes the place of the journal's entries."""

    # They are applied again at every start, so this bounds how long that takes.
    entries: int = 1_000
    size_bytes: int = 64 << 20


class _Call:
    """A proposal, an admission or a read that was not answered yet."""

    __slots__ = ("command", "deadline_ms", "done", "outcome")

    def __init__(self, command: bytes | Admit | None, deadline_ms: int, done: Done) -> None:
        self.command = command
        self.deadline_ms = deadline_ms
        self.done = done
        self.outcome: Outcome | None = None

    def settle(self, outcome: Outcome) -> None:
        if self.outcome is None:
            self.outcome = outcome


class QuorumMember:
    """A `Quorum` of the port, on Raft."""

    def __init__(
        self,
        *,
        journal: Journal,
        machine: StateMachine,
        link: Link,
        now_ms: Callable[[], int],
        dice: Random,
        timing: Timing | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        timing = Timing() if timing is None else timing
        membership = journal.membership
        self._journal = journal
        self._machine = machine
        self._link = link
        self._now_ms = now_ms
        self._dice = dice
        self._timing = timing
        self._compaction = Compaction() if compaction is None else compaction
        self._node_id = membership.node_id
        self._inbox = Inbox(node_id=self._node_id, cluster_id=membership.cluster_id)
        self._outbox = Outbox(
            node_id=self._node_id,
            cluster_id=membership.cluster_id,
            directory_id=membership.directory_id,
            new_stream=lambda: f"{dice.getrandbits(128):032x}",
        )
        self._last_heard: tuple[int, int] | None = None
        # When it was last at work (M4).
        self._awake_ms = now_ms()
        self._pre = PreElection(
            voters=len(membership.voters), patience_ms=timing.election_min_ms, now_ms=now_ms()
        )
        self._joiners = Joiners(journal)
        self._halted: str | None = None
        # Not yet in the log; in the log.
        self._waiting: list[_Call] = []
        self._appended: list[_Call] = []
        # What was not believed, for metrics.
        self.drops: Final = Counter[Drop]()
        self._raft = Raft(
            journal=journal,
            machine=machine,
            send=self._send,
            now_ms=now_ms,
            dice=dice,
            timing=timing,
        )
        if journal.term == 0:
            # There was no leader ever, so nobody need wait for one to be heard.
            self._pre.leader_is_dead()
            rank = sorted(membership.voters).index(self._node_id)
            self._raft.postpone_election(rank * RANK_DELAY_MS)

    # ── The port ──────────────────────────────────────────────────────────────────────────────

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def leader(self) -> int | None:
        return None if self._halted is not None else self._raft.leader

    @property
    def halted(self) -> str | None:
        """Return why this member stopped, if it did."""
        return self._halted

    @property
    def has_backlog(self) -> bool:
        """Whether the next tick has something to apply: its owner then waits for nothing."""
        return self._halted is None and self._raft.has_backlog

    @property
    def rests_ms(self) -> int:
        """For how long a tick finds nothing to do, unless something comes; less than 1: it does.

        Deadlines of calls are not looked at: they may pass a little late.
        """
        return int(self._raft.due_s * 1000) - self._now_ms()

    def propose(self, command: bytes, timeout_ms: int, done: Done) -> None:
        if len(command) > COMMAND_BYTES_MAX:
            done(Refused(Why.TOO_LARGE))
        else:
            self._take(_Call(bytes(command), self._now_ms() + timeout_ms, done))

    def read(self, timeout_ms: int, done: Done) -> None:
        self._take(_Call(None, self._now_ms() + timeout_ms, done))

    def admit(self, voter: int, directory_id: str, timeout_ms: int, done: Done) -> None:
        """Have a voter that joins with a new data directory admitted, if this member leads."""
        self._take(_Call(Admit(voter, directory_id), self._now_ms() + timeout_ms, done))

    def status(self) -> QuorumStatus:
        membership, leader = self._journal.membership, self.leader
        if not may_vote(self._journal) and not self._pre.hears_leader(self._now_ms()):
            # Who joins stands for nothing, and so never notices by itself that nobody leads.
            leader = None
        elif leader is not None and self._joiners.lost_its_directory(leader):
            # It is back without what made it the leader, and without a majority nobody replaces it.
            leader = None
        return QuorumStatus(
            node_id=self._node_id,
            standing=membership.standing,
            role=Role.FOLLOWER if self._halted is not None else self._raft.role,
            term=self._raft.term,
            leader=leader,
            voters=tuple(sorted(membership.voters)),
            first_index=self._journal.first_index,
            last_index=self._journal.last_index,
            commit_index=self._raft.commit_index,
            applied_index=self._raft.applied_index,
            acknowledged=self._raft.acknowledged(),
            halted=self._halted,
            admitted=self._journal.admissions.newest,
            trouble=None if self._halted is not None else self._joiners.trouble(self._raft.leader),
            last_heard=self._last_heard,
            at_ms=self._awake_ms,
        )

    # ── Its owner's side ──────────────────────────────────────────────────────────────────────

    def tick(self) -> None:
        """Do what is due. Raises what halted it, once; later ticks raise `StorageError`."""
        with self._halting():
            self._note_sleep()
            self._expire()
            self._consider_standing()
            self._append_waiting()
            committed, led = self._raft.commit_index, self._raft.leads
            self._raft.tick()
            if led and not self._raft.leads:
                # Whoever led before this member has had no reason to speak since.
                self._last_heard = None
            self._grow()
            if self._raft.leads and self._raft.commit_index > committed:
                self._raft.send_entries()
            self._compact_if_due()
        self._answer()

    def _note_sleep(self) -> None:
        """Take note that it is at work; lead no more if it was not for long (M4)."""
        now_ms = self._now_ms()
        slept_ms, self._awake_ms = now_ms - self._awake_ms, now_ms
        is_alone = len(self._journal.membership.voters) == 1
        if slept_ms > self._timing.election_max_ms and self._raft.leads and not is_alone:
            self._raft.step_down(self._raft.term)
            # Whoever led before this member has had no reason to speak since.
            self._last_heard = None

    def halt(self, sentence: str) -> None:
        """Stop for good, and tell everybody who waits."""
        if self._halted is None:
            self._halted = sentence
            self._answer()

    def receive(self, envelope: Envelope, *, verified_as: int | None = None) -> Drop | None:
        """Take in an envelope, or return why not."""
        with self._halting():
            self._note_sleep()
            message = self._inbox.admit(envelope, self._view(), verified_as=verified_as)
            if isinstance(message, Drop):
                self.drops[message] += 1
                return message
            self._joiners.hear(envelope.sender, envelope.directory_id, message, self._now_ms())
            self._handle(envelope, message)
        return None

    def open_stream(self, peer: int) -> str:
        """A way to `peer` is there. Return the name that its `accept_stream` must be told."""
        stream = self._outbox.open(peer)
        self._raft.connected(peer)
        return stream

    def close_stream(self, peer: int) -> None:
        """The way to `peer` broke; what was under way is lost."""
        self._outbox.close(peer)
        self._raft.disconnected(peer)

    def accept_stream(self, peer: int, stream: str) -> bool:
        """A way from `peer` is there. False: it is one that was replaced already."""
        return self._inbox.open(peer, stream)

    def process_is_gone(self, peer: int) -> None:
        """The stream of `peer` broke and its address refused a probe. If it led, stand soon."""
        if self._halted is None and peer == self._raft.leader and not self._raft.leads:
            voters = sorted(set(self._journal.membership.voters) - {peer})
            self._pre.leader_is_dead()
            self._raft.postpone_election(voters.index(self._node_id) * RANK_DELAY_MS)

    # ── Calls ─────────────────────────────────────────────────────────────────────────────────

    def _take(self, call: _Call) -> None:
        if self._halted is not None:
            call.done(Refused(Why.HALTED))
        elif not self._raft.leads:
            call.done(Refused(Why.NOT_LEADER, self._raft.leader))
        elif len(self._waiting) + len(self._appended) >= CALLS_MAX:
            call.done(Refused(Why.BUSY, self._raft.leader))
        elif (why := self._why_not(call)) is not None:
            call.done(Refused(why, self._raft.leader))
        else:
            self._waiting.append(call)

    def _why_not(self, call: _Call) -> Why | None:
        return self._joiners.why_not(call.command) if isinstance(call.command, Admit) else None

    def _append_waiting(self) -> None:
        calls, self._waiting = self._waiting, []
        if not self._raft.leads:
            for call in calls:
                call.settle(Refused(Why.NOT_LEADER, self._raft.leader))
            self._appended += calls
            return
        # All reads that wait together share one entry.
        reads = [call for call in calls if call.command is None]
        if reads:
            self._append(reads)
        for call in calls:
            if call.command is None:
                continue
            # Once more: another admission may have been appended since it came.
            if (why := self._why_not(call)) is not None:
                call.settle(Refused(why, self._raft.leader))
                self._appended.append(call)
            else:
                self._append([call])
        if calls:
            self._raft.send_entries()

    def _append(self, calls: list[_Call]) -> None:
        def done(applied: Applied) -> None:
            for call in calls:
                if applied.is_applied:
                    call.settle(Committed(applied.index, applied.answer))
                elif applied.is_refused:
                    call.settle(Refused(Why.NOT_LEADER, self._raft.leader))
                else:
                    call.settle(Unknown(Why.REPLACED))

        self._appended += calls
        self._raft.append(calls[0].command, done)

    def _expire(self) -> None:
        now_ms = self._now_ms()
        for call in self._appended:
            if call.deadline_ms <= now_ms:
                call.settle(Unknown(Why.TIMED_OUT))

    def _answer(self) -> None:
        """Tell what is known by now, after the library has returned: a caller may call again."""
        if self._halted is not None:
            for call in self._waiting:
                call.settle(Refused(Why.HALTED))
            for call in self._appended:
                call.settle(Unknown(Why.HALTED))
            self._appended += self._waiting
            self._waiting = []
        settled = [call for call in self._appended if call.outcome is not None]
        if settled:
            self._appended = [call for call in self._appended if call.outcome is None]
        for call in settled:
            if call.outcome is not None:
                call.done(call.outcome)

    # ── Elections ─────────────────────────────────────────────────────────────────────────────

    def _consider_standing(self) -> None:
        raft, now_ms = self._raft, self._now_ms()
        if raft.leads:
            return
        if not may_vote(self._journal):
            raft.postpone_election(self._timing.election_max_ms)
        elif self._pre.has_won(now_ms):
            raft.adopt_term(self._pre.newest_term())
            self._pre.forget()
            raft.stand_now()
        elif raft.election_is_due:
            # Asking disturbs nobody, so it is repeated soon.
            beat = self._timing.heartbeat_ms
            raft.postpone_election(beat + self._dice.randrange(beat))
            question = self._pre.ask(raft.term, self._journal.last_index, self._journal.last_term)
            for peer in sorted(self._journal.membership.voters):
                if peer != self._node_id:
                    self._send(peer, question)

    def _handle(self, envelope: Envelope, message: Message) -> None:
        sender, now_ms = envelope.sender, self._now_ms()
        match message:
            case AskPreVote():
                if self._raft.leads and message.term > self._raft.term:
                    # It stood once and nobody heard of it. Now its term is ahead, so it ignores
                    # this leader and would stay behind for ever.
                    self._raft.step_down(message.term)
                answer = self._pre_vote(message, now_ms)
                if answer.granted and self._pre.yields_to(sender, message, self._rank()):
                    self._raft.hold_back(self._timing.election_min_ms // 2)
                self._send(sender, answer)
                return
            case PreVote():
                self._pre.take_answer(sender, message, now_ms)
                return
            case Append(term=term) | SnapshotPart(term=term) if term >= self._raft.term:
                self._pre.hear_leader(now_ms)
                self._last_heard = (sender, now_ms)
            case _:
                pass
        is_counted = self._joiners.is_counted(sender, envelope.directory_id, message)
        self._raft.receive(sender, message, is_counted=is_counted)

    def _pre_vote(self, asked: AskPreVote, now_ms: int) -> PreVote:
        granted = may_vote(self._journal) and self._pre.would_vote(
            asked,
            leads=self._raft.leads,
            last_index=self._journal.last_index,
            last_term=self._journal.last_term,
            now_ms=now_ms,
        )
        return PreVote(asked.term, self._raft.term, granted)

    def _rank(self) -> Rank:
        return Rank(self._journal.last_term, self._journal.last_index, -self._node_id)

    def _grow(self) -> None:
        """Become a voter, durably, if what was applied says so."""
        grown = next_step(self._journal, self._raft.applied_index)
        if grown is not None:
            self._journal.set_membership(grown)
            self._journal.sync()

    # ── The wire, the disk, the end ───────────────────────────────────────────────────────────

    def _view(self) -> View:
        is_voter = may_vote(self._journal)
        return View(
            standing=Standing.VOTER if is_voter else Standing.JOINING,
            term=self._raft.term,
            is_leader=self._raft.leads,
            last_index=self._journal.last_index,
            voters=self._journal.admissions.newest,
        )

    def _send(self, peer: int, message: Message) -> bool:
        if self._halted is not None:
            return False
        if needs_a_voter(message) and not may_vote(self._journal):
            if not isinstance(message, AppendAnswer):
                return False
            message = replace(message, success=False)
        self._journal.sync()
        envelope = self._outbox.wrap(peer, message, self._raft.term)
        return envelope is not None and self._link.send(envelope)

    def _compact_if_due(self) -> None:
        journal, limit = self._journal, self._compaction
        if len(journal) > limit.entries or journal.size_bytes > limit.size_bytes:
            index = self._raft.applied_index
            # Not for a few entries, while most of them are not applied yet.
            if 2 * (index - 1 - journal.first_index) >= len(journal):
                journal.compact(index, self._machine.snapshot())
                self._raft.snapshots.forget_outgoing()

    @contextmanager
    def _halting(self) -> Iterator[None]:
        if self._halted is not None:
            raise StorageError(f"This member of the quorum has stopped: {self._halted}")
        try:
            yield
        except BaseException as error:
            self.halt(f"{type(error).__name__}: {error}")
            raise
