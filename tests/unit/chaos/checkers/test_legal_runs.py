"""Legal runs, however unlucky, break no row; and one lie in any of them does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.chaos.evidence import Evidence, Record, Ruling
from ottla.chaos.history import Event, Kind
from tests.unit.chaos.legal import legal_run
from tests.unit.chaos.story import broken, counted, rows

SEEDS: Final = range(8)
Lie = Callable[[Evidence, Random], Evidence | None]
# Nobody changes them: a lie is told of a copy.
legal = cache(legal_run)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    is_idempotent=st.booleans(),
    is_compacted=st.booleans(),
    is_deleted=st.booleans(),
)
def test_a_legal_run_breaks_no_row(
    seed: int, is_idempotent: bool, is_compacted: bool, is_deleted: bool
) -> None:
    evidence = legal_run(
        seed, is_idempotent=is_idempotent, is_compacted=is_compacted, is_deleted=is_deleted
    )
    assert not broken(evidence)
    assert rows(evidence, Ruling.NOT_JUDGED) <= {8, 9, 12, 19, 21, 22, 23, *range(25, 35), 40}


def test_legal_runs_are_eventful_enough_to_mean_something() -> None:
    happened = Counter[str]()
    for seed in SEEDS:
        evidence = legal(seed)
        happened["lost with acks=1"] += 3 in counted(evidence)
        values = {one.value for one in evidence.finals[0].records}
        for one in sends(evidence, Kind.UNKNOWN):
            happened["appeared" if one.value in values else "did not"] += 1
        happened["epochs"] += evidence.finals[0].records[-1].leader_epoch
    assert min(happened[name] for name in ("lost with acks=1", "appeared", "did not")) > 0
    assert happened["epochs"] > len(SEEDS)


# ── Lies ──────────────────────────────────────────────────────────────────────────────────────


def sends(evidence: Evidence, kind: Kind) -> list[Event]:
    """Return the beginnings of all sends with acks=all that ended so."""
    begun, found = dict[str, Event](), list[Event]()
    for event in evidence.events:
        if event.function == "send" and event.kind is Kind.INVOKE:
            begun[event.process] = event
        elif event.function == "send" and event.kind is kind:
            found.append(begun[event.process])
    return [one for one in found if one.acks == -1]


def with_records(
    evidence: Evidence, change: Callable[[list[Record]], list[Record]], *, turns: tuple[int, ...]
) -> Evidence:
    finals = [
        replace(one, records=tuple(change([*one.records]))) if one.turn in turns else one
        for one in evidence.finals
    ]
    return replace(evidence, finals=finals)


def with_event(evidence: Evidence, index: int, event: Event) -> Evidence:
    events = [*evidence.events]
    events[index] = event
    return replace(evidence, events=events)


def drop_acknowledged(evidence: Evidence, dice: Random) -> Evidence | None:
    lost = dice.choice(sends(evidence, Kind.OK)).value
    return with_records(
        evidence, lambda log: [one for one in log if one.value != lost], turns=(1, 2)
    )


def drop_in_restart(evidence: Evidence, dice: Random) -> Evidence | None:
    lost = dice.choice(sends(evidence, Kind.OK)).value
    return with_records(evidence, lambda log: [one for one in log if one.value != lost], turns=(2,))


def drop_and_close_up(evidence: Evidence, dice: Random) -> Evidence | None:
    """What follows a lost record moves down, as in a log that was written anew."""
    lost = dice.choice(sends(evidence, Kind.OK)).value

    def change(log: list[Record]) -> list[Record]:
        left = [one for one in log if one.value != lost]
        return [one._replace(offset=at) for at, one in enumerate(left)]

    finals = with_records(evidence, change, turns=(1, 2)).finals
    ends = [replace(one, high_watermark=len(one.records)) for one in finals]
    return replace(evidence, finals=ends)


def lose_everywhere(evidence: Evidence, dice: Random) -> Evidence | None:
    """Nobody was ever shown it, though everybody read past it."""
    last = evidence.finals[0].records[-1].value
    lost = dice.choice([one.value for one in sends(evidence, Kind.OK) if one.value != last])
    events = [
        replace(one, shown=tuple(shown for shown in one.shown if shown.value != lost))
        for one in evidence.events
    ]
    return with_records(
        replace(evidence, events=events),
        lambda log: [one for one in log if one.value != lost],
        turns=(1, 2),
    )


def poll_again(evidence: Evidence, dice: Random) -> Evidence | None:
    """A reader is shown the same twice, though nobody sent it back."""
    before = dict[str, Event]()
    pairs = list[tuple[Event, Event]]()
    for event in evidence.events:
        if event.function == "seek":
            before.pop(event.process, None)
        elif event.shown:
            if event.process in before:
                pairs.append((before[event.process], event))
            before[event.process] = event
    if not pairs:
        return None
    first, second = dice.choice(pairs)
    return with_event(evidence, second.index, replace(second, shown=first.shown))


def swap_in_time(evidence: Evidence, dice: Random) -> Evidence | None:
    """Of one writer, the record that lies below another one was sent after it."""
    begun = sends(evidence, Kind.OK)
    first = dice.choice(begun)
    later = [one for one in begun if one.process == first.process and one.index > first.index]
    if not later:
        return None
    second = dice.choice(later)
    events = [*evidence.events]
    ends = [_end(evidence, one) for one in (first, second)]
    events[first.index] = replace(first, value=second.value)
    events[second.index] = replace(second, value=first.value)
    events[ends[0].index] = replace(ends[0], offset=ends[1].offset)
    events[ends[1].index] = replace(ends[1], offset=ends[0].offset)
    return replace(evidence, events=events)


def swap(evidence: Evidence, dice: Random) -> Evidence | None:
    known = {one.value for one in sends(evidence, Kind.OK)}
    pairs = [at for at, one in enumerate(evidence.finals[0].records[:-1]) if one.value in known]
    at = dice.choice(pairs)

    def change(log: list[Record]) -> list[Record]:
        first, second = log[at].value, log[at + 1].value
        log[at], log[at + 1] = log[at]._replace(value=second), log[at + 1]._replace(value=first)
        return log

    return with_records(evidence, change, turns=(1, 2))


def duplicate(evidence: Evidence, dice: Random) -> Evidence | None:
    again = dice.choice(evidence.finals[0].records)
    return with_records(
        evidence, lambda log: [*log, log[-1]._replace(offset=len(log), value=again.value)],
        turns=(1, 2),
    )  # fmt: skip


def lower_epoch(evidence: Evidence, dice: Random) -> Evidence | None:
    log = evidence.finals[0].records
    later = [at for at in range(1, len(log)) if log[at - 1].leader_epoch > 0]
    if not later:
        return None
    at = dice.choice(later)

    def change(log: list[Record]) -> list[Record]:
        log[at] = log[at]._replace(leader_epoch=log[at - 1].leader_epoch - 1)
        return log

    return with_records(evidence, change, turns=(1, 2))


def polls(evidence: Evidence, least: int) -> list[Event]:
    return [one for one in evidence.events if len(one.shown) >= least]


def hide_from_poll(evidence: Evidence, dice: Random) -> Evidence | None:
    event = dice.choice(polls(evidence, 3))
    shown = (*event.shown[:1], *event.shown[2:])
    return with_event(evidence, event.index, replace(event, shown=shown))


def show_again(evidence: Evidence, dice: Random) -> Evidence | None:
    event = dice.choice(polls(evidence, 1))
    shown = (*event.shown, event.shown[-1])
    return with_event(evidence, event.index, replace(event, shown=shown))


def show_what_nobody_sent(evidence: Evidence, dice: Random) -> Evidence | None:
    event = dice.choice(polls(evidence, 1))
    shown = (event.shown[0]._replace(value="x-1"), *event.shown[1:])
    return with_event(evidence, event.index, replace(event, shown=shown))


def refuse_what_is_there(evidence: Evidence, dice: Random) -> Evidence | None:
    begun = dice.choice(sends(evidence, Kind.OK))
    end = _end(evidence, begun)
    return with_event(evidence, end.index, replace(end, kind=Kind.FAIL, offset=None))


def _end(evidence: Evidence, begun: Event) -> Event:
    return next(one for one in evidence.events[begun.index + 1 :] if one.process == begun.process)


def acknowledge_elsewhere(evidence: Evidence, dice: Random) -> Evidence | None:
    promised = [
        one
        for one in evidence.events
        if one.kind is Kind.OK and one.function == "send" and _begin(evidence, one).acks == -1
    ]
    end = dice.choice(promised)
    return with_event(evidence, end.index, replace(end, offset=(end.offset or 0) + 1))


def _begin(evidence: Evidence, end: Event) -> Event:
    return next(
        one
        for one in reversed(evidence.events[: end.index])
        if one.process == end.process and one.kind is Kind.INVOKE
    )


def acknowledge_too_early(evidence: Evidence, dice: Random) -> Evidence | None:
    """Nothing is committed any more by what leaders tell, but for the last line of each."""
    lines = [
        {**one, "high_watermark": 0} if one["event"] == "committed" else one
        for one in evidence.trace or ()
    ]
    last = lines[-1]["t_ns"] + 1_000_000_000
    more = [
        {"t_ns": last, "node": node, "event": "committed", "topic": "t", "partition": 0,
         "leader_epoch": 99, "high_watermark": 10_000} for node in (1, 2, 3)
    ]  # fmt: skip
    return replace(evidence, trace=[*lines, *more])


def damage_replica(evidence: Evidence, dice: Random) -> Evidence | None:
    replicas = [*(evidence.replicas or ())]
    at = dice.randrange(len(replicas))
    batches = [*replicas[at].batches]
    which = dice.randrange(len(batches))
    batches[which] = batches[which]._replace(crc=batches[which].crc + 1)
    replicas[at] = replace(replicas[at], batches=tuple(batches))
    return replace(evidence, replicas=replicas)


def lose_on_replica(evidence: Evidence, dice: Random) -> Evidence | None:
    lost = dice.choice(sends(evidence, Kind.OK)).value
    finals = [
        replace(one, records=tuple(record for record in one.records if record.value != lost))
        if one.source == "node-2"
        else one
        for one in evidence.finals
    ]
    # It counts as in sync only if the last metadata say so.
    trace = [{**one, "isr": [1, 2, 3]} if "isr" in one else one for one in evidence.trace or ()]
    return replace(evidence, finals=finals, trace=trace)


def lead_twice(evidence: Evidence, dice: Random) -> Evidence | None:
    line = dice.choice([one for one in evidence.trace or () if one["event"] == "led"])
    return replace(
        evidence, trace=[*(evidence.trace or ()), {**line, "node": line["node"] % 3 + 1}]
    )


def shrink_in_sync_sets(evidence: Evidence, dice: Random) -> Evidence | None:
    trace = [{**one, "isr": [9]} if "isr" in one else one for one in evidence.trace or ()]
    return replace(evidence, trace=trace)


def forget_an_epoch(evidence: Evidence, dice: Random) -> Evidence | None:
    states = [one for one in evidence.trace or () if one["event"] == "partition"]
    if states[-1]["partition_epoch"] == 0:
        return None
    last = evidence.trace[-1]["t_ns"] if evidence.trace else 0
    return replace(evidence, trace=[*(evidence.trace or ()), {**states[0], "t_ns": last + 1}])


LIES: Final[dict[Lie, set[int]]] = {
    drop_acknowledged: {4, 13},
    drop_in_restart: {4, 5},
    drop_and_close_up: {4},
    lose_everywhere: {3, 4, 13},
    poll_again: {9},
    swap_in_time: {10, 11},
    swap: {1, 4},
    duplicate: {2},
    lower_epoch: {14},
    hide_from_poll: {8},
    show_again: {8},
    show_what_nobody_sent: {5, 7},
    refuse_what_is_there: {6},
    acknowledge_elsewhere: {4},
    acknowledge_too_early: {12},
    damage_replica: {15},
    lose_on_replica: {16},
    lead_twice: {17},
    shrink_in_sync_sets: {12, 18, 19},
    forget_an_epoch: {20},
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_in_a_legal_run_breaks_its_rows(lie: Lie) -> None:
    told = 0
    for seed in SEEDS:
        evidence = lie(legal(seed), Random(seed))
        if evidence is not None:
            told += 1
            missing = LIES[lie] - broken(evidence)
            assert not missing, f"seed {seed}: {lie.__name__} did not break {missing}"
    assert told >= len(SEEDS) // 2
