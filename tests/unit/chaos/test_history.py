"""Events as lines and back, and operations from events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.chaos.history import (
    BadHistoryError,
    Event,
    Kind,
    Place,
    Shown,
    from_line,
    from_lines,
    operations,
    to_line,
)

names = st.text(max_size=8)
numbers = st.integers(-1, 1 << 62)
places = st.builds(Place, names, st.integers(0, 99))
events = st.builds(
    Event,
    index=numbers,
    t_ns=numbers,
    process=names,
    kind=st.sampled_from(Kind),
    function=names,
    place=st.none() | places,
    value=st.none() | names,
    acks=st.sampled_from([None, -1, 0, 1]),
    offset=st.none() | numbers,
    shown=st.lists(st.builds(Shown, places, numbers, st.none() | names, numbers), max_size=3).map(
        tuple
    ),
    error=st.none() | names,
    attempts=st.integers(0, 9),
    generation=st.none() | st.integers(0, 99),
    offsets=st.lists(st.tuples(places, numbers), max_size=3).map(tuple),
    node=st.none() | st.integers(1, 9),
    phase=st.sampled_from(["main", "final"]),
    is_idempotent=st.booleans(),
    is_kept=st.booleans(),
    rebalanced=st.lists(places, max_size=2).map(tuple),
    key=st.none() | names,
    is_tombstone=st.booleans(),
)


@settings(max_examples=40, deadline=None)
@given(events)
def test_what_is_read_back_is_what_was_written(event: Event) -> None:
    line = to_line(event)
    assert "\n" not in line
    assert from_line(line) == event


@pytest.mark.parametrize("line", ["", "{", "7", "{}", '{"i":1,"t":2,"p":"w","type":"so","f":"x"}'])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(BadHistoryError):
        from_line(line)


def event(index: int, process: str, kind: Kind) -> Event:
    return Event(index=index, t_ns=index, process=process, kind=kind, function="send")


def test_only_the_last_line_may_be_torn() -> None:
    whole = to_line(event(0, "w", Kind.INVOKE))
    assert len(list(from_lines([whole, whole[:9]]))) == 1
    with pytest.raises(BadHistoryError, match="line 2"):
        list(from_lines([whole, whole[:9], whole]))


def test_operations_are_paired_by_process_in_the_order_in_which_they_began() -> None:
    told = [
        event(0, "w", Kind.INVOKE),
        event(1, "v", Kind.INVOKE),
        event(2, "v", Kind.OK),
        event(3, "w", Kind.FAIL),
        event(4, "w", Kind.INVOKE),
    ]
    pairs = [(one.index, one.kind, one.ended_ns) for one in operations(told)]
    assert pairs == [(0, Kind.FAIL, 3), (1, Kind.OK, 2), (4, Kind.UNKNOWN, None)]


def test_an_end_without_a_beginning_is_refused() -> None:
    with pytest.raises(BadHistoryError, match="never began"):
        operations([event(0, "w", Kind.OK)])
