"""Whether to stand for election: a member asks before it makes a term of its own.

The library stands as soon as its patience ends, and every candidacy deposes whoever leads. So a
member first asks the others whether they would vote for it. Nobody's term changes by asking, and
whoever still hears from a leader says no: a member with a bad link disturbs nobody.

Asking is done here and answered here; nothing is ever held back from the library but its own
candidacy. To drop the requests of a candidate instead would strand it: once its term is ahead, it
ignores the leader.

Two that ask at the same time would say yes to each other, stand both, and split the vote. So the
lower of the two lets the other one go first.

Not here: the election itself, which is the library's.

V1  nobody stands without a yes from a majority, itself included, that is fresh and of its term
V2  a yes means: the sender hears no leader, and the log of the asker is as new as its own
V3  whoever asks from a term ahead of the leader's makes it step down, once: it could not follow it
V4  a majority's yes tells the newest term among them, so that the candidacy is above them all
V5  who has said yes to one of a higher rank lets it go first: once in a term for each, so that one
    whose questions arrive and whose candidacy does not, keeps nobody from standing
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.controller.quorum.messages import AskPreVote, PreVote


@dataclass(slots=True)
class _Yes:
    """One member's yes: when it came, and that member's own term."""

    at_ms: int
    term: int


class Rank(NamedTuple):
    """Who goes first: the newer log, and among equals the lower id."""

    last_term: int
    last_index: int
    minus_node_id: int


class PreElection:
    """What one member knows about its chances and about its leader."""

    def __init__(self, *, voters: int, patience_ms: int, now_ms: int) -> None:
        self._voters = voters
        self._patience_ms = patience_ms
        self._asked_term: int | None = None
        self._yes: dict[int, _Yes] = {}
        # A member that has just started may not have heard its leader yet. It waits.
        self._heard_ms = now_ms
        self._dead_leader = False
        # In which terms of theirs others were let go first (V5).
        self._yielded: dict[int, int] = {}

    def hear_leader(self, now_ms: int) -> None:
        """A leader is there, so nobody needs to stand."""
        self._heard_ms = now_ms
        self._dead_leader = False
        self.forget()

    def hears_leader(self, now_ms: int) -> bool:
        """Whether a leader was heard a moment ago."""
        return not self._dead_leader and now_ms - self._heard_ms < self._patience_ms

    def leader_is_dead(self) -> None:
        """The leader's stream broke and its address refused a probe: its process is gone."""
        self._dead_leader = True

    def forget(self) -> None:
        """Ask anew, next time."""
        self._asked_term = None
        self._yes = {}

    def ask(self, term: int, last_index: int, last_term: int) -> AskPreVote:
        if self._asked_term != term:
            self.forget()
            self._asked_term = term
        return AskPreVote(term, last_index, last_term)

    def take_answer(self, voter: int, answer: PreVote, now_ms: int) -> None:
        if answer.asked_term == self._asked_term and answer.granted:
            self._yes[voter] = _Yes(now_ms, answer.term)

    def yields_to(self, asker: int, asked: AskPreVote, mine: Rank) -> bool:
        """Tell whether to let an asker, to whom this member says yes, go first (V5)."""
        theirs = Rank(asked.last_term, asked.last_index, -asker)
        if theirs < mine or self._yielded.get(asker, -1) >= asked.term:
            return False
        self._yielded[asker] = asked.term
        self.forget()
        return True

    def has_won(self, now_ms: int) -> bool:
        if self._voters == 1:
            return True
        if self._asked_term is None:
            return False
        fresh = [yes for yes in self._yes.values() if now_ms - yes.at_ms <= self._patience_ms]
        return 2 * (len(fresh) + 1) > self._voters

    def newest_term(self) -> int:
        """Return the highest term of those who said yes (V4)."""
        return max((yes.term for yes in self._yes.values()), default=0)

    def would_vote(
        self, asked: AskPreVote, *, leads: bool, last_index: int, last_term: int, now_ms: int
    ) -> bool:
        if leads or self.hears_leader(now_ms):
            return False
        return (asked.last_term, asked.last_index) >= (last_term, last_index)
