"""Rows 1, 2, 5, 6, 7: what may stand in a log at all.

Not here: what must stand there (`keeping.py`), in which order (`order.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.chaos.checkers.case import Case, Reading
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.sends import NEVER_NS, Send, client_of
from ottla.chaos.evidence import Verdict
from ottla.chaos.history import Kind, Place


def judge_contents(case: Case) -> Iterator[Verdict]:
    yield _inconsistent(case)
    yield _duplicates(case)
    yield _vanished(case)
    yield from _strangers(case)


def _inconsistent(case: Case) -> Verdict:
    found = Findings()
    for place, seen in case.shown.items():
        for offset, others in seen.others.items():
            events = (seen.first.get(offset, (0, -1))[1], *(one.event for one in others))
            values = [seen.at[offset], *(one.value for one in others)]
            told = " and ".join(str(value) for value in values)
            found.add(f"{place} {offset} is {told}", *(event for event in events if event >= 0))
    for place in case.sends:
        _add_acknowledged(case, place, found)
    return ruled(1, found)


def _add_acknowledged(case: Case, place: Place, found: Findings) -> None:
    """Compare acknowledgements with what was shown, and with each other."""
    seen, taken = case.shown.get(place), dict[int, Send]()
    for send in case.promised(place):
        if send.offset < 0:
            continue
        other = taken.setdefault(send.offset, send)
        if other is not send:
            told = f"{place} {send.offset} was acknowledged for {other.value} and {send.value}"
            found.add(told, other.index, send.index)
        value = send.value if seen is None else seen.at.get(send.offset, send.value)
        if value != send.value:
            found.add(
                f"{place} {send.offset} was acknowledged for {send.value}, and {value} is there",
                send.index,
            )


def _duplicates(case: Case) -> Verdict:
    found, counted = Findings(), Findings()
    for place, seen in case.shown.items():
        for value, offsets in seen.again.items():
            send = case.writer.get(value)
            events = [] if send is None else [send.index]
            events += [seen.first[offset][1] for offset in offsets if offset in seen.first]
            is_own_doing = send is not None and _is_own_doing(case, send)
            told = f"{value} is in {place} at {sorted(offsets)}"
            (counted if is_own_doing else found).add(told, *events)
    return ruled(2, found, counted)


def _is_own_doing(case: Case, send: Send) -> bool:
    """Whether a client has itself to thank for what is there twice.

    It sent again without a sequence number. Or it gave up on a record while this one was under way:
    then libraries begin a new producer epoch, and send in it what they had sent in the one before.
    """
    if not send.is_idempotent:
        return send.attempts != 1
    if send.transaction is not None:
        # Who gives up on a record aborts the transaction, and sends nothing of it again.
        return False
    moments_ns = case.given_up.get(client_of(send), ())
    return any(send.begun_ns < moment_ns < send.ended_ns for moment_ns in moments_ns)


def _vanished(case: Case) -> Verdict:
    if not case.finals:
        return not_judged(5, "nothing was read at the end")
    found = Findings()
    for reading in case.finals:
        place = reading.read.place
        seen = case.polled.get(place)
        if seen is not None:
            for offset, value, event, moment_ns in seen.sights():
                if moment_ns is None or reading.covers(moment_ns):
                    _look_again(case, reading, offset, value, event, found)
        for before in case.finals:
            if before.read.place == place and before.read.turn < reading.read.turn:
                for offset, value in before.at.items():
                    _look_again(case, reading, offset, value, -1, found)
    return ruled(5, found)


def _look_again(
    case: Case, reading: Reading, offset: int, value: str | None, event: int, found: Findings
) -> None:
    is_empty = offset not in reading.at
    if not is_empty and reading.at[offset] == value:
        return
    place = reading.read.place
    if is_empty and case.may_be_gone(place, offset, value, reading):
        return
    now = "nothing" if is_empty else str(reading.at[offset])
    told = f"{value} was shown at {place} {offset}; in {reading} there is {now}"
    found.add(told, *([event] if event >= 0 else []))


def _strangers(case: Case) -> Iterator[Verdict]:
    """Rows 6 and 7: what was refused, and what nobody sent."""
    refused, phantoms = Findings(), Findings()
    for place, seen in case.shown.items():
        for offset, value, event, moment_ns in seen.sights():
            send = None if value is None else case.writer.get(value)
            if _is_strange(send, place, NEVER_NS if moment_ns is None else moment_ns):
                _tell(send, value, f"{place} {offset}", place, event, refused, phantoms)
    for reading in case.replica_reads:
        place = reading.read.place
        for offset, value in reading.at.items():
            send = None if value is None else case.writer.get(value)
            if _is_strange(send, place, NEVER_NS):
                where = f"{place} {offset} ({reading.read.source})"
                _tell(send, value, where, place, -1, refused, phantoms)
    yield ruled(6, refused)
    yield ruled(7, phantoms)


def _is_strange(send: Send | None, place: Place, moment_ns: int) -> bool:
    """Whether something that was shown at this moment should not have been."""
    return (
        send is None or send.kind is Kind.FAIL or send.place != place or moment_ns < send.begun_ns
    )


def _tell(
    send: Send | None,
    value: str | None,
    where: str,
    place: Place,
    event: int,
    refused: Findings,
    phantoms: Findings,
) -> None:
    events = [event] if event >= 0 else []
    if send is None:
        told = "no payload of ours" if value is None else f"{value}, which nobody sent,"
        phantoms.add(f"{told} is at {where}", *events)
    elif send.place != place:
        phantoms.add(f"{value} is at {where}, and was sent to {send.place}", send.index, *events)
    elif send.kind is Kind.FAIL:
        refused.add(f"{value} is at {where}, and was refused", send.index, *events)
    else:
        phantoms.add(f"{value} was shown at {where} before it was sent", send.index, *events)
