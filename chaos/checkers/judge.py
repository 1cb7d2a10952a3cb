"""Judges a run: a verdict for every row, and what the run is as a whole.

Not here: how each row is judged; the docstring of the package says it.

J1  every row has one verdict, in the order of their numbers
J2  a run passes only if the harness did its work, every step of its scenario took place, enough was
    acknowledged, every kind of client that was to write in transactions has committed enough of
    them, all of that was looked for at the end, everybody who can tell has told, the last recovery
    was judged, and nothing is broken that should not be
J3  a harness that failed makes nothing right: what clients saw before stays broken. But of how fast
    the system recovers it says nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.chaos.checkers.case import Case, case_of
from ottla.chaos.checkers.contents import judge_contents
from ottla.chaos.checkers.copies import judge_copies
from ottla.chaos.checkers.groups import judge_groups
from ottla.chaos.checkers.happened import left_undone
from ottla.chaos.checkers.health import judge_health
from ottla.chaos.checkers.keeping import judge_keeping
from ottla.chaos.checkers.leading import judge_leading
from ottla.chaos.checkers.ledger import COMMIT
from ottla.chaos.checkers.limits import judge_limits
from ottla.chaos.checkers.order import judge_order
from ottla.chaos.checkers.prepared import judge_prepared
from ottla.chaos.checkers.rows import ROWS
from ottla.chaos.checkers.shape import judge_shape
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.checkers.transactions import judge_transactions
from ottla.chaos.evidence import Evidence, Outcome, Ruling, Verdict
from ottla.chaos.history import Kind
from ottla.proto.errors import ensure

_LOSSES: Final = {3, 4}
_UNSEEN: Final = 4
_LOGS: Final = 23
_PROGRESS: Final = 24
_LIMITS: Final = 40
# Where there are to be transactions; and where there are to be offsets in them.
_TRANSACTIONS: Final = frozenset({22, 28, 29, 30, 31, 33})
_OFFSETS: Final = 32
# By what a system tells, the rows that must have been judged where it does.
_TOLD_BY: Final[Mapping[str, tuple[int, ...]]] = {
    "TRACE": (17, 18, 20),
    "DIGEST": (15, 16),
    "OFFLINE": (15,),
}


def judge(evidence: Evidence) -> list[Verdict]:
    """Return a verdict for every row."""
    case = case_of(evidence)
    # A trace without a line tells as little as none.
    traced = Traced(evidence.trace) if evidence.trace else None
    verdicts = sorted(_verdicts(case, traced), key=lambda one: one.row)
    ensure([one.row for one in verdicts] == list(ROWS), "J1: every row has one verdict")
    return [_tolerated(one) if one.row in evidence.facts.tolerated else one for one in verdicts]


def _verdicts(case: Case, traced: Traced | None) -> Iterator[Verdict]:
    yield from judge_contents(case)
    yield from judge_keeping(case, traced)
    yield from judge_order(case)
    yield from judge_shape(case)
    yield from judge_copies(case, traced)
    yield from judge_leading(case, traced)
    yield from judge_groups(case)
    yield from judge_transactions(case)
    yield judge_prepared(case)
    yield from judge_health(case)
    yield judge_limits(case, traced)


def _tolerated(verdict: Verdict) -> Verdict:
    is_broken = verdict.ruling is Ruling.BROKEN
    return replace(verdict, ruling=Ruling.COUNTED) if is_broken else verdict


def outcome(evidence: Evidence, verdicts: Sequence[Verdict]) -> Outcome:
    """Return what the whole run is (J2, J3)."""
    broken = {one.row for one in verdicts if one.ruling is Ruling.BROKEN}
    expected = set(evidence.facts.expected)
    if evidence.harness_failures:
        return Outcome.FAILED if broken - expected - {_PROGRESS, _LIMITS} else Outcome.HARNESS
    # A test of the judge: it must find what was put there, and nothing else. If something was to be
    # lost, then that it is lost; not only a sign of how.
    losses = expected & _LOSSES
    if broken - expected or (expected and not broken) or (losses and not losses & broken):
        return Outcome.FAILED
    return Outcome.INCONCLUSIVE if doubts(evidence, verdicts) else Outcome.PASSED


def doubts(evidence: Evidence, verdicts: Sequence[Verdict]) -> list[str]:
    """Return in sentences why a run in which nothing is broken says nothing all the same (J2)."""
    found, least = list[str](), evidence.facts.ok_min
    count = sum(1 for one in evidence.events if one.function == "send" and one.kind is Kind.OK)
    if count < least:
        found.append(f"{count} writes were acknowledged, not {least}")
    unseen = next(one for one in verdicts if one.row == _UNSEEN)
    if unseen.ruling is Ruling.NOT_JUDGED:
        found.append(unseen.sentence)
    limits = next(one for one in verdicts if one.row == _LIMITS)
    if evidence.facts.limits.names and limits.ruling is Ruling.NOT_JUDGED:
        found.append(limits.sentence)
    found += _uncommitted(evidence)
    return [*found, *_unheard(evidence, verdicts), *left_undone(evidence)]


def _uncommitted(evidence: Evidence) -> Iterator[str]:
    """Yield which kinds of clients have committed too few transactions to say anything (J2)."""
    facts = evidence.facts
    committed = {
        one.transaction
        for one in evidence.events
        if one.function == COMMIT and one.kind is Kind.OK and one.transaction is not None
    }
    counts = Counter(facts.transactors.get(name.rpartition("-")[0]) for name in committed)
    for kind in sorted(set(facts.transactors.values())):
        if counts[kind] < facts.committed_min:
            told = f"{counts[kind]} transactions were committed, not {facts.committed_min}"
            yield f"of {kind}, {told}"


def _unheard(evidence: Evidence, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield what is not judged, though it was agreed that somebody tells it (J2)."""
    facts = evidence.facts
    needed = {row for name in facts.tells or () for row in _TOLD_BY[name]}
    if any(one.step == "heal" for one in evidence.faults):
        needed.add(_PROGRESS)
    if facts.transactors:
        needed |= _TRANSACTIONS
    if facts.transactional_groups:
        needed.add(_OFFSETS)
    if facts.tells is not None:
        turns = {one.turn for one in evidence.finals if one.high_watermark >= 0}
        if not {1, 2} <= turns:
            yield "it was not read both before and after the restart of everything"
        if facts.tells:
            needed.add(_LOGS)
    for one in verdicts:
        if one.row in needed and one.ruling is Ruling.NOT_JUDGED:
            yield f"row {one.row} ({one.name}) was not judged: {one.sentence}"
