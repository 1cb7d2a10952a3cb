"""Rows 3, 4 and 16: what was acknowledged is kept.

With acks=all there is no excuse but deletion by intention. With acks=1 an acknowledged record may
be lost when the leader changes, and only then. With acks=0 nothing is promised.

Not here: what must not be there (`contents.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.chaos.checkers.case import LEADER, Case, Reading
from ottla.chaos.checkers.changes import LeaderChanges
from ottla.chaos.checkers.copies import must_hold_all, silent_replicas, unread_copies
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.sends import Send
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.evidence import ReplicaPrint, Verdict
from ottla.chaos.history import Kind, Place

_UNREAD: Final = "nothing was read at the end"


def judge_keeping(case: Case, traced: Traced | None) -> Iterator[Verdict]:
    yield _lost(case, LeaderChanges(case.evidence, traced))
    yield _unseen(case)
    yield _lost_on_node(case, traced)


def _lost(case: Case, changes: LeaderChanges) -> Verdict:
    """Row 3: somebody has read past it, and nobody has ever read it."""
    if not case.shown:
        return not_judged(3, "nobody read anything")
    broken, counted = Findings(), Findings()
    for place, sends in case.sends.items():
        seen = case.shown.get(place)
        if seen is None:
            continue
        bound = max(seen.where.values(), default=-1)
        for send in sends:
            if send.value in seen.where or not _is_due(send, bound):
                continue
            if case.may_be_gone(place, send.offset, send.value):
                continue
            excuse = "" if send.is_promised else changes.excuse(send)
            told = f"{send.value} was acknowledged at {place} {send.offset} (acks={send.acks})"
            past = f"it was never read, though {place} was read up to {bound}"
            target = counted if excuse else broken
            target.add(f"{told}; {past}{excuse and ': ' + excuse}", send.index)
    unheard = sum(
        1
        for place, sends in case.sends.items()
        for one in sends
        if one.acks == 0 and place in case.shown and one.value not in case.shown[place].where
    )
    said = f"{unheard} sends with acks=0 never appeared" if unheard else ""
    return ruled(3, broken, counted, said)


def _is_due(send: Send, bound: int) -> bool:
    """Whether it was acknowledged, and below what somebody has read."""
    return send.kind is Kind.OK and send.acks != 0 and 0 <= send.offset <= bound


def _unseen(case: Case) -> Verdict:
    """Row 4: every final read has all that was promised."""
    found = Findings()
    for reading in case.finals:
        for send in case.promised(reading.read.place):
            _look_for(case, reading, send, found)
    unread = _unread(case)
    if found.count or (case.finals and not unread):
        return ruled(4, found)
    names = ", ".join(f"{place} in turn {turn}" for place, turn in unread[:5])
    return not_judged(4, f"not read at the end: {names}" if unread else _UNREAD)


def _unread(case: Case) -> list[tuple[Place, int]]:
    """Return the partitions that have acknowledged records, and the turns that did not read them.

    What was read before the restart and not after it says nothing of what the restart left.
    """
    read = {(one.read.place, one.read.turn) for one in case.finals}
    turns = sorted({one.turn for one in case.evidence.finals if one.source == LEADER}) or [1]
    return [
        (place, turn)
        for place in sorted(case.sends)
        # A topic that is not among the facts was deleted before the end.
        if place.topic in case.evidence.facts.topics
        if any(True for _ in case.promised(place))
        for turn in turns
        if (place, turn) not in read
    ]


def _look_for(case: Case, reading: Reading, send: Send, found: Findings) -> None:
    if not reading.covers(send.ended_ns):
        return
    if send.offset < 0:
        if send.value in reading.where:
            return
    elif reading.at.get(send.offset) == send.value:
        return
    place, is_empty = send.place, send.offset not in reading.at
    if is_empty and case.may_be_gone(place, send.offset, send.value, reading):
        return
    where = "" if send.offset < 0 else f" {send.offset}"
    at = reading.where.get(send.value)
    now = f"it is at {at}" if at is not None else f"it is not there ({_side(reading, send)})"
    told = f"{send.value} was acknowledged at {place}{where}; in {reading} {now}"
    found.add(told, send.index)


def _side(reading: Reading, send: Send) -> str:
    """Say whether the log has only what is before it, only what is behind it, or both."""
    if send.offset < 0 or not reading.at:
        return "lost"
    is_before = any(at < send.offset for at in (min(reading.at), max(reading.at)))
    is_behind = any(at > send.offset for at in (min(reading.at), max(reading.at)))
    kinds = {(True, True): "from the middle", (True, False): "at the end"}
    return f"lost {kinds.get((is_before, is_behind), 'at the beginning')}"


def _lost_on_node(case: Case, traced: Traced | None) -> Verdict:
    """Row 16: the same for every replica that is in sync at the end."""
    prints = case.evidence.replicas
    if not case.replica_reads and not prints:
        return not_judged(16, "replicas cannot be looked into")
    found = Findings()
    for reading in case.replica_reads:
        if must_hold_all(case, traced, reading):
            for send in case.promised(reading.read.place):
                _look_for(case, reading, send, found)
    read = {(one.read.place, one.read.source, one.read.turn) for one in case.replica_reads}
    for one in prints or ():
        read_ns = case.read_ns(one.place, one.turn)
        is_in_sync = traced is None or traced.is_in_sync(one.place, one.node, read_ns)
        if is_in_sync and (one.place, f"node-{one.node}", one.turn) not in read:
            _look_in_batches(case, one, found)
    for place, told in (*silent_replicas(case, traced), *unread_copies(case, traced)):
        if any(True for _ in case.promised(place)):
            found.add(told)
    return ruled(16, found)


def _look_in_batches(case: Case, replica: ReplicaPrint, found: Findings) -> None:
    """Without its records: at least there is a batch that goes over each acknowledged offset."""
    # Of these the records are read when all nodes are down.
    if case.is_compacted(replica.place):
        return
    covered = set[int]()
    for batch in replica.batches:
        covered.update(range(batch.base_offset, batch.last_offset + 1))
    for send in case.promised(replica.place):
        is_known = send.offset >= replica.start_offset and not replica.lacks(send.offset)
        if is_known and send.offset not in covered:
            told = f"{send.value} was acknowledged at {replica.place} {send.offset}"
            found.add(f"{told}; node {replica.node} has no batch there", send.index)
