"""Rows 8 to 11: the order in which records are shown, and in which they lie.

A reader may not skip a record that is known: one that anybody was shown, or that was acknowledged
with acks=all. An offset of which nobody knows anything is row 13's concern.

Not here: holes (`shape.py`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.chaos.checkers.case import Case
from ottla.chaos.checkers.findings import Findings, not_judged, ruled
from ottla.chaos.checkers.sends import NEVER_NS, Send
from ottla.chaos.evidence import Verdict
from ottla.chaos.history import Event, Kind, Place

# After these a reader is elsewhere.
_RESETS: Final = frozenset({"assign", "subscribe", "seek", "crash"})


def judge_order(case: Case) -> Iterator[Verdict]:
    yield from _Polls(case).verdicts()
    yield _out_of_turn(case)
    yield _out_of_real_time(case)


class _Known(NamedTuple):
    """What is known of a partition, in the order of its offsets."""

    offsets: list[int]
    values: dict[int, str | None]


class _Polls:
    """Follows every reader from poll to poll (rows 8 and 9)."""

    def __init__(self, case: Case) -> None:
        self._case: Final = case
        self._known: Final = dict[Place, _Known]()
        # By process: where it is in each partition, and whether a group decides what it reads.
        self._positions: Final = dict[str, dict[Place, tuple[int, int]]]()
        self._is_member: Final = dict[str, bool]()
        self._inside, self._across, self._counted = Findings(), Findings(), Findings()

    def verdicts(self) -> Iterator[Verdict]:
        if not self._case.polls:
            why = "nobody polled"
            yield from (not_judged(8, why), not_judged(9, why))
            return
        for event in self._case.evidence.events:
            if event.function in _RESETS:
                self._reset(event)
            elif event.function == "poll" and event.shown:
                self._follow(event)
        yield ruled(8, self._inside)
        yield ruled(9, self._across, self._counted)

    def _reset(self, event: Event) -> None:
        """It may be anywhere from now on; or, in one partition, just where it was sent."""
        if event.function != "seek":
            self._is_member[event.process] = event.function == "subscribe"
        if event.place is None:
            self._positions.pop(event.process, None)
        elif event.offset is None:
            self._positions.get(event.process, {}).pop(event.place, None)
        else:
            positions = self._positions.setdefault(event.process, {})
            positions[event.place] = (event.offset - 1, event.index)

    def _follow(self, event: Event) -> None:
        first, last = dict[Place, int](), dict[Place, int]()
        for place, offset, _, _ in event.shown:
            before = last.get(place)
            if before is None:
                first[place] = offset
            elif offset != before + 1 and place not in event.rebalanced:
                told = self._wrong(place, before, offset)
                if told:
                    self._inside.add(f"{event.process} {told} in one poll", event.index)
            last[place] = offset
        # A poll that did not succeed has shown what it has shown, but its reader did not go on.
        if event.kind is Kind.OK:
            self._compare(event, first, last)

    def _compare(self, event: Event, first: dict[Place, int], last: dict[Place, int]) -> None:
        positions = self._positions.setdefault(event.process, {})
        for place, offset in first.items():
            before, index = positions.get(place, (offset - 1, -1))
            if offset != before + 1 and place not in event.rebalanced:
                told = self._wrong(place, before, offset)
                target = self._counted if self._is_member.get(event.process) else self._across
                if told:
                    target.add(f"{event.process} {told}", index, event.index)
            positions[place] = (last[place], event.index)

    def _wrong(self, place: Place, before: int, after: int) -> str:
        """Return what is wrong with going from one offset to another; nothing if it is right."""
        if after <= before:
            return f"went back in {place} from {before} to {after}"
        known = self._known.get(place)
        if known is None:
            values = self._case.known_records(place)
            known = self._known[place] = _Known(list(values), values)
        between = known.offsets[
            bisect_right(known.offsets, before) : bisect_left(known.offsets, after)
        ]
        for offset in between:
            if not self._case.may_be_gone(place, offset, known.values[offset]):
                return f"skipped {place} {offset}, going from {before} to {after}"
        return ""


def _out_of_turn(case: Case) -> Verdict:
    """Row 10. Of an idempotent sender everything counts, else what was acknowledged by all."""
    found = Findings()
    for place, sends in case.sends.items():
        last = dict[str, tuple[int, Send]]()
        for send in sends:
            if send.kind is Kind.FAIL or not (send.is_promised or send.is_idempotent):
                continue
            offset = case.position(send)
            if offset is None:
                continue
            before = last.get(send.process)
            if before is not None and offset <= before[0]:
                told = f"{send.value} at {place} {offset} was sent after {before[1].value}"
                found.add(f"{told}, which is at {before[0]}", before[1].index, send.index)
            last[send.process] = (offset, send)
    return ruled(10, found)


def _out_of_real_time(case: Case) -> Verdict:
    """Row 11: what was known before something was sent lies below it."""
    found = Findings()
    for place, sends in case.sends.items():
        # (moment, whether it is known from then on, offset, event, value)
        moments = list[tuple[int, bool, int, int, str]]()
        for send in sends:
            offset = case.position(send)
            if offset is None or send.kind is Kind.FAIL:
                continue
            moments.append((send.begun_ns, False, offset, send.index, send.value))
            if send.is_promised and send.ended_ns < NEVER_NS:
                moments.append((send.ended_ns, True, offset, send.index, send.value))
        seen = case.polled.get(place)
        if seen is not None:
            moments += [
                (moment_ns, True, offset, event, str(seen.at[offset]))
                for offset, (moment_ns, event) in seen.first.items()
            ]
        # At the same moment, what begins comes first: then nothing is said of it.
        _sweep(place, sorted(moments), found)
    return ruled(11, found)


def _sweep(place: Place, moments: list[tuple[int, bool, int, int, str]], found: Findings) -> None:
    highest, event_of, value_of = -1, -1, ""
    for _, is_known, offset, event, value in moments:
        if is_known:
            if offset > highest:
                highest, event_of, value_of = offset, event, value
        elif offset <= highest:
            told = f"{value} is at {place} {offset}, below {value_of} at {highest}"
            found.add(f"{told}, which was known before it was sent", event_of, event)
