"""What happened when, as lines and spans over the time of a run: all that the picture shows.

Time is seconds since the first event. However long a run was, the picture has at most `STEPS_MAX`
steps, and spans that would be too thin to be seen are joined with their neighbours.

Not here: how it is drawn (`timeline.py`).

S1  spans of one row do not overlap, are in order, and lie within the run
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.chaos.checkers.faults import NEVER_NS, spans_of
from ottla.chaos.evidence import Evidence
from ottla.chaos.figures import percentile
from ottla.chaos.history import Kind, Operation, Place, operations
from ottla.chaos.payload import LIFE_MARK

_S: Final = 1_000_000_000
_MS: Final = 1_000_000
# Shown after the last write.
_REST_NS: Final = _S // 2
STEPS_MAX: Final = 160
# What is shorter than the length of a run by this factor could not be seen.
_PIXELS: Final = 1500
_NICE_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
# Between two acknowledged writes to a partition: from here on it counts as unavailable.
UNAVAILABLE_S: Final = 1.0
PLACES_MAX: Final = 12
# Partitions with fewer writes come last.
_BUSY: Final = 50


class Span(NamedTuple):
    """From, to (exclusive), and what it is."""

    begin_s: float
    end_s: float
    what: str


@dataclass(frozen=True, slots=True)
class Step:
    """The writes that ended in one step of time."""

    ok: int
    fail: int
    unknown: int
    # Of those acknowledged; None: there were none.
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(slots=True)
class Row:
    """One partition."""

    place: Place
    # Whom it was led by, as a number; "none" for nobody.
    leaders: list[Span] = field(default_factory=list)
    # For each node when it was in sync. Empty: nobody said.
    in_sync: dict[int, list[Span]] = field(default_factory=dict)
    outages: list[Span] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Everything over time."""

    length_s: float
    step_s: float
    steps: list[Step]
    faults: list[Span]
    # The parts of the run.
    phases: list[Span]
    notes: list[tuple[float, str]]
    rows: list[Row]
    # Partitions that there was no room for.
    rows_left_out: int


def series_of(evidence: Evidence) -> Series:
    began, ended = _bounds(evidence)
    length_s = max((ended - began) / _S, 0.001)
    step_s = next((one for one in _NICE_S if length_s / one <= STEPS_MAX), length_s / STEPS_MAX)
    done = operations(evidence.events)
    rows = _rows(evidence, done, began, ended, length_s / _PIXELS)
    return Series(
        length_s=length_s,
        step_s=step_s,
        steps=_steps(done, began, length_s, step_s),
        faults=[
            Span(
                _since(one.begin_ns, began),
                min(length_s, length_s if one.end_ns == NEVER_NS else _since(one.end_ns, began)),
                one.fault + (f" {','.join(map(str, one.targets))}" if one.targets else ""),
            )
            for one in spans_of(evidence.faults)
        ],
        phases=_phases(evidence, began, ended),
        notes=[
            (_since(one.t_ns, began), one.fault)
            for one in evidence.faults
            if one.step == "note" and "phase" not in one.facts and began < one.t_ns < ended
        ],
        rows=rows[:PLACES_MAX],
        rows_left_out=max(0, len(rows) - PLACES_MAX),
    )


def _bounds(evidence: Evidence) -> tuple[int, int]:
    """Return from when to when there was load: what comes before and after is quiet, and long."""
    begins = [one.t_ns for one in evidence.events[:1]]
    ends = [one.t_ns for one in evidence.events if one.function == "send"]
    faults = [one.t_ns for one in evidence.faults if one.step != "note"]
    times = [*begins, *ends, *faults]
    return (min(times), max(times) + _REST_NS) if times else (0, 0)


def _since(t_ns: int, began: int) -> float:
    return (t_ns - began) / _S


def _phases(evidence: Evidence, began: int, ended: int) -> list[Span]:
    told = ((one.t_ns, str(one.facts["phase"])) for one in evidence.faults if "phase" in one.facts)
    return _spans(told, began, ended)


# ── Writes ────────────────────────────────────────────────────────────────────────────────────


def _steps(done: Sequence[Operation], began: int, length_s: float, step_s: float) -> list[Step]:
    count = int(length_s / step_s) + 1
    kinds = [dict.fromkeys(Kind, 0) for _ in range(count)]
    took = [list[float]() for _ in range(count)]
    for one in done:
        if one.begin.function != "send" or one.end is None:
            continue
        at = min(count - 1, int((one.end.t_ns - began) / _S / step_s))
        kinds[at][one.kind] += 1
        if one.kind is Kind.OK:
            took[at].append((one.end.t_ns - one.begin.t_ns) / _MS)
    return [
        Step(kind[Kind.OK], kind[Kind.FAIL], kind[Kind.UNKNOWN], *_three(sorted(times)))
        for kind, times in zip(kinds, took, strict=True)
    ]


def _three(ordered: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not ordered:
        return None, None, None
    return percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1]


# ── Partitions ────────────────────────────────────────────────────────────────────────────────


def _rows(
    evidence: Evidence, done: Sequence[Operation], began: int, ended: int, least_s: float
) -> list[Row]:
    served, tried = defaultdict[Place, list[int]](list), defaultdict[Place, int](int)
    # The last time that anything was tried: what was not served until then was an outage, too.
    last_ns = began
    for one in done:
        if one.begin.function == "send" and one.begin.place is not None and one.end is not None:
            tried[one.begin.place] += 1
            last_ns = max(last_ns, one.end.t_ns)
            if one.kind is Kind.OK:
                served[one.begin.place].append(one.end.t_ns)
    states = _states(evidence)
    rows = list[Row]()
    # A topic that comes and goes has no row: it is there for a moment only.
    lasting = [one for one in tried if LIFE_MARK not in one.topic]
    for place in sorted(lasting, key=lambda one: (tried[one] < _BUSY, one)):
        known = states.get(place, [])
        rows.append(
            Row(
                place,
                _leaders(known, began, ended, least_s),
                _in_sync(evidence.facts.nodes, known, began, ended),
                _outages([*sorted(served[place]), last_ns], began),
            )
        )
    return rows


class _State(NamedTuple):
    """A partition from a moment on, as metadata have it."""

    t_ns: int
    # −1: nobody.
    leader: int
    # None: nobody said.
    isr: tuple[int, ...] | None


def _states(evidence: Evidence) -> dict[Place, list[_State]]:
    """Return how the metadata of each partition changed, each change when it was first told."""
    found = defaultdict[Place, list[_State]](list)
    if evidence.trace is None:
        for t_ns, place, _, leader in sorted(evidence.leaders_seen):
            found[place].append(_State(t_ns, leader, None))
        return found
    highest = dict[tuple[str, int, str], int]()
    for line in evidence.trace:
        if line["event"] != "partition":
            continue
        life = (line["topic"], line["partition"], str(line.get("topic_id")))
        if line["partition_epoch"] > highest.get(life, -1):
            highest[life] = line["partition_epoch"]
            leader = line["leader"]
            found[Place(line["topic"], line["partition"])].append(
                _State(line["t_ns"], -1 if leader is None else leader, tuple(line["isr"]))
            )
    return found


def _leaders(states: Sequence[_State], began: int, ended: int, least_s: float) -> list[Span]:
    told = ((one.t_ns, "none" if one.leader < 0 else str(one.leader)) for one in states)
    return _joined(_spans(told, began, ended), least_s)


def _in_sync(
    nodes: Iterable[int], states: Sequence[_State], began: int, ended: int
) -> dict[int, list[Span]]:
    known = [one for one in states if one.isr is not None]
    if not known:
        return {}
    return {
        node: [
            span
            for span in _spans(
                ((one.t_ns, "in" if node in (one.isr or ()) else "") for one in known), began, ended
            )
            if span.what
        ]
        for node in nodes
    }


def _spans(told: Iterable[tuple[int, str]], began: int, ended: int) -> list[Span]:
    """Return what was so from when to when; neighbours that are the same are one."""
    length_s = _since(ended, began)
    changes = list[tuple[float, str]]()
    for t_ns, what in told:
        at_s = min(max(0.0, _since(t_ns, began)), length_s)
        if changes and changes[-1][1] == what:
            continue
        if changes and changes[-1][0] == at_s:
            changes.pop()
        changes.append((at_s, what))
    return [
        Span(at_s, end_s, what)
        for (at_s, what), (end_s, _) in pairwise([*changes, (length_s, "")])
        if end_s > at_s
    ]


def _joined(spans: Sequence[Span], least_s: float) -> list[Span]:
    """Let what is too short to be seen belong to what was before it."""
    found = list[Span]()
    for span in spans:
        is_short = span.end_s - span.begin_s < least_s and span.what != "none"
        if found and (is_short or found[-1].what == span.what):
            found[-1] = found[-1]._replace(end_s=span.end_s)
        else:
            found.append(span)
    return found


def _outages(served: Sequence[int], began: int) -> list[Span]:
    """Return the times between two moments that are far apart."""
    least = int(UNAVAILABLE_S * _S)
    return [
        Span(_since(before, began), _since(after, began), f"{(after - before) / _S:.2f} s")
        for before, after in pairwise(served)
        if after - before > least
    ]


def value_at(spans: Sequence[Span], moment_s: float) -> str | None:
    """Return what a row of spans says of a moment."""
    at = bisect_left(spans, moment_s, key=lambda one: one.end_s)
    is_there = at < len(spans) and spans[at].begin_s <= moment_s < spans[at].end_s
    return spans[at].what if is_there else None
