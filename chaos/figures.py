"""How a run went, in numbers: what was served, how fast, and for how long it was not.

A partition is *unavailable* between two acknowledged writes to it that are far apart. The figure of
a fault is the longest such time, in any partition, that reaches into the fault or into the time for
recovery after it; the usual distance between two writes is part of it, as it is for any client.
A partition that is written only now and then says nothing of that kind, and is left out if others
are written steadily.

Not here: what is allowed (`checkers/`), tables for people (`report/`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.checkers.faults import NEVER_NS, Span, spans_of
from ottla.chaos.evidence import Evidence, FaultEvent, Uses
from ottla.chaos.history import Kind, Operation, Place, operations

_S: Final = 1_000_000_000
_MS: Final = 1_000_000
_ACKS: Final = {-1: "all"}
# A partition is written steadily if so many writes were tried, and that many a second.
_STEADY: Final = 50
_STEADY_PER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: how many, the middle one, and those that few are above."""

    count: int
    p50: float
    p95: float
    p99: float
    largest: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return how values lie; None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (percentile(ordered, share) for share in (0.5, 0.95, 0.99))
    return Spread(len(ordered), p50, p95, p99, ordered[-1])


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that so many of all are not above: of few, the largest."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFigure:
    """What one fault did to writers. Times are None if nothing was acknowledged any more."""

    span: Span
    # The longest time without an acknowledged write, when it began, and where that was.
    outage_s: float
    outage_began_ns: int
    place: Place | None
    # From when it was injected, and from when it was healed, to the next acknowledged write.
    first_ok_s: float | None
    first_ok_after_heal_s: float | None


@dataclass(frozen=True, slots=True)
class Second:
    """How many writes ended in one second, and how."""

    ok: int
    fail: int
    unknown: int
    # Of those that were acknowledged, in milliseconds; None: there were none.
    latency_p50_ms: float | None
    latency_max_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of a run."""

    # When the first operation began; seconds count from here.
    began_ns: int = 0
    length_s: float = 0.0
    # By function and outcome, and by error: "send ok", "send unknown REQUEST_TIMED_OUT".
    counts: Mapping[str, int] = field(default_factory=dict)
    # Milliseconds to an acknowledgement, by acks ("acks=all").
    latency_ms: Mapping[str, Spread] = field(default_factory=dict)
    faults: Sequence[FaultFigure] = ()
    # Seconds of unavailability by the name of the fault.
    outages_s: Mapping[str, Spread] = field(default_factory=dict)
    # By the name of the fault: as what its nodes were chosen ("leader"), and how often.
    roles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # The longest time from an acknowledgement until any poll showed the record.
    worst_lag_s: float | None = None
    seconds: Sequence[Second] = ()
    # Of each node the most it used of each thing, which need not have been at one moment.
    peaks: Mapping[int, Uses] = field(default_factory=dict)


def figures_of(evidence: Evidence) -> Figures:
    events = evidence.events
    if not events:
        return Figures()
    done = operations(events)
    began_ns = min(one.t_ns for one in events)
    ended_ns = max(one.t_ns for one in events)
    faults = _faults(evidence, done)
    by_fault = defaultdict[str, list[float]](list)
    for one in faults:
        by_fault[one.span.fault].append(one.outage_s)
    return Figures(
        began_ns=began_ns,
        length_s=(ended_ns - began_ns) / _S,
        counts=_counts(done),
        latency_ms=_latencies(done),
        faults=faults,
        outages_s={name: told for name, all_s in by_fault.items() if (told := spread(all_s))},
        roles=_roles(evidence.faults),
        worst_lag_s=_worst_lag_s(evidence, done),
        seconds=_seconds(done, began_ns, ended_ns),
        peaks=_peaks(evidence.uses),
    )


def _peaks(uses: Sequence[Uses]) -> dict[int, Uses]:
    peaks = dict[int, Uses]()
    for one in uses:
        before = peaks.get(one.node, one)
        peaks[one.node] = Uses(*map(max, zip(before, one, strict=True)))
    return peaks


def _counts(done: Sequence[Operation]) -> dict[str, int]:
    told = Counter[str]()
    for one in done:
        error = None if one.end is None else one.end.error
        name = f"{one.begin.function} {one.kind.value}"
        told[name if error is None else f"{name} {error}"] += 1
    return dict(sorted(told.items()))


def _latency_ms(one: Operation) -> float | None:
    """Return how long an acknowledged write took; None if it was none."""
    if one.begin.function != "send" or one.kind is not Kind.OK or one.end is None:
        return None
    return (one.end.t_ns - one.begin.t_ns) / _MS


def _latencies(done: Sequence[Operation]) -> dict[str, Spread]:
    found = defaultdict[str, list[float]](list)
    for one in done:
        took_ms = _latency_ms(one)
        if took_ms is not None:
            acks = -1 if one.begin.acks is None else one.begin.acks
            found[f"acks={_ACKS.get(acks, acks)}"].append(took_ms)
    return {name: told for name, values in sorted(found.items()) if (told := spread(values))}


# ── Faults ────────────────────────────────────────────────────────────────────────────────────


def _faults(evidence: Evidence, done: Sequence[Operation]) -> list[FaultFigure]:
    served = _served(done)
    every = sorted(
        one.end.t_ns for one in done if _latency_ms(one) is not None and one.end is not None
    )
    recovery_ns = int(evidence.facts.recovery_s * _S)
    last_ns = max(one.t_ns for one in evidence.events)
    found = list[FaultFigure]()
    spans = spans_of(evidence.faults)
    for span in spans:
        end_ns = min(span.end_ns + recovery_ns, last_ns)
        # What the next fault did is not held against this one.
        next_ns = min((one.begin_ns for one in spans if one.begin_ns > span.end_ns), default=end_ns)
        outages = [
            (longest_gap(_until(moments, next_ns, end_ns), span.begin_ns, end_ns), place)
            for place, moments in served.items()
        ]
        (longest, outage_began_ns), place = max(outages, default=((0, span.begin_ns), None))
        found.append(
            FaultFigure(
                span=span,
                outage_s=longest / _S,
                outage_began_ns=outage_began_ns,
                place=place,
                first_ok_s=_next_s(every, span.begin_ns),
                first_ok_after_heal_s=(
                    None if span.end_ns == NEVER_NS else _next_s(every, span.end_ns)
                ),
            )
        )
    return found


def _roles(faults: Sequence[FaultEvent]) -> dict[str, dict[str, int]]:
    """Return what faults have met, as whoever chose their nodes was told at that moment."""
    met = defaultdict[str, Counter[str]](Counter)
    for one in faults:
        if one.step == "inject" and "role" in one.facts:
            met[one.fault][str(one.facts["role"])] += 1
    return {fault: dict(sorted(counts.items())) for fault, counts in sorted(met.items())}


def _served(done: Sequence[Operation]) -> dict[Place, list[int]]:
    """Return when writes to each partition were acknowledged, in order, and when the last ended."""
    served, tried = defaultdict[Place, list[int]](list), defaultdict[Place, list[int]](list)
    for one in done:
        place = one.begin.place
        if one.begin.function != "send" or place is None:
            continue
        ended_ns = one.begin.t_ns if one.end is None else one.end.t_ns
        tried[place].append(ended_ns)
        if one.kind is Kind.OK:
            served[place].append(ended_ns)
    steady = {place for place in served if _is_steady(tried[place])} or served.keys()
    # An outage that never ended lasted as long as somebody tried.
    return {place: sorted([*served[place], max(tried[place])]) for place in steady}


def _is_steady(tried: Sequence[int]) -> bool:
    length_s = (max(tried) - min(tried)) / _S
    return len(tried) >= max(_STEADY, _STEADY_PER_S * length_s)


def longest_gap(moments: Sequence[int], begin: int, end: int) -> tuple[int, int]:
    """Return the longest time between two neighbours of which any part lies in the window.

    And when it began.
    """
    first = max(0, bisect_left(moments, begin) - 1)
    last = min(len(moments) - 1, bisect_left(moments, end))
    gaps = ((moments[at + 1] - moments[at], moments[at]) for at in range(first, last))
    return max(gaps, default=(0, begin))


def _until(moments: Sequence[int], next_ns: int, end_ns: int) -> Sequence[int]:
    """Return the moments before the next fault, which ends the last of them."""
    return moments if next_ns >= end_ns else [*moments[: bisect_left(moments, next_ns)], next_ns]


def _next_s(moments: Sequence[int], after: int) -> float | None:
    at = bisect_right(moments, after)
    return None if at == len(moments) else (moments[at] - after) / _S


# ── Readers, and the whole time ───────────────────────────────────────────────────────────────


def _worst_lag_s(evidence: Evidence, done: Sequence[Operation]) -> float | None:
    acknowledged = {
        one.begin.value: one.end.t_ns
        for one in done
        if _latency_ms(one) is not None and one.end is not None
    }
    worst = None
    for event in evidence.events:
        for shown in event.shown:
            # Taken out, so that only its first sight counts.
            moment_ns = acknowledged.pop(shown.value, None)
            if moment_ns is not None:
                worst = max(worst or 0, event.t_ns - moment_ns)
    return None if worst is None else worst / _S


def _seconds(done: Sequence[Operation], began_ns: int, ended_ns: int) -> list[Second]:
    kinds = [Counter[Kind]() for _ in range((ended_ns - began_ns) // _S + 1)]
    latencies = [list[float]() for _ in kinds]
    for one in done:
        if one.begin.function != "send" or one.end is None:
            continue
        at = (one.end.t_ns - began_ns) // _S
        kinds[at][one.kind] += 1
        took_ms = _latency_ms(one)
        if took_ms is not None:
            latencies[at].append(took_ms)
    spreads = [spread(values) for values in latencies]
    return [
        Second(
            count[Kind.OK],
            count[Kind.FAIL],
            count[Kind.UNKNOWN],
            None if told is None else told.p50,
            None if told is None else told.largest,
        )
        for count, told in zip(kinds, spreads, strict=True)
    ]
