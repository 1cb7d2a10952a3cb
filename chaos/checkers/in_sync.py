"""Limits on in-sync sets, of row 40: how they change, how soon and how often, by the trace.

    sizes      all copies, all but the one that was struck, all: 3, 2, 3, and nothing in between
    lag        a follower that hangs for less than the lag stays in sync; one that hangs for much
               longer is out by 1.5 times the lag, for leaders look twice in that time
    losses     members that an in-sync set lost while something was broken, in 10 s
    changes    from the first fault until the clients stop

How long somebody hung is what it was, not what the scenario asked for: a pause that a busy machine
made longer is judged as a longer one, and one between the two sorts not at all.

Not here: whether they may be as they are (`leading.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.excuses import Excuses
from ottla.chaos.checkers.faults import NEVER_NS, Span, spans_of
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.evidence import Evidence
from ottla.chaos.history import Place

_S: Final = 1_000_000_000
_NAMES: Final = ("isr_sizes", "isr_lag_s", "isr_losses_per_10s", "isr_changes_max", "fenced_max")
# A follower that hangs is a little behind when it begins to, and has to come back when it may.
_SHORT_OF_LAG_S: Final = 0.4
# Leaders look once in half a lag; then the controller has to write down what they propose.
_LAGS: Final = 1.5
_PROPOSED_S: Final = 0.4

Steps = Mapping[Place, Sequence[tuple[int, tuple[int, ...]]]]


class _Scene(NamedTuple):
    """What these limits are judged by."""

    evidence: Evidence
    traced: Traced
    # Of each partition who was in sync from a moment on, and only what differs from before.
    steps: Steps
    spans: Sequence[Span]
    # When clients were stopped: whatever comes after that is the doing of the harness.
    end_ns: int
    book: Excuses


def judge_in_sync(case: Case, traced: Traced | None, book: Excuses) -> None:
    asked = [name for name in case.evidence.facts.limits.names if name in _NAMES]
    if not asked:
        return
    steps = {} if traced is None else traced.in_sync_steps()
    if traced is None or not steps:
        book.unjudged(", ".join(asked), "the trace tells of no in-sync sets")
        return
    spans = spans_of(case.evidence.faults)
    end_ns = _end_of_load(case.evidence)
    scene = _Scene(case.evidence, traced, steps, spans, end_ns, book)
    for name in asked:
        _JUDGES[name](scene)


def _end_of_load(evidence: Evidence) -> int:
    for note in evidence.faults:
        if note.fault == "phase" and note.facts.get("phase") == "final":
            return note.t_ns
    return max((one.t_ns for one in evidence.events), default=0)


def _changes(scene: _Scene, place: Place, begin_ns: int, end_ns: int) -> Iterator[_Change]:
    for (_, before), (moment_ns, after) in pairwise(scene.steps[place]):
        if begin_ns <= moment_ns <= end_ns:
            yield _Change(moment_ns, before, after)


class _Change(NamedTuple):
    """An in-sync set became another."""

    t_ns: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def lost(self) -> set[int]:
        return set(self.before) - set(self.after)


def _until(scene: _Scene, span: Span) -> int:
    """Return until when changes are on account of a fault: the next one, or the end."""
    later = [one.begin_ns for one in scene.spans if one.begin_ns > span.end_ns]
    return min([*later, scene.end_ns])


# ── Which, and in which order ─────────────────────────────────────────────────────────────────


def _sizes(scene: _Scene) -> None:
    wanted, judged = list(scene.evidence.facts.limits.isr_sizes or ()), 0
    for span in scene.spans:
        until_ns = _until(scene, span)
        for place in sorted(scene.steps):
            began = scene.traced.in_sync_at(place, span.begin_ns)
            if not set(span.targets) & set(began):
                continue
            judged += 1
            changes = [*_changes(scene, place, span.begin_ns, until_ns)]
            found = [len(began), *(len(one.after) for one in changes)]
            lost = {node for one in changes for node in one.lost}
            if found != wanted or lost != set(span.targets):
                told = " → ".join(map(str, found))
                who = f"{sorted(lost)} were out when {list(span.targets)} were struck"
                sentence = f"in sync of {place} were {told}; {who}"
                scene.book.too_often(sentence, span.begin_ns, min(until_ns, span.end_ns))
    scene.book.said.append(f"{judged} in-sync sets went {' → '.join(map(str, wanted))}")
    if not judged:
        scene.book.unjudged("sizes of in-sync sets", "nobody who was struck was in sync")


# ── How soon ──────────────────────────────────────────────────────────────────────────────────


def _lag(scene: _Scene) -> None:
    lag_s = scene.evidence.facts.limits.isr_lag_s or 0.0
    stayed, left = 0, 0
    for span in scene.spans:
        if span.end_ns == NEVER_NS or len(span.targets) != 1:
            continue
        took_s = (span.end_ns - span.begin_ns) / _S
        if took_s <= lag_s - _SHORT_OF_LAG_S:
            stayed += _stays(scene, span)
        elif took_s >= lag_s * _LAGS + _PROPOSED_S:
            left += _leaves(scene, span, lag_s * _LAGS)
    scene.book.said.append(f"{stayed} in-sync sets stayed as they were, {left} shrank in time")
    if not stayed or not left:
        why = "nobody hung for less than the lag, and nobody for longer, that could be judged"
        scene.book.unjudged("how soon in-sync sets shrink", why)


def _followed(scene: _Scene, span: Span) -> Iterator[Place]:
    """Yield the partitions whose follower was struck while it was in sync."""
    (node,) = span.targets
    for place in sorted(scene.steps):
        led = [one for one in scene.traced.leaders if one[1] == place and one[0] < span.begin_ns]
        is_leader = bool(led) and max(led, key=lambda one: one[2])[3] == node
        if led and not is_leader and node in scene.traced.in_sync_at(place, span.begin_ns):
            yield place


def _stays(scene: _Scene, span: Span) -> int:
    judged, (node,) = 0, span.targets
    until_ns = min(span.end_ns + _S, scene.end_ns)
    is_starved = scene.book.starving.during(span.begin_ns, until_ns)
    for place in _followed(scene, span):
        out = [one for one in _changes(scene, place, span.begin_ns, until_ns) if node in one.lost]
        if not out or not is_starved:
            judged += 1
        if out:
            took_s = (span.end_ns - span.begin_ns) / _S
            sentence = f"node {node} hung for {took_s:.2f} s and was taken out of {place}"
            # Who has no processor is behind for longer than it hung: others must show it.
            (scene.book.counted if is_starved else scene.book.broken).add(sentence)
    return judged


def _leaves(scene: _Scene, span: Span, limit_s: float) -> int:
    judged, (node,) = 0, span.targets
    for place in _followed(scene, span):
        changes = _changes(scene, place, span.begin_ns, _until(scene, span))
        out_ns = next((one.t_ns for one in changes if node in one.lost), span.end_ns)
        if out_ns >= span.end_ns and scene.book.starving.during(span.begin_ns, span.end_ns):
            # It came back before anybody had had the time to look.
            continue
        judged += 1
        what = f"node {node} hung, and was in sync of {place} for"
        took_s = (out_ns - span.begin_ns) / _S - _PROPOSED_S
        scene.book.took(what, took_s, limit_s, begin_ns=span.begin_ns, end_ns=out_ns)
    return judged


# ── How often ─────────────────────────────────────────────────────────────────────────────────


def _losses(scene: _Scene) -> None:
    most = scene.evidence.facts.limits.isr_losses_per_10s or 0.0
    worst = 0.0
    for span in scene.spans:
        end_ns = min(span.end_ns, scene.end_ns)
        tens = max(1, end_ns - span.begin_ns) / (10 * _S)
        for place in sorted(scene.steps):
            changes = _changes(scene, place, span.begin_ns, end_ns)
            count = sum(1 for one in changes if one.lost)
            worst = max(worst, count / tens)
            if count / tens >= most:
                told = f"the in-sync set of {place} shrank {count} times in {tens * 10:.0f} s"
                scene.book.too_often(told, span.begin_ns, end_ns)
    scene.book.said.append(f"in-sync sets shrank at most {worst:.1f} times in 10 s")


def _all_changes(scene: _Scene) -> None:
    most = scene.evidence.facts.limits.isr_changes_max or 0
    begin_ns = min((one.begin_ns for one in scene.spans), default=0)
    found = [
        (place, one)
        for place in sorted(scene.steps)
        for one in _changes(scene, place, begin_ns, scene.end_ns)
    ]
    scene.book.said.append(f"in-sync sets changed {len(found)} times, of {most} allowed")
    if len(found) > most:
        place, one = max(found, key=lambda each: each[1].t_ns)
        told = f"in-sync sets changed {len(found)} times: {place} from {one.before} to {one.after}"
        scene.book.too_often(told, one.t_ns, one.t_ns)


def _fenced(scene: _Scene) -> None:
    most = scene.evidence.facts.limits.fenced_max or 0
    begin_ns = min((one.begin_ns for one in scene.spans), default=0)
    found = {
        (line["broker"], line["broker_epoch"]): int(line["t_ns"])
        for line in scene.traced.lines
        if line["event"] == "fenced" and begin_ns <= line["t_ns"] <= scene.end_ns
    }
    scene.book.said.append(f"{len(found)} nodes were fenced, of {most} allowed")
    if len(found) > most:
        nodes, moment_ns = sorted({node for node, _ in found}), max(found.values())
        scene.book.too_often(f"nodes {nodes} were fenced", moment_ns, moment_ns)


_JUDGES: Final[Mapping[str, Callable[[_Scene], None]]] = {
    "isr_sizes": _sizes,
    "isr_lag_s": _lag,
    "isr_losses_per_10s": _losses,
    "isr_changes_max": _all_changes,
    "fenced_max": _fenced,
}
