"""Rows 21 and 25 to 27: what groups have committed, read and owned.

A commit is an event `commit` with the group as its value; reading what is committed is `committed`.
Whoever is given a partition begins where the group has committed, so commits of a group go up,
whoever makes them; unless a reader was sent back, by `seek` or `assign`. And whatever was shown to
be committed stays so.

A commit of which nobody knows what became of it may still be on its way, in the buffers of a node
that hangs, and be taken after a later one of the same member:

    1. a member commits 50 at a node that hangs, waits in vain, and connects anew
    2. it commits 60, and the node, awake, takes that first
    3. the node takes the 50 that was waiting

So going back exactly to what an unknown commit has asked for before is counted, and not broken.

Not here: whether records are in order (`order.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.evidence import Verdict
from ottla.chaos.history import Event, Kind, Operation, Place

COMMIT: Final = "commit"
_LOOK: Final = "committed"
_SENT_BACK: Final = frozenset({"assign", "seek"})
# A group and a partition.
_Share = tuple[str | None, Place]


def judge_groups(case: Case) -> Iterator[Verdict]:
    claims = [*_claims(case.operations)]
    if any(one.is_sure for one in claims):
        yield from _Offsets(case, claims).verdicts()
        yield _skipped(case)
    else:
        why = "no group has committed anything"
        yield from (not_judged(row, why) for row in (21, 25, 26))
    yield _owners(case)


class _Claim(NamedTuple):
    """One partition of a commit, or of a look at what is committed."""

    group: str | None
    place: Place
    offset: int
    begin: Event
    # None: nobody lived to tell.
    end: Event | None

    @property
    def share(self) -> _Share:
        return self.group, self.place

    @property
    def is_sure(self) -> bool:
        return self.end is not None and self.end.kind is Kind.OK

    @property
    def may_come_late(self) -> bool:
        is_over = self.end is not None and self.end.kind is not Kind.UNKNOWN
        return self.begin.function == COMMIT and not is_over


def _claims(operations: list[Operation]) -> Iterator[_Claim]:
    for begin, end in ((one.begin, one.end) for one in operations):
        if begin.function in (COMMIT, _LOOK):
            for place, offset in _offsets_of(begin if end is None else end):
                yield _Claim(begin.value, place, offset, begin, end)


def _offsets_of(event: Event) -> tuple[tuple[Place, int], ...]:
    if event.offsets or event.place is None or event.offset is None:
        return event.offsets
    return ((event.place, event.offset),)


# ── 21 and 25: how far a group has come ───────────────────────────────────────────────────────


class _Offsets:
    """Follows what every group has surely committed, in the order in which that was heard."""

    def __init__(self, case: Case, claims: list[_Claim]) -> None:
        self._ends: Final = {
            place: one.read.high_watermark for place, one in case.last_finals().items()
        }
        self._sent_back: Final = [one for one in case.evidence.events if one.function in _SENT_BACK]
        self._claims: Final = claims
        # Commits that nobody knows the outcome of, by what they ask for.
        self._late: Final = defaultdict[tuple[_Share, int], list[Event]](list)
        for one in claims:
            if one.may_come_late:
                self._late[one.share, one.offset].append(one.begin)
        # The highest offset that is surely committed, and what has ended when that was heard.
        self._highest: Final = dict[_Share, tuple[int, Event]]()
        self._back, self._lost, self._allowed = Findings(), Findings(), Findings()

        for look in case.operations:
            begin = look.begin
            if begin.function == _LOOK and begin.phase == "final" and look.kind is not Kind.OK:
                told = f"what {begin.value} has committed could not be read at the end"
                self._lost.add(told, look.index)

    def verdicts(self) -> Iterator[Verdict]:
        sure = [(one, one.end) for one in self._claims if one.is_sure and one.end is not None]
        for claim, end in sorted(sure, key=lambda pair: pair[1].t_ns):
            if claim.begin.function == COMMIT:
                self._committed(claim, end)
            else:
                self._found(claim, end)
        yield ruled(21, self._back)
        yield ruled(25, self._lost, self._allowed)

    def _committed(self, claim: _Claim, end: Event) -> None:
        before = self._before(claim)
        if claim.offset > self._ends.get(claim.place, claim.offset):
            ends = self._ends[claim.place]
            told = f"{claim.group} committed {claim.offset} in {claim.place}, which ends at {ends}"
            self._back.add(told, end.index)
        if before is None:
            self._raise(claim, end)
        elif self._was_sent_back(claim, before[1]):
            self._highest[claim.share] = (claim.offset, end)
        else:
            self._back.add(_told(claim, before[0]), before[1].index, end.index)

    def _found(self, claim: _Claim, end: Event) -> None:
        before = self._before(claim)
        if before is None:
            self._raise(claim, end)
            return
        late = self._late.get((claim.share, claim.offset), ())
        if any(one.t_ns < before[1].t_ns for one in late):
            self._allowed.add(_told(claim, before[0]), before[1].index, end.index)
            self._highest[claim.share] = (claim.offset, end)
        else:
            self._lost.add(_told(claim, before[0]), before[1].index, end.index)

    def _before(self, claim: _Claim) -> tuple[int, Event] | None:
        """Return what was surely committed before this began, if that is more."""
        known = self._highest.get(claim.share)
        if known is None or claim.offset >= known[0] or known[1].t_ns >= claim.begin.t_ns:
            return None
        return known

    def _raise(self, claim: _Claim, end: Event) -> None:
        known = self._highest.get(claim.share)
        if known is None or claim.offset >= known[0]:
            self._highest[claim.share] = (claim.offset, end)

    def _was_sent_back(self, claim: _Claim, committed: Event) -> bool:
        return any(
            one.process == claim.begin.process and committed.index < one.index < claim.begin.index
            for one in self._sent_back
        )


def _told(claim: _Claim, before: int) -> str:
    return f"the offset of {claim.group} in {claim.place} was {before}, and later {claim.offset}"


# ── 26: what a group has passed over ──────────────────────────────────────────────────────────


def _skipped(case: Case) -> Verdict:
    """Row 26: below what is committed, everything was shown to somebody of the group before."""
    found = Findings()
    members = {
        one.process: one.value for one in case.evidence.events if one.function == "subscribe"
    }
    outcomes = {one.index: one.kind for one in case.operations}
    shown = defaultdict[_Share, set[int]](set)
    known = dict[Place, list[int]]()
    # How far each was looked at.
    passed = defaultdict[_Share, int](int)
    for event in case.evidence.events:
        if event.process not in members:
            continue
        if event.function == "poll":
            for place, offset, _, _ in event.shown:
                shown[members[event.process], place].add(offset)
        elif event.function == COMMIT and outcomes.get(event.index) is Kind.OK:
            for place, end in _offsets_of(event):
                share = event.value, place
                if place not in known:
                    known[place] = [*case.known_records(place)]
                for offset in _missing(case, known[place], place, shown[share], passed[share], end):
                    told = f"{event.value} committed {end} in {place}, and was never shown {offset}"
                    found.add(told, event.index)
                passed[share] = max(passed[share], end)
    return ruled(26, found)


def _missing(
    case: Case, known: list[int], place: Place, shown: set[int], begin: int, end: int
) -> Iterator[int]:
    """Yield the known offsets from `begin` to `end` (exclusive) that were not shown."""
    for offset in known[bisect_left(known, begin) : bisect_left(known, end)]:
        is_there = not case.may_be_gone(place, offset, case.known_records(place)[offset])
        if offset not in shown and is_there:
            yield offset


# ── 27: who reads what ────────────────────────────────────────────────────────────────────────


def _owners(case: Case) -> Verdict:
    """Row 27: in one generation of a group, a partition has one owner."""
    found = Findings()
    owners = dict[tuple[_Share, int], Event]()
    told = [
        one
        for one in case.evidence.events
        if one.function == "owns" and one.kind is Kind.OK and one.generation is not None
    ]
    if not told:
        return not_judged(27, "no member has told what it owns in which generation")
    for event in told:
        for place in event.rebalanced:
            first = owners.setdefault(((event.value, place), event.generation or 0), event)
            if first.process != event.process:
                both = f"{first.process} and {event.process} both own {place}"
                found.add(
                    f"{both} in generation {event.generation} of {event.value}",
                    first.index,
                    event.index,
                )
    return ruled(27, found)
