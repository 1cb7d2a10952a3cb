"""Row 40: what a single scenario must hold beside all other rows (`ottla.chaos.limits`).

Writes, outages, elections, memory and ends of nodes are here; in-sync sets are in `in_sync.py`.

Only writes that ask for an acknowledgement count. An outage is that of `figures.py`. Elections are
terms of the quorum, as a nemesis asked for them before the first fault and when all was mended: one
that nobody won counts too. Memory is the most that a node ever held, by its kernel.

Not here: limits on recovery, which every scenario has (`health.py`); what excuses (`excuses.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.excuses import Excuses
from ottla.chaos.checkers.findings import not_judged, ruled
from ottla.chaos.checkers.in_sync import judge_in_sync
from ottla.chaos.checkers.sends import Send
from ottla.chaos.checkers.starving import Starving
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.evidence import FaultEvent, Verdict
from ottla.chaos.figures import figures_of
from ottla.chaos.history import Kind

ROW: Final = 40
_MB: Final = 1_000_000
_MINUTE_NS: Final = 60_000_000_000


def judge_limits(case: Case, traced: Traced | None) -> Verdict:
    limits = case.evidence.facts.limits
    if not limits.names:
        return not_judged(ROW, "this scenario has no limits of its own")
    book = Excuses(Starving(case.evidence.loads))
    for judge in _JUDGES:
        judge(case, book)
    judge_in_sync(case, traced, book)
    if book.broken.count or not book.doubts:
        return ruled(ROW, book.broken, book.counted, "; ".join(book.said))
    return not_judged(ROW, "; ".join(book.doubts[:3]))


# ── Writes ────────────────────────────────────────────────────────────────────────────────────


def _asking(case: Case) -> list[Send]:
    return [one for one in chain(*case.sends.values()) if one.acks != 0]


def _refused(case: Case, book: Excuses) -> None:
    most = case.evidence.facts.limits.refused_max
    if most is not None:
        mine = [one for one in _asking(case) if one.kind is Kind.FAIL]
        _few(mine, most, "writes were refused", book)


def _unknown(case: Case, book: Excuses) -> None:
    limits, tried = case.evidence.facts.limits, _asking(case)
    mine = [one for one in tried if one.kind is Kind.UNKNOWN]
    if limits.unknown_max is not None:
        _few(mine, limits.unknown_max, "writes are of unknown outcome", book)
    share = limits.unknown_share_max
    if share is not None:
        _few(mine, int(len(tried) * share), f"writes of {len(tried)} are of unknown outcome", book)


def _few(mine: Sequence[Send], most: int, what: str, book: Excuses) -> None:
    """Say that it were so many, and not more than that."""
    book.said.append(f"{len(mine)} {what}, of {most} allowed")
    if len(mine) <= most:
        return
    sound = [one for one in mine if not book.starving.during(one.begun_ns, one.ended_ns)]
    # Those that a starved machine may have made do not count, if the others are too many already.
    told = sound if len(sound) > most else mine
    last = max(told, key=lambda one: one.begun_ns)
    sentence = f"{len(told)} {what}, not {most} at most: {last} the last"
    book.too_often(sentence, last.begun_ns, last.ended_ns, *(one.index for one in told[:3]))


# ── Outages ───────────────────────────────────────────────────────────────────────────────────


def _outages(case: Case, book: Excuses) -> None:
    limit_s = case.evidence.facts.limits.outage_max_s
    if limit_s is None:
        return
    found = figures_of(case.evidence).faults
    if not found:
        book.unjudged("an outage", "nothing was broken")
        return
    longest = max(found, key=lambda one: one.outage_s)
    book.said.append(f"the longest outage was {longest.outage_s:.2f} s, of {limit_s:g} s allowed")
    for one in found:
        begin_ns = one.outage_began_ns
        what = f"{one.place} was without service on account of {one.span.fault} for"
        end_ns = begin_ns + int(one.outage_s * 1e9)
        book.took(what, one.outage_s, limit_s, begin_ns=begin_ns, end_ns=end_ns)


# ── The quorum, and nodes ─────────────────────────────────────────────────────────────────────


def _elections(case: Case, book: Excuses) -> None:
    most = case.evidence.facts.limits.elections_per_min
    if most is None:
        return
    told = [(one.t_ns, int(one.facts["term"])) for one in _notes(case, "term")]
    if len(told) < 2:
        book.unjudged("the number of elections", "nobody told the term of the quorum twice")
        return
    (begin_ns, first), (end_ns, last) = told[0], told[-1]
    minutes = max(1, end_ns - begin_ns) / _MINUTE_NS
    rate = (last - first) / minutes
    book.said.append(f"{rate:.1f} elections a minute, of fewer than {most:g}")
    if rate >= most:
        sentence = f"the term went from {first} to {last} in {minutes * 60:.0f} s"
        book.too_often(f"{sentence}, {rate:.1f} a minute", begin_ns, end_ns)


def _memory(case: Case, book: Excuses) -> None:
    most, facts = case.evidence.facts.limits.memory_max_mb, case.evidence.facts
    # A system that is not ours has a size of its own.
    if most is None or facts.backend == "kafka":
        return
    if not case.evidence.uses:
        book.unjudged("memory", "nobody has looked at what nodes use")
        return
    peaks = dict[int, int]()
    for one in case.evidence.uses:
        peaks[one.node] = max(peaks.get(one.node, 0), one.rss_bytes, one.rss_peak_bytes)
    book.said.append(f"at most {max(peaks.values()) // _MB} MB of memory, of {most} allowed")
    for node, peak in sorted(peaks.items()):
        if peak > most * _MB:
            book.broken.add(f"node {node} held {peak // _MB} MB of memory, not {most}")


def _ends(case: Case, book: Excuses) -> None:
    most = case.evidence.facts.limits.ended_max
    if most is None:
        return
    ended = [*_notes(case, "ended")]
    book.said.append(f"{len(ended)} nodes ended by themselves, of {most} allowed")
    if len(ended) > most:
        nodes = sorted({node for one in ended for node in one.targets})
        book.broken.add(f"nodes {nodes} ended by themselves")


def _notes(case: Case, name: str) -> Iterator[FaultEvent]:
    return (one for one in case.evidence.faults if one.step == "note" and one.fault == name)


_JUDGES: Final[tuple[Callable[[Case, Excuses], None], ...]] = (
    _refused, _unknown, _outages, _elections, _memory, _ends,
)  # fmt: skip
