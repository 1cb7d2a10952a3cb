"""The streams of one broker: real pullers and feeders, over the lines of the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import BrokerId
from ottla.replication.feeding import Feeder
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica
from tests.sim.replication.network import Line, Way

if TYPE_CHECKING:
    from tests.sim.replication.broker import BrokerProcess

FETCH_WAIT_MS = 120
REDIAL_MS = 30
_HELLO = b"hello"


class Pump:
    """Calls somebody soon after a wish, and when its time has come; once for many wishes."""

    def __init__(
        self, broker: BrokerProcess, work: Callable[[], None], due_ms: Callable[[], int | None]
    ) -> None:
        self._broker = broker
        self._work = work
        self._due_ms = due_ms
        self._at_ms: int | None = None
        self.is_over = False

    def wake(self) -> None:
        self._wake_at(self._broker.now_ms)

    def _wake_at(self, at_ms: int) -> None:
        if self.is_over or (self._at_ms is not None and self._at_ms <= at_ms):
            return
        self._at_ms = at_ms
        delay_ms = max(0, at_ms - self._broker.now_ms)
        self._broker.after(delay_ms, "pump", lambda: self._run(at_ms))

    def _run(self, at_ms: int) -> None:
        if self.is_over or self._at_ms != at_ms:
            return
        self._at_ms = None
        self._work()
        due_ms = self._due_ms()
        if due_ms is not None:
            # At least a moment later: whoever is due and does nothing must not stop the world.
            self._wake_at(max(due_ms, self._broker.now_ms + 1))


class Pull:
    """What this broker fetches from one leader."""

    def __init__(self, streams: Streams, leader: int) -> None:
        broker = streams.broker
        self.leader = leader
        self.line: Line | None = None
        self.is_dialling = False
        self._broker = broker
        self.puller = Puller(
            BrokerId(leader),
            broker_epoch=lambda: broker.broker_epoch or 0,
            now_ms=lambda: broker.now_ms,
            wake=lambda: self.pump.wake(),
        )
        self.pump = Pump(broker, self._send, self._due_ms)

    def dial(self) -> None:
        broker, world = self._broker, self._broker.world
        self.is_dialling = False
        if self.line is not None or self.puller.is_empty:
            return
        leader = world.brokers[self.leader]
        if not leader.is_up or world.network.is_cut(broker.node_id, self.leader):
            self.dial_later()
            return
        line = self.line = Line(world.network, broker, leader)
        world.network.lines[line] = None
        line.down.take = self._take
        line.up.take = lambda message: leader.streams.accept(line, message)
        line.send(line.up, _HELLO)
        self.puller.connected()
        self.pump.wake()

    def dial_later(self) -> None:
        if not self.is_dialling:
            self.is_dialling = True
            delay_ms = 1 + int(self._broker.world.dice.random() * REDIAL_MS)
            self._broker.after(delay_ms, "dial", self.dial)

    def _send(self) -> None:
        line = self.line
        if line is not None:
            for ask in self.puller.next_asks():
                line.send(line.up, ask)

    def _due_ms(self) -> int | None:
        return None if self.line is None else self.puller.due_ms()

    def _take(self, answer: bytes) -> None:
        try:
            self.puller.take(answer)
        except RemoteProtocolError:
            if self._broker.world.climate.repeat_frames == 0:
                raise
            self.hang_up()
            self.dial_later()
        self.pump.wake()

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.end(self._broker)
            self.line = None


class Feeding:
    """One follower's stream at the leader's end."""

    def __init__(self, streams: Streams, line: Line) -> None:
        broker, world = streams.broker, streams.broker.world
        self.line = line
        self._world = world
        self.feeder = Feeder(
            BrokerId(line.follower.node_id),
            streams.find,
            bytes_max=lambda: world.climate.answer_bytes,
            wait_ms=lambda: FETCH_WAIT_MS,
            now_ms=lambda: broker.now_ms,
            wake=lambda: self.pump.wake(),
            look=lambda: self.pump.wake(),
        )
        self.pump = Pump(broker, self._send, self.feeder.due_ms)

    def take(self, ask: bytes) -> None:
        try:
            self.feeder.take(ask)
        except RemoteProtocolError:
            if self._world.climate.repeat_frames == 0:
                raise
            # As a node does: the stream ends, and the follower dials again.
            self.line.break_off()
        self.pump.wake()

    def _send(self) -> None:
        way: Way = self.line.down
        while (pieces := self.feeder.next_answer()) is not None:
            self.line.send(way, b"".join(pieces))

    def close(self) -> None:
        self.pump.is_over = True
        self.feeder.close()


class Streams:
    """All streams of one life of a broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.pulls: dict[int, Pull] = {}
        self.feeds: dict[int, Feeding] = {}
        self._sources: dict[int, int] = {}

    def find(self, topic_id: bytes, index: int) -> Replica | None:
        replica = self.broker.replicas.get(index)
        return replica if replica is not None and replica.topic_id == topic_id else None

    # ── As a follower ─────────────────────────────────────────────────────────────────────────

    def follow(self, replica: Replica) -> None:
        """Fetch a replica from whom it follows now."""
        index = replica.partition.partition
        old, new = self._sources.get(index), replica.source
        if old == new:
            return
        if old is not None:
            del self._sources[index]
            pull = self.pulls[old]
            pull.puller.remove(replica)
            if pull.puller.is_empty:
                pull.hang_up()
            else:
                pull.pump.wake()
        if new is not None:
            self._sources[index] = new
            pull = self.pulls.setdefault(new, Pull(self, new))
            pull.puller.add(replica)
            if pull.line is None:
                pull.dial_later()
            else:
                pull.pump.wake()

    # ── As a leader ───────────────────────────────────────────────────────────────────────────

    def accept(self, line: Line, message: bytes) -> None:
        follower = line.follower.node_id
        feeding = self.feeds.get(follower)
        if message is _HELLO:
            if feeding is not None:
                # A follower has one stream; the new one ends the old.
                feeding.close()
                feeding.line.end(self.broker)
            self.feeds[follower] = Feeding(self, line)
        elif feeding is not None and feeding.line is line:
            feeding.take(message)

    # ── Both ──────────────────────────────────────────────────────────────────────────────────

    def ended(self, line: Line) -> None:
        """A line is broken, and this end has noticed."""
        feeding = self.feeds.get(line.follower.node_id)
        if feeding is not None and feeding.line is line:
            del self.feeds[line.follower.node_id]
            feeding.close()
        pull = self.pulls.get(line.leader.node_id)
        if pull is not None and pull.line is line:
            pull.line = None
            pull.dial_later()

    def lose_all(self) -> None:
        """The process is gone."""
        for line in tuple(self.broker.world.network.lines):
            if self.broker in (line.follower, line.leader):
                line.break_off()
