"""One group: every transition of it.

A dance: whoever comes in stops the music, all find their places anew, one of them says who dances
with whom, and the music goes on.

    Empty ──join──▶ PreparingRebalance ──all have joined, or the time is up──▶ CompletingRebalance
      ▲                  ▲      │                                                     │
      └───nobody left────┼──────┘                the leader's assignment is committed │
                         └──join, leave, silence, new metadata────── Stable ◀─────────┘

    any ──deleted, or another node coordinates──▶ Dead

The rules are Kafka's for the classic protocol. Time is an argument, in milliseconds that only move
forward; what is to be done comes back as effects, in order.

G1  there is one generation at a time, and its number only grows
G2  whoever waits is answered exactly once
G3  a member has one id, an id one member, and a group.instance.id one member
G4  an assignment is told only after it was committed in the log
G5  a rebalance begins with a reason

Not here: offsets (`offsets.py`), reading and writing the log (`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ottla.node.groups.member import Member, new_member, restored
from ottla.node.groups.records import GroupValue
from ottla.node.groups.roster import Roster
from ottla.node.groups.words import (
    Answer,
    Assigned,
    Effect,
    Emptied,
    Join,
    JoinAnswer,
    Purpose,
    Reason,
    Rebalance,
    Replaced,
    State,
    Sync,
    SyncAnswer,
    Terms,
    Waiter,
)
from ottla.proto.errors import ErrorCode, ensure

# How long a new member may wait for its first generation: its connection may be gone by then.
NEW_MEMBER_MS: Final = 5 * 60 * 1000
# Of a generation number, as on the wire.
_GENERATION_MAX: Final = 2**31 - 1
# Who waits for static members that are away looks no more often, whatever they said of themselves.
_AWAY_MS: Final = 1_000


class Group(Roster):
    """A group of the classic protocol. Belongs to one thread; ends as Dead."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._join_until_ms: int | None = None
        self._sync_until_ms: int | None = None
        # While a group that was empty waits for more: the step, and what is left of the time.
        self._initial: tuple[int, int] | None = None
        self._has_newcomer = False
        # Assignments of this generation are on their way to the log.
        self._is_assigning = False

    @classmethod
    def restore(cls, group_id: str, value: GroupValue, now_ms: int) -> Group:
        """Return the group that the log knows."""
        group = cls(group_id)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol, group.leader = value.protocol, value.leader
        for one in value.members:
            group._add(restored(one, value.protocol, now_ms))
        if group.members:
            group.state = State.STABLE
            if group.leader not in group.members:
                group.leader = next(iter(group.members))
        return group

    # ── Asked from outside ────────────────────────────────────────────────────────────────────

    def join(self, wish: Join, waiter: Waiter, now_ms: int, terms: Terms) -> list[Effect]:
        refusal = self._join_refusal(wish, terms)
        if refusal is not None:
            self._tell_join(waiter, JoinAnswer(error=refusal, member_id=wish.member_id))
        elif not wish.member_id:
            self._join_newcomer(wish, waiter, now_ms, terms)
        elif self.pending.pop(wish.member_id, None) is not None:
            self._admit(wish.member_id, wish, waiter, now_ms, terms)
        else:
            self._join_again(wish, waiter, now_ms)
        return self._done()

    def sync(self, wish: Sync, waiter: Waiter, now_ms: int) -> list[Effect]:
        refusal = self._sync_refusal(wish)
        if refusal is not None:
            self._effects.append(Answer(waiter, SyncAnswer(error=refusal)))
            return self._done()
        member = self.members[wish.member_id]
        self._unsynced.discard(member.member_id)
        self._renew(member, now_ms)
        if self.state is State.STABLE:
            self._tell_sync(waiter, member.assignment)
            return self._done()
        # Whoever asks twice waits once; the connection before is gone.
        self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.syncing = waiter
        if member.member_id == self.leader and not self._is_assigning:
            # The first word of the leader counts: a second one would only be in the log.
            self._is_assigning = True
            # Whom the leader forgot reads nothing, and whom nobody knows is left out.
            assignments = {one: wish.assignments.get(one, b"") for one in self.members}
            self._write(Assigned(self.generation, assignments), assignments)
        return self._done()

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> ErrorCode:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        refusal = self._member_refusal(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        self._renew(self.members[member_id], now_ms)
        is_preparing = self.state is State.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(
        self, leavers: Iterable[tuple[str, str | None, str]], now_ms: int
    ) -> tuple[list[ErrorCode], list[Effect]]:
        """Let members go, each by its id, its group.instance.id or both; with a reason of theirs.

        Returns one code for each.
        """
        codes, gone = list[ErrorCode](), list[str]()
        reason = Reason.LEFT
        for member_id, instance_id, why in leavers:
            code, member = self._leaver(member_id, instance_id)
            codes.append(code)
            if member is not None:
                self._remove(member)
                gone.append(f"{member.member_id} ({why})" if why else member.member_id)
                if not member_id:
                    reason = Reason.REMOVED
        if gone:
            self._after_removal(reason, f"left: {', '.join(gone)}", now_ms)
        self._maybe_complete_join(now_ms)
        return codes, self._done()

    def commit_refusal(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        in_transaction: bool = False,
    ) -> ErrorCode:
        """Return whether somebody may commit offsets for this group now; NONE: yes.

        In a transaction who names no member may, since old clients name none; and a rebalance stops
        nobody.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None:
            # Only its members may, while there are any.
            return ErrorCode.NONE if in_transaction else ErrorCode.UNKNOWN_MEMBER_ID
        refusal = self._member_refusal(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is State.COMPLETING and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._renew(self.members[member_id], now_ms)
        return ErrorCode.NONE

    def written(self, purpose: Purpose, error: ErrorCode | None, now_ms: int) -> list[Effect]:
        """Take note that what was to be written is committed, or why it is not."""
        match purpose:
            case Assigned(generation, assignments):
                if self.state is State.COMPLETING and generation == self.generation:
                    self._assigned(assignments, error, now_ms)
            case Replaced():
                self._replaced(purpose, error, now_ms)
            case Emptied():
                pass
        return self._done()

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what time alone makes due."""
        for member_id in [one for one, until_ms in self.pending.items() if until_ms <= now_ms]:
            del self.pending[member_id]
        self._expire_sessions(now_ms)
        if self._sync_until_ms is not None and self._sync_until_ms <= now_ms:
            self._expire_syncs(now_ms)
        if self._join_until_ms is not None and self._join_until_ms <= now_ms:
            self._join_time_is_up(now_ms)
        self._maybe_complete_join(now_ms)
        own = (one for one in (self._join_until_ms, self._sync_until_ms) if one is not None)
        self.next_deadline_ms = min((*self._deadlines(), *own), default=None)
        return self._done()

    def forgive(self, refused_ms: int) -> None:
        """Hold nobody's silence until `refused_ms` against him: up to then he was not listened to.

        A later deadline stays.
        """
        for member in self.members.values():
            self._set_deadline(member, max(member.deadline_ms, refused_ms + member.session_ms))
        least_ms = refused_ms + self._rebalance_ms()
        if self._join_until_ms is not None and self._initial is None:
            self._join_until_ms = max(self._join_until_ms, least_ms)
        if self._sync_until_ms is not None:
            self._sync_until_ms = max(self._sync_until_ms, least_ms)

    def close(self, code: ErrorCode) -> list[Effect]:
        """Be Dead: everybody who waits is told why."""
        for member in self.members.values():
            self._fail(member, code)
        self.members.clear()
        self.static_ids.clear()
        self.pending.clear()
        self._speakers.clear()
        self._unsynced.clear()
        self._join_until_ms = self._sync_until_ms = self._initial = None
        self.state, self.next_deadline_ms = State.DEAD, None
        return self._done()

    # ── Joining ───────────────────────────────────────────────────────────────────────────────

    def _join_refusal(self, wish: Join, terms: Terms) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._speaks(wish):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._is_full(wish, terms.size_max):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not wish.member_id:
            return None
        if wish.member_id in self.pending and wish.instance_id is None:
            # Ids that come back are those of dynamic members: static ones need not come twice.
            return None
        return self._member_refusal(wish.member_id, wish.instance_id)

    def _join_newcomer(self, wish: Join, waiter: Waiter, now_ms: int, terms: Terms) -> None:
        member_id = f"{wish.instance_id or wish.client_id}-{wish.fresh}"
        ensure(member_id not in self.members, "a new id is new", member_id=member_id)
        if wish.instance_id is not None:
            if wish.instance_id in self.static_ids:
                self._join_static_again(member_id, wish, waiter, now_ms)
                return
        elif wish.is_id_needed:
            self.pending[member_id] = now_ms + wish.session_ms
            self._expect(now_ms + wish.session_ms)
            code = ErrorCode.MEMBER_ID_REQUIRED
            self._tell_join(waiter, JoinAnswer(error=code, member_id=member_id))
            return
        self._admit(member_id, wish, waiter, now_ms, terms)

    def _admit(self, member_id: str, wish: Join, waiter: Waiter, now_ms: int, terms: Terms) -> None:
        if not self.members:
            self.leader, self.protocol_type = member_id, wish.protocol_type
        member = new_member(member_id, wish, now_ms + NEW_MEMBER_MS)
        self._add(member)
        member.joining = waiter
        self._joining.add(member.member_id)
        self._has_newcomer = True
        detail = f"{member_id} joined" + (f" ({wish.reason})" if wish.reason else "")
        self._rebalance(Reason.JOINED, detail, now_ms, terms.initial_delay_ms)

    def _join_again(self, wish: Join, waiter: Waiter, now_ms: int) -> None:
        member = self.members[wish.member_id]
        is_leader = member.member_id == self.leader
        is_same = member.says_the_same(wish)
        if self.state is State.COMPLETING and is_same:
            # It did not get the answer before.
            self._renew(member, now_ms)
            self._tell_join(waiter, self._generation_for(member))
            return
        if self.state is State.STABLE and is_same and not is_leader:
            self._renew(member, now_ms)
            self._tell_join(waiter, self._generation_for(member))
            return
        # Whoever asks twice waits once; the connection before is gone.
        self._fail_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._update(member, wish)
        member.joining = waiter
        self._joining.add(member.member_id)
        reason = Reason.LEADER if is_leader and is_same else Reason.CHANGED
        detail = f"{member.member_id} joined again" + (f" ({wish.reason})" if wish.reason else "")
        self._rebalance(reason, detail, now_ms)

    def _join_static_again(self, member_id: str, wish: Join, waiter: Waiter, now_ms: int) -> None:
        ensure(wish.instance_id is not None, "a static member has a name")
        old = self.members[self.static_ids[wish.instance_id or ""]]
        was_leader = old.member_id == self.leader
        new = self._replace(old, new_member(member_id, wish, now_ms + wish.session_ms))
        new.assignment, new.is_new = old.assignment, False
        self._renew(new, now_ms)
        if self.state is State.STABLE and self._vote() == self.protocol:
            # It gets what it had, and nobody else notices.
            new.replacing = waiter
            purpose = Replaced(member_id, old.member_id, was_leader, wish.may_skip)
            self._write(purpose, {one.member_id: one.assignment for one in self.members.values()})
            return
        new.joining = waiter
        self._joining.add(member_id)
        detail = f"{wish.instance_id} came back as {member_id}"
        self._rebalance(Reason.STATIC, detail, now_ms)

    def _replaced(self, what: Replaced, error: ErrorCode | None, now_ms: int) -> None:
        member = self.members.get(what.member_id)
        if member is None or member.replacing is None:
            # It has left, or was replaced itself, and was told so.
            return
        waiter, member.replacing = member.replacing, None
        if error is not None:
            # It may come again, under yet another id.
            self._tell_join(waiter, JoinAnswer(error=error, member_id=what.member_id))
            return
        self._renew(member, now_ms)
        told = self._generation_for(member)
        if what.was_leader and what.may_skip:
            told = replace(told, skip_assignment=True)
        elif what.was_leader:
            # It must not assign anew: so it is told that the one it was still leads.
            told = replace(told, leader=what.old_id, members=())
        self._tell_join(waiter, told)

    # ── Rebalancing ───────────────────────────────────────────────────────────────────────────

    def _rebalance(
        self, reason: Reason, detail: str, now_ms: int, initial_delay_ms: int = 0
    ) -> None:
        if self.state is State.PREPARING:
            self._maybe_complete_join(now_ms)
            return
        ensure(self.state is not State.DEAD, "the dead do not rebalance", group=self.group_id)
        self._effects.append(Rebalance(reason, detail, self.generation))
        for member in self.members.values():
            self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._unsynced.clear()
        self._sync_until_ms, self._is_assigning = None, False
        before, self.state = self.state, State.PREPARING
        wait_ms = self._rebalance_ms()
        if before is State.EMPTY:
            step_ms = min(initial_delay_ms, wait_ms)
            self._initial = (initial_delay_ms, max(wait_ms - initial_delay_ms, 0))
            self._has_newcomer = False
            self._join_until_ms = now_ms + step_ms
        else:
            self._initial = None
            self._join_until_ms = now_ms + wait_ms
        self._expect(self._join_until_ms)
        self._maybe_complete_join(now_ms)

    def _maybe_complete_join(self, now_ms: int) -> None:
        """Go on as soon as everybody is here; but a new group waits for more to come."""
        is_waited_for = len(self._joining) < len(self.members) or self.pending
        if self.state is State.PREPARING and self._initial is None and not is_waited_for:
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self._initial is not None:
            step_ms, left_ms = self._initial
            if self._has_newcomer and left_ms > 0:
                self._has_newcomer = False
                self._initial = (step_ms, max(left_ms - step_ms, 0))
                self._join_until_ms = now_ms + min(step_ms, left_ms)
                return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        for member in list(self.members.values()):
            # A static member keeps its place until its session ends.
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        if self.members and not self._elect():
            # Only static members that are away: somebody has to lead.
            self._initial = None
            self._join_until_ms = now_ms + max(self._rebalance_ms(), _AWAY_MS)
            self._expect(self._join_until_ms)
            return
        # As in Kafka, where nobody has ever seen it happen.
        self.generation = 0 if self.generation >= _GENERATION_MAX else self.generation + 1
        self._join_until_ms = self._initial = None
        if not self.members:
            self.state, self.protocol, self.leader = State.EMPTY, None, None
            self._write(Emptied(), {})
            return
        self.protocol, self.state = self._vote(), State.COMPLETING
        self._unsynced.update(self.members)
        self._sync_until_ms = now_ms + self._rebalance_ms()
        self._expect(self._sync_until_ms)
        for member in self.members.values():
            self._renew(member, now_ms)
            if member.joining is not None:
                waiter, member.joining, member.is_new = member.joining, None, False
                self._joining.discard(member.member_id)
                self._tell_join(waiter, self._generation_for(member))

    def _elect(self) -> bool:
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is None or leader.joining is None:
            here = (one for one in self.members.values() if one.joining is not None)
            leader = next(here, None)
            if leader is None:
                return False
            self.leader = leader.member_id
        return True

    def _assigned(
        self, assignments: Mapping[str, bytes], error: ErrorCode | None, now_ms: int
    ) -> None:
        if error is not None:
            for member in self.members.values():
                self._fail_sync(member, error)
            self._rebalance(Reason.NOT_WRITTEN, f"not written: {error.name}", now_ms)
            return
        self.state, self._is_assigning = State.STABLE, False
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                waiter, member.syncing = member.syncing, None
                self._renew(member, now_ms)
                self._tell_sync(waiter, member.assignment)

    def _sync_refusal(self, wish: Sync) -> ErrorCode | None:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        refusal = self._member_refusal(wish.member_id, wish.instance_id)
        if refusal is not None:
            return refusal
        if wish.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        told = (wish.protocol_type, self.protocol_type), (wish.protocol, self.protocol)
        if any(theirs is not None and theirs != ours for theirs, ours in told):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else None

    # ── Leaving ───────────────────────────────────────────────────────────────────────────────

    def _leaver(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, Member | None]:
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if not member_id and instance_id is not None:
            # An administrator removes a static member, whatever its id.
            member_id = self.static_ids.get(instance_id, "")
        if instance_id is None and self.pending.pop(member_id, None) is not None:
            return ErrorCode.NONE, None
        refusal = self._member_refusal(member_id, instance_id)
        if refusal is not None:
            return refusal, None
        return ErrorCode.NONE, self.members[member_id]

    def _after_removal(self, reason: Reason, detail: str, now_ms: int) -> None:
        if self.state in (State.STABLE, State.COMPLETING):
            self._rebalance(reason, detail, now_ms)
        else:
            self._maybe_complete_join(now_ms)

    def _expire_sessions(self, now_ms: int) -> None:
        silent = list[str]()
        for member in list(self.members.values()):
            if member.deadline_ms > now_ms:
                continue
            if member.is_waiting and not member.is_new:
                # It waits for us, not we for it.
                self._renew(member, now_ms)
                continue
            silent.append(member.member_id)
            self._remove(member)
        if silent:
            self._after_removal(Reason.SESSION, f"not heard: {', '.join(silent)}", now_ms)

    def _expire_syncs(self, now_ms: int) -> None:
        self._sync_until_ms = None
        late = [self.members[one] for one in self._unsynced if one in self.members]
        self._unsynced.clear()
        if late and self.state in (State.COMPLETING, State.STABLE):
            for member in late:
                self._remove(member)
            names = ", ".join(sorted(one.member_id for one in late))
            self._after_removal(Reason.NOT_SYNCED, f"did not sync: {names}", now_ms)
