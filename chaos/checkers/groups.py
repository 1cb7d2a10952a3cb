"""Rows 21 and 22: what groups have committed, and transactions, which do not exist yet.

A commit is an event `commit` with the group as its value; reading what is committed is `committed`.
Whoever was given a partition begins where the group has committed, so commits of a group go up,
whoever makes them; unless a reader was sent back, by `seek` or `assign`.

Not here: how groups share partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.evidence import Verdict
from ottla.chaos.history import Event, Kind, Operation, Place

_SENT_BACK: Final = frozenset({"assign", "seek"})


def judge_groups(case: Case) -> Iterator[Verdict]:
    commits = [one for one in case.operations if one.begin.function in ("commit", "committed")]
    if commits:
        yield _offsets(case, commits)
    else:
        yield not_judged(21, "no group has committed anything")
    yield not_judged(22, "there are no transactions")


def _offsets(case: Case, commits: list[Operation]) -> Verdict:
    found = Findings()
    ends = {place: one.read.high_watermark for place, one in case.last_finals().items()}
    sent_back = [one for one in case.evidence.events if one.function in _SENT_BACK]
    # By group and partition: the highest offset that is surely committed, and who has ended it.
    highest = dict[tuple[str | None, Place], tuple[int, Event]]()
    for begin, end in _in_order(commits):
        place, offset = begin.place, end.offset if end.offset is not None else begin.offset
        if place is None or offset is None:
            continue
        group = begin.value
        before = highest.get((group, place))
        if before is not None and offset < before[0] and _must_keep(before[1], begin, sent_back):
            told = f"the offset of {group} in {place} was {before[0]}, and later {offset}"
            found.add(told, before[1].index, end.index)
        if offset > ends.get(place, offset):
            told = f"{group} committed {offset} in {place}, which ends at {ends[place]}"
            found.add(told, end.index)
        if begin.function == "commit" and (before is None or offset >= before[0]):
            highest[group, place] = (offset, end)
    return ruled(21, found)


def _in_order(commits: list[Operation]) -> list[tuple[Event, Event]]:
    done = [(one.begin, one.end) for one in commits if one.end is not None and one.kind is Kind.OK]
    return sorted(done, key=lambda pair: pair[1].t_ns)


def _must_keep(committed: Event, begin: Event, sent_back: list[Event]) -> bool:
    """Whether what was committed may not be undone by what began here."""
    if committed.t_ns >= begin.t_ns:
        return False
    return not any(
        one.process == begin.process and one.index > committed.index for one in sent_back
    )
