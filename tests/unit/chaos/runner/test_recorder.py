"""The pen: what is written is a history, and what is counted is what was acknowledged."""

from __future__ import annotations

import io
import threading
from itertools import count

import pytest

from ottla.chaos.history import Kind, Place, Shown, from_lines, operations
from ottla.chaos.runner.recorder import POLL, SEND, Recorder
from ottla.proto.errors import InvariantError

HERE = Place("orders", 1)
SECOND = 1_000_000_000


def test_an_operation_is_written_when_it_begins_and_when_it_ends() -> None:
    pen = io.StringIO()
    recorder = Recorder(pen)
    index = recorder.begin("w1", SEND, place=HERE, value="w1-1", acks=-1)
    (begun,) = from_lines(pen.getvalue().splitlines())
    assert begun.kind is Kind.INVOKE
    recorder.end(index, Kind.OK, offset=12, node=3)
    (one,) = operations(from_lines(pen.getvalue().splitlines()))
    assert one.end is not None
    assert (one.end.value, one.end.offset, one.end.node, one.end.place) == ("w1-1", 12, 3, HERE)


def test_what_never_ends_is_unknown() -> None:
    pen = io.StringIO()
    Recorder(pen).begin("w1", SEND, place=HERE, value="w1-1", acks=-1)
    (one,) = operations(from_lines(pen.getvalue().splitlines()))
    assert one.kind is Kind.UNKNOWN


def test_an_operation_ends_once() -> None:
    recorder = Recorder(io.StringIO())
    index = recorder.begin("w1", SEND, place=HERE, value="w1-1", acks=-1)
    recorder.end(index, Kind.FAIL)
    with pytest.raises(InvariantError):
        recorder.end(index, Kind.OK, offset=1)


def test_threads_share_one_counter_and_times_never_go_back() -> None:
    pen = io.StringIO()
    recorder = Recorder(pen)

    def work(name: str) -> None:
        for number in range(200):
            index = recorder.begin(name, SEND, place=HERE, value=f"{name}-{number}", acks=-1)
            recorder.end(index, Kind.OK, offset=number)

    threads = [threading.Thread(target=work, args=(f"w{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(from_lines(pen.getvalue().splitlines()))
    assert [one.index for one in events] == list(range(1600))
    assert sorted(events, key=lambda one: one.t_ns) == events
    assert recorder.acknowledged() == 800


def test_only_writes_are_counted_and_only_acks_of_all_say_how_far_to_read() -> None:
    recorder = Recorder(io.StringIO())
    for acks, offset in ((-1, 5), (1, 9), (-1, 3)):
        index = recorder.begin("w1", SEND, place=HERE, value=f"w1-{offset}", acks=acks)
        recorder.end(index, Kind.OK, offset=offset)
    for kind in (Kind.FAIL, Kind.UNKNOWN):
        recorder.end(recorder.begin("w1", SEND, place=HERE, value="w1-0", acks=-1), kind)
    poll = recorder.begin("c1", POLL)
    recorder.end(poll, Kind.OK, shown=(Shown(HERE, 99, "w1-9", 0),))
    assert recorder.highest(HERE) == 5
    assert recorder.highest(Place("other", 0)) == -1
    told = recorder.progress()
    assert (told["ok"], told["fail"], told["unknown"]) == (3, 1, 1)


def test_the_rate_is_of_the_last_two_seconds() -> None:
    clock = count(0, SECOND // 10)
    recorder = Recorder(io.StringIO(), clock=lambda: next(clock))
    for number in range(50):
        index = recorder.begin("w1", SEND, place=HERE, value=f"w1-{number}", acks=-1)
        recorder.end(index, Kind.OK, offset=number)
    # Each takes two steps of the clock, a fifth of a second.
    assert recorder.rate() == pytest.approx(5, abs=0.6)


def test_a_leader_is_noted_when_it_is_first_named() -> None:
    clock = count(1)
    recorder = Recorder(io.StringIO(), clock=lambda: next(clock))
    for epoch, node in ((3, 1), (3, 1), (4, 2), (3, 1), (4, -1), (-1, 2)):
        recorder.note_leader(HERE, epoch, node)
    assert recorder.leaders() == [(1, HERE, 3, 1), (2, HERE, 4, 2)]
