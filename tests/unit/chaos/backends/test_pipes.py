"""When pieces arrive that are under way on a cable that is ill, by a clock of paper."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ottla.chaos.backends.pipes import Direction, Pipe
from ottla.chaos.ports import WHOLE, LinkFault


class Paper:
    """A loop whose time passes when it is told to, and the socket at the far end."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._due: tuple[float, Callable[[], None]] | None = None
        # What arrived, and how long after the beginning.
        self.arrived = list[tuple[str, float]]()

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, call: Callable[[], None]) -> Paper:
        self._due = (when_s, call)
        return self

    def cancel(self) -> None:
        self._due = None

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.arrived.append((data.decode()[:1], round(self.now_s - 100.0, 6)))

    def pass_to(self, seconds: float) -> None:
        while self._due is not None and self._due[0] <= 100.0 + seconds:
            self.now_s, call = self._due
            self._due = None
            call()
        self.now_s = 100.0 + seconds


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    made = Paper()
    monkeypatch.setattr("asyncio.get_running_loop", lambda: made)
    return made


def piped(paper: Paper, fault: LinkFault) -> tuple[Direction, Pipe]:
    direction = Direction(Random(1))
    direction.set(fault)
    pipe = Pipe(direction)
    pipe.attach_sink(paper)  # type: ignore[arg-type]  # as much of it as is used
    return direction, pipe


@pytest.mark.parametrize("bytes_per_s", [None, 1_000_000_000])
def test_each_piece_is_delayed_also_behind_others(paper: Paper, bytes_per_s: int | None) -> None:
    _, pipe = piped(paper, LinkFault(delay_ms=100, bytes_per_s=bytes_per_s))
    pipe.take(b"a")
    paper.pass_to(0.06)
    pipe.take(b"b")
    paper.pass_to(1.0)
    assert paper.arrived == [("a", 0.1), ("b", 0.16)]


def test_a_thin_cable_carries_one_piece_after_the_other_and_then_they_are_delayed(
    paper: Paper,
) -> None:
    _, pipe = piped(paper, LinkFault(delay_ms=100, bytes_per_s=1000))
    for piece in (b"a" * 50, b"b" * 50):
        pipe.take(piece)
    paper.pass_to(1.0)
    pipe.take(b"c" * 50)
    paper.pass_to(2.0)
    assert paper.arrived == [("a", 0.15), ("b", 0.2), ("c", 1.15)]


def test_a_piece_that_is_lost_behind_others_stops_those_that_come_after_it(paper: Paper) -> None:
    direction, pipe = piped(paper, LinkFault(delay_ms=100, bytes_per_s=1_000_000_000))
    pipe.take(b"a")
    direction.set(LinkFault(delay_ms=100, bytes_per_s=1_000_000_000, loss_per_mille=1000))
    pipe.take(b"b")
    direction.set(LinkFault(delay_ms=100, bytes_per_s=1_000_000_000))
    pipe.take(b"c")
    paper.pass_to(1.0)
    assert paper.arrived == [("a", 0.1), ("b", 0.3), ("c", 0.3)]


def test_a_cable_that_was_mended_lets_everything_go_and_is_free(paper: Paper) -> None:
    direction, pipe = piped(paper, LinkFault(delay_ms=100, bytes_per_s=10))
    pipe.take(b"a" * 100)
    direction.set(WHOLE)
    direction.set(LinkFault(delay_ms=100))
    pipe.take(b"b")
    paper.pass_to(1.0)
    assert paper.arrived == [("a", 0.0), ("b", 0.1)]
