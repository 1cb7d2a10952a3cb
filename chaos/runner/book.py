"""Who leads what: one watch asks every node all the time, and all clients of a run look it up.

A client that has lost its leader says so, and the watch hurries. A stubborn client has a view of
its own: it believes the node that it was with until that node refuses, hangs up or falls silent,
and only then looks into the book. So a leader that lost its mandate is still written to.

Not here: what is sent to a leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from ottla.chaos.history import Place
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.requests import Seen

_CALM_S: Final = 0.4
_HURRY_S: Final = 0.04
_ASK_S: Final = 1.0

Listener = Callable[[Place, Seen], None]


class LeaderBook:
    """The leaders of the highest epochs that anybody named; for one event loop."""

    def __init__(
        self, addresses: Mapping[int, str], topics: Collection[str], recorder: Recorder
    ) -> None:
        self._lines: Final = Lines(addresses, "watch")
        self._topics: Final = tuple(topics)
        self._recorder: Final = recorder
        self._known: Final = dict[Place, Seen]()
        # Known leaders that somebody could not work with, and in which epoch.
        self._doubted: Final = dict[Place, int]()
        self._listeners: Final = list[Listener]()
        self._hurry: Final = asyncio.Event()

    def leader(self, place: Place) -> Seen | None:
        """Return who leads; None if nobody does, as far as anybody said."""
        seen = self._known.get(place)
        return None if seen is None or seen.leader < 0 else seen

    def learn(self, place: Place, seen: Seen) -> None:
        self._recorder.note_leader(place, seen.epoch, seen.leader)
        known = self._known.get(place)
        # Of one epoch a broker that just lost its leader names nobody: others may know better.
        if known is not None and (seen.epoch, seen.leader >= 0) <= (known.epoch, known.leader >= 0):
            return
        self._known[place] = seen
        self._doubted.pop(place, None)
        if not self._doubted:
            self._hurry.clear()
        for tell in self._listeners:
            tell(place, seen)

    def doubt(self, place: Place) -> None:
        """Let the watch hurry until a newer leader of this partition is named."""
        known = self._known.get(place)
        self._doubted[place] = -1 if known is None else known.epoch
        self._hurry.set()

    def trust(self, place: Place) -> None:
        """Take a doubt back: the known leader works after all."""
        if self._doubted and self._doubted.pop(place, None) is not None and not self._doubted:
            self._hurry.clear()

    def listen(self, tell: Listener) -> None:
        """Have somebody told of every newer leader."""
        self._listeners.append(tell)

    async def watch(self) -> None:
        """Ask every node, without end; cancelled by whoever began it."""
        if not self._topics:
            return
        try:
            async with asyncio.TaskGroup() as group:
                for node in self._lines.addresses:
                    group.create_task(self._watch(node))
        finally:
            await self._lines.close()

    async def _watch(self, node: int) -> None:
        while True:
            seen = await self._lines.leaders(node, self._topics, _ASK_S)
            for place, one in (seen or {}).items():
                self.learn(place, one)
            await asyncio.sleep(_HURRY_S)
            if not self._hurry.is_set():
                try:
                    async with asyncio.timeout(_CALM_S):
                        await self._hurry.wait()
                except TimeoutError:
                    continue


class Compass:
    """One client's view of who leads."""

    def __init__(self, book: LeaderBook, lines: Lines, *, is_stubborn: bool) -> None:
        self._book: Final = book
        self._lines: Final = lines
        self._is_stubborn: Final = is_stubborn
        # Only of a stubborn client.
        self._own: Final = dict[Place, Seen]()

    def leader(self, place: Place) -> Seen | None:
        own = self._own.get(place)
        if own is not None:
            return own
        found = self._book.leader(place)
        if found is not None and self._is_stubborn:
            self._own[place] = found
        return found

    def works(self, place: Place) -> None:
        self._book.trust(place)

    def hint(self, place: Place, seen: Seen) -> None:
        """Take over what a refusal says of another leader (KIP-951)."""
        self._book.learn(place, seen)
        if self._is_stubborn:
            self._own[place] = seen

    async def lost(self, place: Place, seen: Seen) -> None:
        """Believe this leader no more; a stubborn client asks it once again who leads."""
        self._book.doubt(place)
        if self._own.pop(place, None) is None:
            return
        told = await self._lines.leaders(seen.leader, [place.topic])
        again = (told or {}).get(place)
        if again is not None and again.leader >= 0:
            self._own[place] = again
