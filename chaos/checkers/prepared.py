"""Row 34: what is prepared waits for its decision, and for nothing else.

A prepared transaction is a parcel at the counter: its sender has gone home, and it lies there until
somebody with the slip says where it goes. It is not thrown away because it has lain there for long,
nor because the sender comes back and asks, nor because somebody else serves at the counter now.

So before anybody has asked for a decision,

- a successor that holds the id, and keeps what is open, finds just this transaction;
- readers of committed records stand in front of its first record, whatever lies behind.

And if all who ever asked wanted it committed, it is, however little they were told: nothing else
can have ended it. (If they wanted it aborted, it was never to be committed: row 28.)

Not here: whether all of it is read (`transactions.py`), which transactions there were
(`ledger.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.faults import NEVER_NS, spans_of, troubled
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.ledger import Ledger, Transaction
from ottla.chaos.checkers.transactions import ends_of, is_due
from ottla.chaos.evidence import NOT_OFFERED, Evidence, Verdict
from ottla.chaos.history import Kind, Operation, Place

_ROW: Final = 34


def judge_prepared(case: Case) -> Verdict:
    prepared = {
        one.name: one for one in case.ledger.transactions.values() if one.prepared is not None
    }
    if not prepared:
        return not_judged(_ROW, _why_none(case.evidence))
    found = Findings()
    _look_at_successors(case.ledger, prepared, found)
    _look_at_readers(case, prepared, found)
    _look_at_finals(case, prepared, found)
    return ruled(_ROW, found, said=_said(case.evidence, prepared))


def _why_none(evidence: Evidence) -> str:
    for one in evidence.faults:
        if one.fault == NOT_OFFERED:
            return f"not offered: {one.facts.get('what')}; left out: {one.facts.get('left_out')}"
    return "no transaction was prepared"


def _said(evidence: Evidence, prepared: Mapping[str, Transaction]) -> str:
    """Return how many there were, how many of them in bad times, and who has decided."""
    bad = troubled(spans_of(evidence.faults))
    count = sum(1 for one in prepared.values() if _waited_in(one, bad))
    by = Counter(
        end.begin.process for one in prepared.values() for end in one.ends if end.kind is Kind.OK
    )
    told = ", ".join(f"{times} by {process}" for process, times in sorted(by.items()))
    waited = f"{len(prepared)} were prepared, {count} of them while something was broken"
    return f"{waited}; decided: {told or 'none for certain'}"


def _waited_in(one: Transaction, times: Sequence[tuple[int, int]]) -> bool:
    since_ns = NEVER_NS if one.prepared is None else one.prepared.begin.t_ns
    return any(begin < one.decided_ns and since_ns < end for begin, end in times)


# ── Who comes back ────────────────────────────────────────────────────────────────────────────


def _look_at_successors(
    ledger: Ledger, prepared: Mapping[str, Transaction], found: Findings
) -> None:
    by_given_name = {one.name_given: one for one in prepared.values()}
    for look in ledger.looks:
        assert look.end is not None, "it was told something"
        wanted = prepared.get(look.begin.transaction or "")
        if wanted is not None and look.end.value != wanted.name_given:
            if look.end.t_ns < wanted.decided_ns:
                there = look.end.value or "nothing"
                told = f"{look.begin.process} was to keep {wanted.name} ({wanted.name_given})"
                found.add(f"{told} and found {there}", *_shown_by(wanted, look))
            continue
        known = by_given_name.get(look.end.value)
        if look.end.value is not None and known is not None:
            for end in known.ends:
                if end.kind is Kind.OK and (end.ended_ns or 0) < look.begin.t_ns:
                    told = f"{known.name} was found open after {end.begin.process} had decided it"
                    found.add(told, end.index, look.index)
                    break


def _shown_by(transaction: Transaction, look: Operation) -> tuple[int, ...]:
    before = () if transaction.prepared is None else (transaction.prepared.index,)
    return (*before, look.index)


# ── Who reads ─────────────────────────────────────────────────────────────────────────────────


class _Waiting:
    """The prepared transactions of one partition, by their first record there."""

    def __init__(self, lying: list[tuple[int, Transaction]]) -> None:
        self._lying: Final = sorted(lying, key=lambda pair: pair[0])
        self._offsets: Final = [offset for offset, _ in self._lying]
        # Up to each of them, the latest moment at which a decision was first asked for.
        moments = (one.decided_ns for _, one in self._lying)
        self._latest_ns: Final = list(accumulate(moments, max))

    def before(self, offset: int, moment_ns: int) -> Transaction | None:
        """Return one that has a record before an offset, and was not to be decided by then."""
        count = bisect_left(self._offsets, offset)
        if count == 0 or self._latest_ns[count - 1] <= moment_ns:
            return None
        return next(one for _, one in self._lying[:count] if one.decided_ns > moment_ns)


def _look_at_readers(case: Case, prepared: Mapping[str, Transaction], found: Findings) -> None:
    first = defaultdict[Place, dict[str, int]](dict)
    for one in prepared.values():
        for send in one.sends:
            offset = case.position(send)
            if offset is not None:
                known = first[send.place].get(one.name, offset)
                first[send.place][one.name] = min(known, offset)
    waiting = {
        place: _Waiting([(offset, prepared[name]) for name, offset in lying.items()])
        for place, lying in first.items()
    }
    told = set[tuple[str, str]]()
    for event in case.ledger.polls:
        furthest = dict[Place, int]()
        for place, offset, _, _ in event.shown:
            furthest[place] = max(furthest.get(place, -1), offset)
        for place, offset in furthest.items():
            past = waiting[place].before(offset, event.t_ns) if place in waiting else None
            if past is not None and (past.name, event.process) not in told:
                told.add((past.name, event.process))
                said = f"{event.process} was shown {place} {offset}, behind a record of {past.name}"
                found.add(f"{said}, of which nobody had asked for a decision", event.index)


# ── What is there at the end ──────────────────────────────────────────────────────────────────


def _look_at_finals(case: Case, prepared: Mapping[str, Transaction], found: Findings) -> None:
    ledger, ends = case.ledger, ends_of(case)
    for one in prepared.values():
        # What a client was told to be committed is a matter of row 31.
        is_open_question = one.kind is not Kind.OK and one.is_only_to_commit
        if not is_open_question or one.name in ledger.shown:
            continue
        for send in one.sends:
            reads = (read for (place, _), read in ledger.finals.items() if place == send.place)
            if any(is_due(case, read, send, ends) for read in reads):
                told = f"{one.name} was prepared, and nobody asked for anything but its commit"
                found.add(f"{told}; it is not among what is committed", one.asked, send.index)
                break
