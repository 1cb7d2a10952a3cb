"""The network between processes: late, lossy, repeating, and cut one way or both.

Two kinds of traffic. A message (`post`) goes its own way and arrives, or does not, or twice. The
members of the quorum hold streams, one for each ordered pair: what is in a stream arrives in order,
unless this seed is worse than any real network (`overtake`, `repeat`); what was under way when a
stream broke may still arrive, later, on a life that never heard of that stream. `Inbox` must see
through all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.controller.quorum.member import QuorumMember
from ottla.controller.quorum.messages import Envelope
from tests.sim.cluster.climate import Climate
from tests.sim.cluster.schedule import Schedule, Work

_NOTICE_MS = 60
_RETRY_MS = 40


class Process:
    """Something that runs, dies, stands still, and starts again under the same id."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_up = False
        # Counts the starts.
        self.life = 0
        self.paused_until_ms = 0


class _Way:
    """One stream, as its sender knows it."""

    __slots__ = ("arrives_ms", "is_broken", "life")

    def __init__(self, life: int, now_ms: int) -> None:
        self.life = life
        self.is_broken = False
        # Nothing that is sent later arrives before this.
        self.arrives_ms = now_ms


class Network:
    """All ways between all processes."""

    def __init__(self, schedule: Schedule, dice: Random, climate: Climate) -> None:
        self.schedule = schedule
        self.dice = dice
        self.climate = climate
        self.processes: dict[int, Process] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.is_calm = False
        self._ways: dict[tuple[int, int], _Way] = {}
        # How to reach the member of a process, and what to do with an envelope that came.
        self.member_of: Callable[[int], QuorumMember | None] = lambda _: None
        self.take_in: Callable[[int, Envelope], None] = lambda node, envelope: None

    # ── Messages ──────────────────────────────────────────────────────────────────────────────

    def delay_ms(self) -> int:
        if self.is_calm:
            return 1
        return 1 + int(self.dice.random() * self.climate.latency_ms)

    def post(self, sender: int, receiver: int, kind: str, work: Work) -> None:
        """Send something; `work` is done at the receiver when, and each time, it arrives."""
        if (sender, receiver) in self.cuts or self._happens(self.climate.drop):
            return
        slowness = 10 if self._happens(self.climate.overtake) else 1
        self._under_way(slowness * self.delay_ms(), sender, receiver, kind, work)
        if self._happens(self.climate.repeat):
            late = self.delay_ms() * self.dice.choice([1, 10])
            self._under_way(late, sender, receiver, kind, work)

    def _under_way(self, delay_ms: int, sender: int, receiver: int, kind: str, work: Work) -> None:
        def arrive() -> None:
            process = self.processes[receiver]
            if not process.is_up or (sender, receiver) in self.cuts:
                return
            wait_ms = process.paused_until_ms - self.schedule.now_ms
            if wait_ms > 0:
                self.schedule.after(wait_ms, kind, arrive, sender, receiver)
            else:
                work()

        self.schedule.after(delay_ms, kind, arrive, sender, receiver)

    def _happens(self, chance: float) -> bool:
        return chance > 0 and not self.is_calm and self.dice.random() < chance

    # ── Streams of the quorum ─────────────────────────────────────────────────────────────────

    def send(self, envelope: Envelope) -> bool:
        """Take an envelope of a member: the `Link` of the quorum."""
        sender, receiver = envelope.sender, envelope.receiver
        way = self._ways.get((sender, receiver))
        if way is None or way.life != self.processes[sender].life:
            return False
        if way.is_broken or self._happens(self.climate.drop):
            return True
        now_ms = self.schedule.now_ms
        arrives_ms = max(way.arrives_ms, now_ms + self.delay_ms())
        if self._happens(self.climate.overtake):
            arrives_ms += 2 * self.delay_ms()
        else:
            way.arrives_ms = arrives_ms

        def work() -> None:
            self.take_in(receiver, envelope)

        kind = type(envelope.message).__name__
        self._under_way(arrives_ms - now_ms, sender, receiver, kind, work)
        if self._happens(self.climate.repeat):
            late = arrives_ms - now_ms + self.delay_ms() * self.dice.choice([0, 1, 10])
            self._under_way(late, sender, receiver, kind, work)
        return True

    def open_all(self, node_id: int, members: list[int]) -> None:
        """A member started: open the ways between it and the others."""
        for peer in members:
            if peer != node_id:
                self.schedule.after(self.delay_ms(), "open", lambda p=peer: self._open(node_id, p))  # type: ignore[misc]
                self.schedule.after(self.delay_ms(), "open", lambda p=peer: self._open(p, node_id))  # type: ignore[misc]

    def break_all(self, node_id: int) -> None:
        """All streams from and to a process break; the others find out sooner or later."""
        for sender, receiver in sorted(self._ways):
            if node_id in (sender, receiver):
                self.break_way(sender, receiver)

    def break_way(self, sender: int, receiver: int) -> None:
        way = self._ways.get((sender, receiver))
        if way is None or way.is_broken:
            return
        way.is_broken = True
        notice_ms = 1 if self.is_calm else int(self.dice.random() * _NOTICE_MS)
        self.schedule.after(notice_ms, "notice", lambda: self._notice(sender, receiver, way))

    def _notice(self, sender: int, receiver: int, way: _Way) -> None:
        if self._ways.get((sender, receiver)) is not way:
            return
        del self._ways[sender, receiver]
        member = self.member_of(sender)
        if member is not None and way.life == self.processes[sender].life:
            member.close_stream(receiver)
            self._open_later(sender, receiver)

    def _open_later(self, sender: int, receiver: int) -> None:
        retry_ms = 1 + int(self.dice.random() * _RETRY_MS)
        self.schedule.after(retry_ms, "open", lambda: self._open(sender, receiver))

    def _open(self, sender: int, receiver: int) -> None:
        member = self.member_of(sender)
        if member is None:
            return
        way = self._ways.get((sender, receiver))
        life = self.processes[sender].life
        if way is not None and not way.is_broken and way.life == life:
            return
        if (sender, receiver) in self.cuts or not self.processes[receiver].is_up:
            self._open_later(sender, receiver)
            return
        if way is not None and way.life == life:
            member.close_stream(receiver)
        stream = member.open_stream(receiver)
        way = self._ways[sender, receiver] = _Way(life, self.schedule.now_ms)
        way.arrives_ms = self.schedule.now_ms + self.delay_ms()

        def accept() -> None:
            receiving = self.member_of(receiver)
            if receiving is not None and receiving.accept_stream(sender, stream):
                if self._ways.get((sender, receiver)) is not way:
                    # It comes late and took the place of a newer one, whose sender must notice.
                    self.break_way(sender, receiver)
            else:
                self.break_way(sender, receiver)

        wait_ms = way.arrives_ms - self.schedule.now_ms
        self._under_way(wait_ms, sender, receiver, "hello", accept)

    # ── Cuts ──────────────────────────────────────────────────────────────────────────────────

    def cut(self, sender: int, receiver: int) -> None:
        self.cuts.add((sender, receiver))
        self.break_way(sender, receiver)

    def cut_off(self, node_id: int) -> None:
        for peer in sorted(self.processes):
            if peer != node_id:
                self.cut(node_id, peer)
                self.cut(peer, node_id)

    def heal(self) -> None:
        self.cuts.clear()
