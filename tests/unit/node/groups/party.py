"""A group and the people in it: what they ask, what they were told, and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.node.groups.group import Group
from ottla.node.groups.records import GroupValue
from ottla.node.groups.words import (
    Answer,
    Effect,
    Join,
    JoinAnswer,
    Rebalance,
    State,
    Sync,
    SyncAnswer,
    Terms,
    WriteGroup,
)
from ottla.proto.errors import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
TERMS = Terms(initial_delay_ms=0, size_max=2**31 - 1)
RANGE = (("range", b"all"),)


class Party:
    """Puts questions to a group, carries out what it wishes, and remembers every answer."""

    def __init__(self, terms: Terms = TERMS) -> None:
        self.group = Group("party")
        self.terms = terms
        self.now_ms = 1_000
        # By ticket: a number for each question that may wait.
        self.answers: dict[int, JoinAnswer | SyncAnswer] = {}
        self.asked = 0
        self.reasons: list[str] = []
        self.written: list[GroupValue] = []
        # What is written and not committed yet; None: everything is committed at once.
        self.unwritten: list[WriteGroup] | None = None
        self._ids = 0

    def join(self, member_id: str = "", *, is_id_needed: bool = False, **wish: Any) -> int:
        self.asked += 1
        self._ids += 1
        ticket = self.asked
        asked = Join(
            member_id=member_id,
            client_id=wish.pop("client_id", "c"),
            session_ms=wish.pop("session_ms", SESSION_MS),
            rebalance_ms=wish.pop("rebalance_ms", REBALANCE_MS),
            protocol_type=wish.pop("protocol_type", "consumer"),
            protocols=wish.pop("protocols", RANGE),
            is_id_needed=is_id_needed,
            fresh=str(self._ids),
            **wish,
        )
        self.carry_out(self.group.join(asked, ticket, self.now_ms, self.terms))
        return ticket

    def sync(
        self, member_id: str, assignments: Mapping[str, bytes] | None = None, **wish: Any
    ) -> int:
        self.asked += 1
        ticket = self.asked
        asked = Sync(
            member_id=member_id,
            generation=wish.pop("generation", self.group.generation),
            assignments=assignments or {},
            **wish,
        )
        self.carry_out(self.group.sync(asked, ticket, self.now_ms))
        return ticket

    def beat(self, member_id: str, generation: int | None = None) -> ErrorCode:
        known = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, None, known, self.now_ms)

    def leave(self, *leavers: str | tuple[str, str | None, str]) -> list[ErrorCode]:
        named = [(one, None, "") if isinstance(one, str) else one for one in leavers]
        codes, effects = self.group.leave(named, self.now_ms)
        self.carry_out(effects)
        return codes

    def wait(self, ms: int) -> None:
        """Let time pass, as a coordinator does: `tick` whenever something is due."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = self.group.next_deadline_ms
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Answer(ticket, answer):
                    assert isinstance(ticket, int)
                    assert ticket not in self.answers, "answered twice"
                    self.answers[ticket] = answer
                case Rebalance(reason):
                    self.reasons.append(reason.value)
                case WriteGroup(value):
                    self.written.append(value)
                    if self.unwritten is None:
                        self.commit(effect)
                    else:
                        self.unwritten.append(effect)

    def commit(self, effect: WriteGroup, error: ErrorCode | None = None) -> None:
        self.carry_out(self.group.written(effect.purpose, error, self.now_ms))

    # ── What came of it ───────────────────────────────────────────────────────────────────────

    def joined(self, ticket: int) -> JoinAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, ticket: int) -> SyncAnswer:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncAnswer)
        return answer

    def waits(self, ticket: int) -> bool:
        return ticket not in self.answers

    def gather(self, count: int, **wish: Any) -> list[str]:
        """Return the ids of so many members of a stable group; the first one leads."""
        first = self.join(**wish)
        self.wait(1)
        ids = [self.joined(first).member_id]
        while len(ids) < count:
            ticket = self.join(**wish)
            for one in ids:
                self.join(one, **wish)
            ids.append(self.joined(ticket).member_id)
        self.share(ids)
        return ids

    def share(self, ids: Iterable[str]) -> None:
        """Have the leader assign, and everybody learn of it."""
        given = {one: one.encode() for one in ids}
        for one in given:
            self.sync(one, given if one == self.group.leader else None)
        assert self.group.state is State.STABLE
