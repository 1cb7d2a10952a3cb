"""The members of a group, who of them waits for what, and how they are told.

Everything here keeps books; what happens next is decided in `group.py`, and nowhere else.

Not here: transitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from ottla.node.groups.member import Member
from ottla.node.groups.records import GroupValue
from ottla.node.groups.words import (
    Answer,
    Effect,
    Join,
    JoinAnswer,
    Purpose,
    State,
    SyncAnswer,
    Waiter,
    WriteGroup,
)
from ottla.proto.errors import ErrorCode, ensure


class Roster:
    """The books of one group: members by id and by name, protocols, deadlines, effects."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: Final[dict[str, Member]] = {}
        # By group.instance.id.
        self.static_ids: Final[dict[str, str]] = {}
        # Ids that were given out, until somebody joins with them: when they expire.
        self.pending: Final[dict[str, int]] = {}
        # When `tick` has something to do, at the earliest; None: never.
        self.next_deadline_ms: int | None = None
        # How many members can speak each protocol.
        self._speakers: Final[Counter[str]] = Counter()
        # Who waits for the next generation; who has not asked for its assignment in this one.
        self._joining: Final[set[str]] = set()
        self._unsynced: Final[set[str]] = set()
        self._effects: list[Effect] = []

    # ── Looking ───────────────────────────────────────────────────────────────────────────────

    def _speaks(self, wish: Join) -> bool:
        """Whether the group still has a protocol in common if this one is a member."""
        if not wish.protocol_type or not wish.protocols:
            return False
        if not self.members:
            return True
        count = len(self.members)
        return wish.protocol_type == self.protocol_type and any(
            self._speakers[name] == count for name, _ in wish.protocols
        )

    def _is_full(self, wish: Join, size_max: int) -> bool:
        if wish.member_id in self.members or wish.instance_id in self.static_ids:
            return False
        others = len(self.pending) - (wish.member_id in self.pending)
        return len(self.members) + others >= size_max

    def _member_refusal(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return None if known == member_id else ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _vote(self) -> str | None:
        """Return the protocol that most like best, of those that all can speak."""
        count = len(self.members)
        votes = Counter[str]()
        for member in self.members.values():
            liked = (one for one in member.protocol_names if self._speakers[one] == count)
            votes.update([name for name in [next(liked, None)] if name is not None])
        return max(votes, key=lambda name: votes[name], default=None)

    # ── Members ───────────────────────────────────────────────────────────────────────────────

    def _add(self, member: Member) -> None:
        ensure(member.member_id not in self.members, "one member for an id", id=member.member_id)
        self.members[member.member_id] = member
        self._speakers.update(set(member.protocol_names))
        if member.instance_id is not None:
            ensure(member.instance_id not in self.static_ids, "one member for a name")
            self.static_ids[member.instance_id] = member.member_id
        self._expect(member.deadline_ms)

    def _remove(self, member: Member, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        self._fail(member, code)
        del self.members[member.member_id]
        self._unspeak(member)
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _replace(self, old: Member, new: Member) -> Member:
        """Let a static member have another id; whoever had the old one is fenced."""
        was_leader = self.leader == old.member_id
        is_unsynced = old.member_id in self._unsynced
        self._remove(old, ErrorCode.FENCED_INSTANCE_ID)
        self._add(new)
        if was_leader:
            self.leader = new.member_id
        if is_unsynced:
            self._unsynced.add(new.member_id)
        return new

    def _update(self, member: Member, wish: Join) -> None:
        self._unspeak(member)
        member.protocols = wish.protocols
        self._speakers.update(set(member.protocol_names))
        member.session_ms, member.rebalance_ms = wish.session_ms, wish.rebalance_ms
        member.client_id, member.client_host = wish.client_id, wish.client_host

    def _unspeak(self, member: Member) -> None:
        """Take its protocols back; what nobody speaks is forgotten."""
        for name in set(member.protocol_names):
            self._speakers[name] -= 1
            if self._speakers[name] <= 0:
                del self._speakers[name]

    def _renew(self, member: Member, now_ms: int) -> None:
        self._set_deadline(member, now_ms + member.session_ms)

    def _set_deadline(self, member: Member, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        self._expect(deadline_ms)

    def _expect(self, deadline_ms: int) -> None:
        """Have `tick` called by then. A deadline that has moved on is found out there."""
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms

    def _deadlines(self) -> Iterator[int]:
        yield from self.pending.values()
        yield from (one.deadline_ms for one in self.members.values())

    def _rebalance_ms(self) -> int:
        return max((one.rebalance_ms for one in self.members.values()), default=0)

    # ── Telling ───────────────────────────────────────────────────────────────────────────────

    def _done(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _write(self, purpose: Purpose, assignments: Mapping[str, bytes]) -> None:
        value = GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            # The time of day is known by whoever writes it.
            since_ms=-1,
            members=tuple(
                one.value(self.protocol, assignments.get(one.member_id, b""))
                for one in self.members.values()
            ),
        )
        self._effects.append(WriteGroup(value, purpose))

    def _generation_for(self, member: Member) -> JoinAnswer:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                (one.member_id, one.instance_id, one.metadata_for(self.protocol))
                for one in self.members.values()
            )
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            members=members,
        )

    def _tell_join(self, waiter: Waiter, answer: JoinAnswer) -> None:
        self._effects.append(Answer(waiter, answer))

    def _tell_sync(self, waiter: Waiter, assignment: bytes) -> None:
        answer = SyncAnswer(
            protocol_type=self.protocol_type, protocol=self.protocol, assignment=assignment
        )
        self._effects.append(Answer(waiter, answer))

    def _fail(self, member: Member, code: ErrorCode) -> None:
        self._fail_join(member, code)
        self._fail_sync(member, code)
        if member.replacing is not None:
            waiter, member.replacing = member.replacing, None
            self._tell_join(waiter, JoinAnswer(error=code, member_id=member.member_id))

    def _fail_join(self, member: Member, code: ErrorCode) -> None:
        self._joining.discard(member.member_id)
        if member.joining is not None:
            waiter, member.joining = member.joining, None
            self._tell_join(waiter, JoinAnswer(error=code, member_id=member.member_id))

    def _fail_sync(self, member: Member, code: ErrorCode) -> None:
        if member.syncing is not None:
            waiter, member.syncing = member.syncing, None
            self._effects.append(Answer(waiter, SyncAnswer(error=code)))
