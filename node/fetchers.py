"""What this broker fetches from others: for each leader, one puller and one stream to it.

Not here: what is asked and answered (`ottla.replication.pulling`), connections
(`internal/replication_stream.py`), and who leads what (`reconcile.py`).

F1  a replica is in one puller at most: that of the leader it was last told to follow
F2  a leader is dialled while something is followed there, and for a moment longer
F3  where a leader is, and which process it is, is what the last image says that was obeyed
F4  after `stop` nothing is fetched, and no task is left
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.node.internal.peers import report_bug
from ottla.node.internal.replication_stream import (
    Follower,
    PullSide,
    ReplicationStream,
    Whereabouts,
)
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from ottla.replication.replica import Replica

# Leaders come and go together when a broker does; a stream is dearer than a moment of silence.
LINGER_S: Final = 5.0


class PullerPart(PullSide, Protocol):
    """What is asked of a `Puller` here."""

    @property
    def is_empty(self) -> bool: ...

    def add(self, replica: Replica) -> None: ...
    def remove(self, replica: Replica) -> None: ...


# Given the leader, and what to call when there may be something to ask.
MakePuller = Callable[[BrokerId, Callable[[], None]], PullerPart]


@dataclass(slots=True)
class _Way:
    """The puller of one leader, and the stream that it goes over."""

    puller: PullerPart
    stream: ReplicationStream
    task: asyncio.Task[None]
    # Ends the way when nothing is followed there any more.
    end: asyncio.TimerHandle | None = None


class Fetchers:
    """All that is followed here. Belongs to one event loop; ends with `stop`."""

    def __init__(
        self, follower: Follower, make_puller: MakePuller, *, linger_s: float = LINGER_S
    ) -> None:
        self._follower: Final = follower
        self._make_puller: Final = make_puller
        self._linger_s: Final = linger_s
        self._brokers: Mapping[BrokerId, BrokerInfo] = {}
        self._ways: Final[dict[BrokerId, _Way]] = {}
        self._leaders: Final[dict[Replica, BrokerId]] = {}
        # Of ways that are ending.
        self._ending: Final[set[asyncio.Task[None]]] = set()
        self._is_stopped = False

    @property
    def leaders(self) -> dict[BrokerId, bool]:
        """Return every leader that is followed, and whether a stream leads there."""
        return {leader: way.stream.is_connected for leader, way in self._ways.items()}

    def lost_for_s(self, leader: BrokerId) -> float | None:
        """Return since when the stream to a leader is broken; None: it is not, or there is none."""
        way = self._ways.get(leader)
        return None if way is None else way.stream.lost_for_s

    def follow(self, replica: Replica, leader: BrokerId) -> None:
        """Fetch this replica from that leader, and from nobody else."""
        if self._is_stopped or self._leaders.get(replica) == leader:
            return
        self.leave(replica)
        self._leaders[replica] = leader
        way = self._ways.get(leader) or self._begin(leader)
        if way.end is not None:
            way.end.cancel()
            way.end = None
        way.puller.add(replica)
        way.stream.hurry()

    def leave(self, replica: Replica) -> None:
        """Fetch this replica from nobody."""
        leader = self._leaders.pop(replica, None)
        way = None if leader is None else self._ways.get(leader)
        if leader is None or way is None:
            return
        way.puller.remove(replica)
        if way.puller.is_empty:
            loop = asyncio.get_running_loop()
            way.end = loop.call_later(self._linger_s, self._end, leader)

    def obey(self, image: MetadataImage) -> None:
        """Go by where the leaders are in this image."""
        self._brokers = image.brokers
        for leader, way in self._ways.items():
            self._point(leader, way.stream)

    async def stop(self) -> None:
        self._is_stopped = True
        self._leaders.clear()
        for leader in tuple(self._ways):
            self._end(leader)
        if self._ending:
            await asyncio.wait(self._ending)

    # ── Ways ──────────────────────────────────────────────────────────────────────────────────

    def _begin(self, leader: BrokerId) -> _Way:
        stream = ReplicationStream(leader, self._follower)
        self._point(leader, stream)
        puller = self._make_puller(leader, stream.wake)
        task = asyncio.get_running_loop().create_task(stream.run(puller))
        task.add_done_callback(report_bug)
        way = self._ways[leader] = _Way(puller, stream, task)
        return way

    def _point(self, leader: BrokerId, stream: ReplicationStream) -> None:
        known = self._brokers.get(leader)
        if known is not None:
            address = Address(known.internal_host, known.internal_port)
            stream.point_at(Whereabouts(address, known.incarnation))

    def _end(self, leader: BrokerId) -> None:
        way = self._ways.pop(leader)
        if way.end is not None:
            way.end.cancel()
        self._ending.add(way.task)
        way.task.add_done_callback(self._ending.discard)
        way.task.cancel()
