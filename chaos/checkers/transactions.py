"""Rows 22 and 28 to 33: what readers of committed records are shown of transactions.

Kafka promises that a transaction is seen whole or not at all, and only when it is committed. It
does not promise that transactions do not overlap: records of two may lie between each other, in one
order in this partition and in the other in that one. So a circle in which somebody only wrote
before somebody else is counted, and one in which everybody has read the other is broken.

Not here: whether records are in the log at all (`keeping.py`), which transactions there were
(`ledger.py`), whether what is prepared waits (`prepared.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

from ottla.chaos.checkers.case import LEADER, Case
from ottla.chaos.checkers.circles import circles_in
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.ledger import Ledger, Transaction
from ottla.chaos.checkers.sends import Send
from ottla.chaos.evidence import FinalRead, Verdict
from ottla.chaos.history import Kind, Operation, Place

_ROWS: Final = (22, 28, 29, 30, 31, 32, 33)
_NONE: Final = "there are no transactions"
_DECIDING: Final = ("keep-txn", "commit-txn", "abort-txn")
_UNREAD: Final = "what is committed was not read at the end"


def judge_transactions(case: Case) -> Iterator[Verdict]:
    ledger = case.ledger
    if not ledger:
        yield from (not_judged(row, _NONE) for row in _ROWS)
        return
    torn, lost = Findings(), Findings()
    _look_at_passages(case, ledger, torn, lost)
    _look_at_finals(case, ledger, torn, lost)
    yield ruled(22, torn)
    yield _aborted(ledger)
    yield _circles(case, ledger)
    yield _too_early(ledger)
    if ledger.finals:
        yield ruled(31, lost)
        yield _offsets(case, ledger)
        yield _standstill(case, ledger)
    else:
        yield ruled(31, lost) if lost.count else not_judged(31, _UNREAD)
        yield not_judged(32, _UNREAD)
        yield not_judged(33, _UNREAD)


# ── 22 and 31: all of it, or nothing ──────────────────────────────────────────────────────────


def _look_at_passages(case: Case, ledger: Ledger, torn: Findings, lost: Findings) -> None:
    """A reader that goes past a record of a transaction that is binding has to be shown it."""
    binding = defaultdict[Place, dict[int, Send]](dict)
    for one in ledger.transactions.values():
        if ledger.is_binding(one):
            for send in one.sends:
                offset = case.position(send)
                if offset is not None and offset >= case.starts.get(send.place, (0, None))[0]:
                    binding[send.place][offset] = send
    ordered = {place: sorted(found) for place, found in binding.items()}
    for passage in ledger.passages():
        offsets = ordered.get(passage.place, [])
        begin, end = bisect_left(offsets, passage.start), bisect_left(offsets, passage.end)
        for offset in offsets[begin:end]:
            if offset not in passage.shown:
                send = binding[passage.place][offset]
                told = f"{passage.process} went past {send.value} at {passage.place} {offset}"
                _add_missing(ledger, send, told, torn, lost)


def _look_at_finals(case: Case, ledger: Ledger, torn: Findings, lost: Findings) -> None:
    ends = ends_of(case)
    values = {
        key: {one.value for one in read.records if one.value is not None}
        for key, read in ledger.finals.items()
    }
    turns = sorted({turn for _, turn in ledger.finals})
    for one in ledger.transactions.values():
        if not ledger.is_binding(one):
            continue
        for send in one.sends:
            for turn in turns:
                key = send.place, turn
                read = ledger.finals.get(key)
                if read is None or send.value in values[key] or not is_due(case, read, send, ends):
                    continue
                told = f"{send.value} of {send.place} is not among what is committed, turn {turn}"
                _add_missing(ledger, send, told, torn, lost)


def is_due(case: Case, read: FinalRead, send: Send, ends: Mapping[tuple[Place, int], int]) -> bool:
    """Whether a read of what is committed has gone past where a record should be."""
    offset = case.position(send)
    if offset is None:
        # It is nowhere in the log. Who commits has written everything before.
        return read.high_watermark >= ends.get((read.place, read.turn), 1 << 62)
    return read.start_offset <= offset < read.high_watermark


def ends_of(case: Case) -> dict[tuple[Place, int], int]:
    """Return where the logs ended, but for markers.

    What is committed is read first. Then every id is held anew, which may write markers behind it.
    """
    return {
        (one.read.place, one.read.turn): _end_of_records(one.read)
        for one in case.finals
        if one.read.source == LEADER
    }


def _end_of_records(read: FinalRead) -> int:
    end = read.high_watermark
    for record in reversed(read.records):
        if not record.is_control or record.offset != end - 1:
            break
        end -= 1
    return end


def _add_missing(ledger: Ledger, send: Send, told: str, torn: Findings, lost: Findings) -> None:
    transaction = ledger.writer[send.value]
    if transaction.name in ledger.shown:
        torn.add(f"{told}; other records of {transaction.name} are", send.index, transaction.asked)
    else:
        lost.add(f"{told}; {transaction.name} is committed", send.index, transaction.asked)


# ── 28 and 30: nothing else, and not before ───────────────────────────────────────────────────


def _aborted(ledger: Ledger) -> Verdict:
    """Row 28: what is surely not committed is not shown (G1a)."""
    found = Findings()
    for place, offset, value, event in ledger.sights():
        written = ledger.writer.get(value)
        if written is not None and written.kind is Kind.FAIL:
            told = f"{value} at {place} {offset} was shown, and {written.name} is not committed"
            found.add(told, *([] if event is None else [event.index]), written.index)
    return ruled(28, found)


def _too_early(ledger: Ledger) -> Verdict:
    """Row 30: what was shown, to itself too, had been asked to be committed by then."""
    found = Findings()
    for place, offset, value, event in ledger.sights():
        written = ledger.writer.get(value)
        if event is None or written is None or written.asked_ns is None:
            continue
        if event.transaction == written.name or event.t_ns < written.asked_ns:
            told = f"{event.process} was shown {value} at {place} {offset}"
            found.add(
                f"{told} before {written.name} was to be committed", event.index, written.asked
            )
    return ruled(30, found)


# ── 29: who depends on whom ───────────────────────────────────────────────────────────────────


def _circles(case: Case, ledger: Ledger) -> Verdict:
    """Row 29 (G1c): nobody has read what was written by one that has read from it."""
    read, written = _edges_of_reads(ledger), _edges_of_writes(case, ledger)
    found, counted = Findings(), Findings()
    for circle in circles_in(read):
        found.add(_told(circle), *(ledger.transactions[one].index for one in circle[:3]))
    both = {name: read.get(name, set()) | written.get(name, set()) for name in {*read, *written}}
    for circle in circles_in(both):
        inside = set(circle)
        if any(read.get(one, set()) & inside for one in circle):
            counted.add(f"{_told(circle)}, if who wrote first counts")
    return ruled(29, found, counted)


def _told(circle: list[str]) -> str:
    names = ", ".join(circle[:4]) + (f" and {len(circle) - 4} more" if len(circle) > 4 else "")
    return f"{names} depend on each other"


def _edges_of_reads(ledger: Ledger) -> dict[str, set[str]]:
    """From who wrote to who was shown it; only transactions that are binding."""
    edges = defaultdict[str, set[str]](set)
    for one in ledger.transactions.values():
        for _, shown in one.reads:
            written = None if shown.value is None else ledger.writer.get(shown.value)
            if written is not None and written is not one and ledger.is_binding(one):
                edges[written.name].add(one.name)
    return dict(edges)


def _edges_of_writes(case: Case, ledger: Ledger) -> dict[str, set[str]]:
    """From each record of a partition to the next one of another transaction."""
    lying = defaultdict[Place, list[tuple[int, str]]](list)
    for one in filter(ledger.is_binding, ledger.transactions.values()):
        for send in one.sends:
            offset = case.position(send)
            if offset is not None:
                lying[send.place].append((offset, one.name))
    edges = defaultdict[str, set[str]](set)
    for rows in lying.values():
        for (_, before), (_, after) in pairwise(sorted(rows)):
            if before != after:
                edges[before].add(after)
    return dict(edges)


# ── 32: offsets ───────────────────────────────────────────────────────────────────────────────


def _offsets(case: Case, ledger: Ledger) -> Verdict:
    """Row 32: a group stands where the last transaction with its offsets that is there has left it.

    All of a group are of one producer, one after another; each reads on where the group stands.
    """
    by_group = defaultdict[str, list[Transaction]](list)
    for one in sorted(ledger.transactions.values(), key=lambda one: one.index):
        if one.group:
            by_group[one.group].append(one)
    if not by_group:
        return not_judged(32, "no transaction has committed offsets")
    found = Findings()
    for group, transactions in by_group.items():
        stands, last = dict[Place, int](), ""
        for one in transactions:
            for place, offset in one.began.items():
                if offset != stands.get(place, 0):
                    told = f"{one.name} found {group} at {offset} in {place}"
                    found.add(f"{told}, and {last or 'nobody'} left it", one.index)
                stands[place] = offset
            if ledger.is_binding(one):
                stands |= one.ended
                last = one.name
        _look_at_the_end(case, group, stands, last, found)
    return ruled(32, found)


def _look_at_the_end(
    case: Case, group: str, stands: Mapping[Place, int], last: str, found: Findings
) -> None:
    for event in case.evidence.events:
        is_look = event.function == "committed" and event.phase == "final"
        if is_look and event.kind is Kind.OK and event.value == group:
            for place, offset in event.offsets:
                if max(0, offset) != stands.get(place, 0):
                    told = f"{group} stands at {offset} in {place} at the end"
                    found.add(f"{told}, and {last} left it at {stands.get(place, 0)}", event.index)


# ── 33: nobody waits for ever ─────────────────────────────────────────────────────────────────


def _is_last_decision(one: Operation) -> bool:
    return one.begin.function in _DECIDING and one.begin.phase == "final"


def _standstill(case: Case, ledger: Ledger) -> Verdict:
    """Row 33: at the end, everything is decided, and every transactional id can be held."""
    found, ends = Findings(), ends_of(case)
    for one in case.operations:
        is_last = one.begin.function == "hold" and one.begin.phase == "final"
        if is_last and one.kind is not Kind.OK:
            why = None if one.end is None else one.end.error
            found.add(f"nobody can hold {one.begin.value} at the end: {why}", one.index)
        if _is_last_decision(one) and one.kind is not Kind.OK:
            what = one.begin.transaction or "what may be prepared"
            found.add(f"{one.begin.function} of {what} came to nothing at the end", one.index)
    for (place, turn), read in sorted(ledger.finals.items()):
        end = ends.get((place, turn), -1)
        if read.high_watermark < end:
            told = f"readers of committed records stand at {read.high_watermark} in {place}"
            found.add(f"{told}, which ends at {end}, turn {turn}")
    return ruled(33, found)
