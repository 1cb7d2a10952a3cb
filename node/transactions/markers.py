"""Markers on their way: from a decision to every partition of its transaction.

A postman with a list: each address is tried until somebody signs for it, also if the people there
have moved meanwhile. To sign twice does no harm.

K1  a marker is sent until it is written, or its topic is gone, or another one coordinates
K2  `done` is called once, when every partition of a transaction has its marker
K3  to one broker goes one call at a time, with all that has queued up

Not here: how a marker is written (`marking.py`), and what is decided (`transaction.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ottla.controller.image import MetadataImage
from ottla.node.logs import logger
from ottla.node.transactions.peers import Outcomes, PeerAwayError, WantedMarker
from ottla.node.transactions.words import Place
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.records.control import EndMarker

_log = logger("transactions")

# Between two tries for the same partitions.
AGAIN_S: Final = 0.05
# So many transactions in one call: each is a write, and all are written in one go.
_AT_ONCE: Final = 100
# Written, or of no use: a later epoch has ended what this one would, or nobody writes there in a
# transaction.
_SETTLED: Final = (
    ErrorCode.NONE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)

Send = Callable[[BrokerId, Sequence[WantedMarker]], Awaitable[list[Outcomes]]]


class Duty:
    """The markers of one transaction that are still to be written."""

    __slots__ = ("done", "end", "is_wanted", "places")

    def __init__(
        self,
        end: EndMarker,
        places: Iterable[Place],
        *,
        is_wanted: Callable[[], bool],
        done: Callable[[], None],
    ) -> None:
        self.end: Final = end
        self.places: Final = set(places)
        # Whether this node still coordinates the transaction (K1).
        self.is_wanted: Final = is_wanted
        self.done: Final = done


class Markers:
    """All markers that this coordinator has to send. Belongs to one event loop; `stop` once."""

    def __init__(self, image: Callable[[], MetadataImage], send: Send) -> None:
        self._image: Final = image
        self._send: Final = send
        self._duties: Final[set[Duty]] = set()
        # By broker: what waits to be sent there.
        self._queues: Final[dict[BrokerId, dict[Duty, set[Place]]]] = {}
        self._tasks: Final[dict[BrokerId, asyncio.Task[None]]] = {}
        # Brokers that did not answer the last call, and why: it is logged once.
        self._away: Final[dict[BrokerId, str]] = {}
        self._later: asyncio.TimerHandle | None = None
        self._again: Final[dict[Duty, set[Place]]] = {}
        self._is_stopped = False

    @property
    def waiting(self) -> int:
        """How many markers are not written."""
        return sum(len(duty.places) for duty in self._duties)

    def add(self, duty: Duty) -> None:
        if self._is_stopped:
            return
        self._duties.add(duty)
        self._route(duty, set(duty.places))

    async def stop(self) -> None:
        self._is_stopped = True
        if self._later is not None:
            self._later.cancel()
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._duties.clear()
        self._queues.clear()

    # ── Where to ──────────────────────────────────────────────────────────────────────────────

    def _route(self, duty: Duty, places: set[Place]) -> None:
        if self._is_stopped or not duty.is_wanted():
            self._duties.discard(duty)
            return
        image = self._image()
        for place in places:
            topic, index = place
            info = image.topic(topic)
            if info is None or index >= len(info.partitions):
                # Gone, and what was written there with it.
                self._settle(duty, (place,))
                continue
            leader = info.partitions[index].leader
            if leader is None:
                self._try_again(duty, {place})
                continue
            self._queues.setdefault(leader, {}).setdefault(duty, set()).add(place)
            if leader not in self._tasks:
                self._begin(leader)
        if not duty.places:
            self._settle(duty, ())

    def _settle(self, duty: Duty, places: Iterable[Place]) -> None:
        duty.places.difference_update(places)
        if not duty.places and duty in self._duties:
            self._duties.remove(duty)
            if duty.is_wanted():
                duty.done()

    def _try_again(self, duty: Duty, places: set[Place]) -> None:
        self._again.setdefault(duty, set()).update(places)
        if self._later is None and not self._is_stopped:
            self._later = asyncio.get_running_loop().call_later(AGAIN_S, self._on_time)

    def _on_time(self) -> None:
        self._later = None
        again = tuple(self._again.items())
        self._again.clear()
        for duty, places in again:
            self._route(duty, places)

    # ── Sending ───────────────────────────────────────────────────────────────────────────────

    def _begin(self, node: BrokerId) -> None:
        task = asyncio.get_running_loop().create_task(self._drain(node))
        self._tasks[node] = task
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        for node, known in tuple(self._tasks.items()):
            if known is task:
                del self._tasks[node]
                if self._queues.get(node) and not self._is_stopped:
                    self._begin(node)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "sending markers failed", "exception": error}
            task.get_loop().call_exception_handler(what)

    async def _drain(self, node: BrokerId) -> None:
        """Send all that waits for a broker, until nothing does (K3)."""
        queue = self._queues.setdefault(node, {})
        while queue:
            batch: list[tuple[Duty, set[Place]]] = []
            while queue and len(batch) < _AT_ONCE:
                duty = next(iter(queue))
                places = queue.pop(duty)
                if duty.is_wanted():
                    batch.append((duty, places))
                else:
                    # It may have waited here for as long as this process stood still (K1).
                    self._duties.discard(duty)
            if not batch:
                return
            wanted = [WantedMarker(duty.end, tuple(sorted(places))) for duty, places in batch]
            try:
                answers = await self._send(node, wanted)
            except PeerAwayError as error:
                self._went_away(node, str(error))
                # All that waits behind them, too: another one may lead by the next look, and each
                # call to a broker that is away takes as long as the last.
                for duty, places in (*batch, *queue.items()):
                    self._try_again(duty, places)
                queue.clear()
                return
            self._away.pop(node, None)
            for (duty, places), outcomes in zip(batch, answers, strict=True):
                self._take(duty, places, outcomes)

    def _went_away(self, node: BrokerId, why: str) -> None:
        if self._away.get(node) != why:
            self._away[node] = why
            _log.info("markers_not_sent", broker=node, why=why)

    def _take(self, duty: Duty, places: set[Place], outcomes: Outcomes) -> None:
        written = {place for place in places if outcomes.get(place) in _SETTLED}
        self._settle(duty, written)
        left = places - written
        if left:
            self._try_again(duty, left)
