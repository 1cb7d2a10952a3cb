"""The network: messages that go astray, and lines that keep their order.

A message (`post`) goes its own way and arrives, or does not, or twice. A line is one stream of a
follower to a leader: what is said on it arrives in order or not at all. Where the network is cut a
line stands still; after a while somebody gives it up, and the two ends notice at different times.
What was under way on it may still arrive at an end that has not noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from tests.sim.cluster.schedule import Schedule, Work
from tests.sim.replication.climate import Climate

CONTROLLER = 0
CLIENT = -1
_STALL_MS = 15
_PATIENCE_MS = 500
_NOTICE_MS = 60


class End(Protocol):
    """A broker, as its lines know it."""

    node_id: int
    life: int

    def after(self, delay_ms: int, kind: str, work: Work) -> None:
        """Do something later, if this life of it lasts."""

    def line_ended(self, line: Line) -> None: ...


class Way:
    """One direction of a line."""

    __slots__ = ("arrives_ms", "messages", "receiver", "sender", "take")

    def __init__(self, sender: End, receiver: End, now_ms: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.messages: deque[bytes] = deque()
        self.arrives_ms = now_ms
        self.take: Callable[[bytes], None] = lambda message: None


class Line:
    """One stream, from the dial of a follower to the end of it."""

    def __init__(self, network: Network, follower: End, leader: End) -> None:
        now_ms = network.schedule.now_ms
        self.network = network
        self.follower, self.leader = follower, leader
        self.up = Way(follower, leader, now_ms)
        self.down = Way(leader, follower, now_ms)
        self.is_broken = False
        # What is under way when it breaks is lost.
        self.is_lossy = False
        # Who has noticed.
        self.ended: set[int] = set()

    def send(self, way: Way, message: bytes) -> None:
        if self.is_broken:
            return
        network = self.network
        now_ms = network.schedule.now_ms
        way.messages.append(message)
        way.arrives_ms = max(way.arrives_ms, now_ms + network.delay_ms())
        way.receiver.after(way.arrives_ms - now_ms, "arrive", lambda: self._arrive(way))
        if way is self.down and network.happens(network.climate.repeat_frames):
            late_ms = way.arrives_ms - now_ms + network.dice.choice([1, 30, 150])
            way.receiver.after(late_ms, "repeat", lambda: self._repeat(message))

    def _repeat(self, message: bytes) -> None:
        if not self.is_broken and self.follower.node_id not in self.ended:
            self.down.take(message)

    def _arrive(self, way: Way) -> None:
        if way.receiver.node_id in self.ended or not way.messages:
            return
        if self.is_broken and self.is_lossy:
            return
        if (way.sender.node_id, way.receiver.node_id) in self.network.cuts:
            way.receiver.after(_STALL_MS, "stall", lambda: self._arrive(way))
        else:
            way.take(way.messages.popleft())

    def end(self, by: End) -> None:
        """One end gives up; the other one notices."""
        self.ended.add(by.node_id)
        self.break_off()

    def break_off(self) -> None:
        if self.is_broken:
            return
        network = self.network
        self.is_broken = True
        self.is_lossy = network.is_calm or network.dice.random() < 0.5
        network.lines.pop(self, None)
        self._notice_later(self.follower, self.leader)
        self._notice_later(self.leader, self.follower)

    def _notice_later(self, end: End, other: End) -> None:
        network = self.network
        # Where nothing arrives, the end of a line does not either.
        is_cut = (other.node_id, end.node_id) in network.cuts
        limit_ms = _PATIENCE_MS if is_cut else _NOTICE_MS
        notice_ms = 1 if network.is_calm else int(network.dice.random() * limit_ms)
        end.after(notice_ms, "notice", lambda: self._notice(end))

    def _notice(self, end: End) -> None:
        if end.node_id not in self.ended:
            self.ended.add(end.node_id)
            end.line_ended(self)


class Network:
    """All ways between all processes. The controller has number 0."""

    def __init__(self, schedule: Schedule, dice: Random, climate: Climate) -> None:
        self.schedule = schedule
        self.dice = dice
        self.climate = climate
        self.cuts: set[tuple[int, int]] = set()
        # Those that are not broken. A dict for its order: seeds must not depend on hashes.
        self.lines: dict[Line, None] = {}
        self.is_calm = False

    def delay_ms(self) -> int:
        return 1 if self.is_calm else 1 + int(self.dice.random() * self.climate.latency_ms)

    def happens(self, chance: float) -> bool:
        return chance > 0 and not self.is_calm and self.dice.random() < chance

    def post(self, sender: int, receiver: int, arrive: Callable[[int], None]) -> None:
        """Send something; `arrive` is called with a delay for each copy of it that gets there."""
        if (sender, receiver) in self.cuts or self.happens(self.climate.drop):
            return
        slowness = self.dice.choice([10, 40]) if self.happens(self.climate.late) else 1
        arrive(slowness * self.delay_ms())
        if self.happens(self.climate.repeat):
            arrive(self.delay_ms() * self.dice.choice([1, 10]))

    def cut(self, sender: int, receiver: int) -> None:
        self.cuts.add((sender, receiver))
        for line in tuple(self.lines):
            if {line.follower.node_id, line.leader.node_id} == {sender, receiver}:
                patience_ms = 1 + int(self.dice.random() * _PATIENCE_MS)
                self.schedule.after(patience_ms, "give up", lambda one=line: self._give_up(one))  # type: ignore[misc]

    def _give_up(self, line: Line) -> None:
        pair = line.follower.node_id, line.leader.node_id
        if pair in self.cuts or pair[::-1] in self.cuts:
            line.break_off()

    def is_cut(self, one: int, other: int) -> bool:
        return (one, other) in self.cuts or (other, one) in self.cuts

    def heal(self) -> None:
        self.cuts.clear()
