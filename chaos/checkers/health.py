"""Rows 23 and 24: nodes meet nothing impossible, and the cluster serves when it can.

Healthy are the times at which nothing is broken and the last heal is longer ago than the limit for
recovery. In them, 20 seconds bring 100 acknowledged writes at least. If they bring fewer, and
nearly all that was sent was acknowledged, then little was sent: that is for `outcome` to see, and
no fault of the cluster.

After a heal writes are acknowledged, and all copies are in sync, within the limit for recovery. The
last heal of a run has to be judged: nobody may stop writing before the limit is over.

Not here: how long exactly it did not serve (`figures.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from signal import SIGKILL
from typing import Final, NamedTuple

from ottla.chaos.checkers.case import LEADER, Case
from ottla.chaos.checkers.excuses import Excuses
from ottla.chaos.checkers.faults import NEVER_NS, Span, spans_of, troubled
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.sends import Send
from ottla.chaos.checkers.starving import Starving
from ottla.chaos.evidence import FaultEvent, Verdict
from ottla.chaos.history import Kind, Place

WINDOW_NS: Final = 20_000_000_000
WINDOW_OK_MIN: Final = 100
# Of what was sent in a window, so many in ten must have been acknowledged to call it little load.
_SERVED_TENTHS: Final = 9
# Fewer writes to a partition than this after a heal say nothing of it.
_TRIED_MIN: Final = 3
_IMPOSSIBLE: Final = re.compile(
    r"Traceback \(most recent call last\)|AssertionError|InvariantError"
    r"|\bCRITICAL\b|\bFATAL\b|Fatal Python error|Segmentation fault"
    # A long traceback is written without its first lines (node/log_line.py). And what nodes call a
    # bug is one, also where nothing was raised. A node that ends because its disk has failed says
    # `node_failed`, and may.
    r"|… \d+ lines above|\bERROR \S+ (?:bug|request_failed|page_failed)\b"
)
# What the fault seam raises in a process whose power was cut, whatever it was about to do.
_NO_POWER: Final = r"error=\"PowerCutError\("
# Notes of a nemesis about ends of nodes. One that ended by itself may have had to: its disk failed,
# say. If it had not, its log tells.
_BAD_ENDS: Final = {"exit": "asked to stop, it ended badly", "ended": "it ended by itself"}
# Faults that kill whom they hit.
_DEADLY: Final = frozenset({"kill", "wipe", "roll", "power", "failpoint"})
# What belongs to the line above it: a traceback is indented, or behind a bar.
_CONTINUED: Final = re.compile(r"\s|\|")
_BLOCK_LINES_MAX: Final = 60
_EVENT: Final = re.compile(r"\d\d:\d\d:\d\d")


def judge_health(case: Case) -> Iterator[Verdict]:
    yield _scan(case)
    yield _progress(case)


# ── Logs ──────────────────────────────────────────────────────────────────────────────────────


def _scan(case: Case) -> Verdict:
    logs = case.evidence.logs
    if logs is None:
        return not_judged(23, "the logs of the nodes are not at hand")
    allowed = [re.compile(one) for one in (*case.evidence.facts.allowed_log, _NO_POWER)]
    found, meant = Findings(), Findings()
    for node, lines in sorted(logs.items()):
        end = 0
        for at, (number, text) in enumerate(lines):
            if at < end or not _IMPOSSIBLE.search(text):
                continue
            block, end = _block(lines, at)
            is_meant = any(one.search(line) for one in allowed for line in block)
            told = f"node {node}, line {number}: {text.strip()[:120]} … {block[-1].strip()[:120]}"
            (meant if is_meant else found).add(told)
    deadly = [one for one in spans_of(case.evidence.faults) if one.fault in _DEADLY]
    for note in case.evidence.faults:
        if note.step == "note" and note.fault in _BAD_ENDS:
            told = f"nodes {list(note.targets)}: {_BAD_ENDS[note.fault]}, {dict(note.facts)}"
            is_bad = note.fault == "exit" or _is_crash(note, deadly)
            (found if is_bad else meant).add(told)
    return ruled(23, found, meant)


def _is_crash(note: FaultEvent, deadly: Sequence[Span]) -> bool:
    """Return whether a node ended by a signal that nobody here sent."""
    code = int(note.facts.get("exit_code") or 0)
    if code != -SIGKILL:
        return code < 0
    # Of faults that last together one may find the node that another has killed.
    killed = {
        node for one in deadly if one.begin_ns <= note.t_ns <= one.end_ns for node in one.targets
    }
    return not killed.issuperset(note.targets)


def _block(lines: Sequence[tuple[int, str]], at: int) -> tuple[list[str], int]:
    """Return the line that it belongs to, the line itself, all that belongs to it, and its end."""
    is_below = bool(_CONTINUED.match(lines[at][1]))
    block = [text for _, text in lines[max(0, at - is_below) : at + 1]]
    end = at + 1
    for _, text in lines[at + 1 : at + _BLOCK_LINES_MAX]:
        if _EVENT.match(text):
            break
        block.append(text)
        end += 1
        if not _CONTINUED.match(text):
            # The last line of a bare traceback is not indented: it says what was raised.
            break
    return block, end


# ── Progress ──────────────────────────────────────────────────────────────────────────────────


def _progress(case: Case) -> Verdict:
    book = Excuses(Starving(case.evidence.loads))
    sends = sorted(chain(*case.sends.values()), key=lambda one: one.begun_ns)
    sends = [one for one in sends if one.acks != 0]
    trouble = troubled(spans_of(case.evidence.faults))
    judged = _judge_windows(case, sends, trouble, book.broken)
    judged += _judge_heals(case, sends, trouble, book)
    judged += _judge_reads(case, book.broken) + _judge_copies(case, trouble, book)
    if book.doubts and not book.broken.count:
        return not_judged(24, "; ".join(book.doubts[:3]))
    if not judged:
        return not_judged(24, "it was never healthy for long enough, and nothing was read")
    return ruled(24, book.broken, book.counted)


def _judge_windows(
    case: Case, sends: Sequence[Send], trouble: Sequence[tuple[int, int]], found: Findings
) -> int:
    if not sends:
        return 0
    recovery_ns = int(case.evidence.facts.recovery_s * 1e9)
    done = sorted(one.ended_ns for one in sends if one.kind is Kind.OK)
    judged = 0
    # What it takes to begin at all is not measured, if it begins.
    first_ns = done[0] if done else sends[0].begun_ns
    for begin, end in _calm(first_ns, sends[-1].begun_ns, trouble, recovery_ns):
        for at in range(begin, end - WINDOW_NS + 1, WINDOW_NS):
            judged += 1
            count = bisect_left(done, at + WINDOW_NS) - bisect_left(done, at)
            if count < WINDOW_OK_MIN and not _was_little(sends, at, at + WINDOW_NS):
                since_s = (at - first_ns) / 1e9
                told = f"{count} writes were acknowledged in 20 s from second {since_s:.0f} on"
                found.add(f"{told}, though nothing was broken")
    return judged


def _calm(
    begin: int, end: int, trouble: Sequence[tuple[int, int]], recovery_ns: int
) -> Iterator[tuple[int, int]]:
    """Yield the healthy times between two moments."""
    for broken, healed in trouble:
        if broken > begin:
            yield begin, min(broken, end)
        begin = max(begin, min(healed, NEVER_NS - recovery_ns) + recovery_ns)
    if begin < end:
        yield begin, end


def _was_little(sends: Sequence[Send], begin: int, end: int) -> bool:
    """Whether nearly all that was on its way in a window was acknowledged soon."""
    mine = [one for one in sends if one.begun_ns < end and one.ended_ns >= begin]
    served = sum(1 for one in mine if one.kind is Kind.OK and one.ended_ns < end)
    return served * 10 >= len(mine) * _SERVED_TENTHS


def _judge_heals(
    case: Case, sends: Sequence[Send], trouble: Sequence[tuple[int, int]], book: Excuses
) -> int:
    """After everything was mended, writes are acknowledged soon: at all, and of each partition."""
    limit_s = case.evidence.facts.recovery_s
    judged, is_last_judged = 0, True
    for at, (_, healed) in enumerate(trouble):
        until = min(healed, NEVER_NS) + int(limit_s * 1e9)
        if healed >= NEVER_NS or (at + 1 < len(trouble) and trouble[at + 1][0] < until):
            continue
        tried = [one for one in sends if one.begun_ns < until and one.ended_ns > healed]
        # Only if somebody was still writing when the time was over.
        is_last_judged = bool(tried) and any(
            one.begun_ns >= until or one.ended_ns >= until for one in sends
        )
        if is_last_judged:
            judged += 1
            _judge_heal(case, _Heal(tried, healed, until, limit_s), book)
    if sends and not is_last_judged:
        book.unjudged("recovery", "nobody wrote for long enough after the last heal")
    return judged


class _Heal(NamedTuple):
    """A heal, until when it must have come to something, and who tried meanwhile."""

    tried: Sequence[Send]
    healed: int
    until: int
    limit_s: float


def _judge_heal(case: Case, heal: _Heal, book: Excuses) -> None:
    served = [one for one in heal.tried if one.kind is Kind.OK and one.ended_ns <= heal.until]
    if not served:
        told = f"nothing was acknowledged within {heal.limit_s:g} s after all was mended"
        events = (one.index for one in heal.tried[:3])
        book.too_often(told, heal.healed, heal.until, *events)
        return
    # A topic that is not among the facts was deleted before the end.
    kept = [one for one in heal.tried if one.place.topic in case.evidence.facts.topics]
    for place in _unserved(kept, served, heal):
        told = f"nothing was acknowledged for {place} within {heal.limit_s:g} s"
        book.too_often(f"{told} after all was mended", heal.healed, heal.until)


def _unserved(tried: Sequence[Send], served: Sequence[Send], heal: _Heal) -> Iterator[Place]:
    good = {one.place for one in served}
    middle = (heal.healed + heal.until) // 2
    for place in sorted({one.place for one in tried} - good):
        mine = [one for one in tried if one.place == place and one.begun_ns > heal.healed]
        ended = [one for one in mine if one.ended_ns <= heal.until]
        # Somebody who gave up soon does not know what would have come later.
        is_late = any(one.begun_ns > middle for one in ended)
        is_hanging = any(one.begun_ns <= middle and one.ended_ns > heal.until for one in mine)
        if is_hanging or (len(ended) >= _TRIED_MIN and is_late):
            yield place


def _judge_reads(case: Case, found: Findings) -> int:
    reads = [one for one in case.evidence.finals if one.source == LEADER]
    for one in reads:
        if one.high_watermark < 0:
            found.add(f"{one.place} could not be read at the end, turn {one.turn}")
    return len(reads)


def _judge_copies(case: Case, trouble: Sequence[tuple[int, int]], book: Excuses) -> int:
    """A nemesis notes whether all copies came in sync when it had mended everything, and when."""
    judged, limit_s = 0, case.evidence.facts.recovery_s
    for note in case.evidence.faults:
        is_broken = any(begin <= note.t_ns < end for begin, end in trouble)
        if note.step != "note" or note.fault != "whole" or is_broken:
            continue
        judged += 1
        after_s = float(note.facts.get("after_s", 0.0))
        began_ns = note.t_ns - int(after_s * 1e9)
        if not note.facts.get("is_whole", True):
            told = f"copies were not in sync {after_s:g} s after all was mended"
            book.too_often(f"{told}: {note.facts.get('isr')}", began_ns, note.t_ns)
        else:
            what = "until all copies were in sync again it took"
            book.took(what, after_s, limit_s, begin_ns=began_ns, end_ns=note.t_ns)
    return judged
