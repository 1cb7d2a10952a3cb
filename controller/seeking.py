"""Which controller to ask next, for whoever looks for the active one.

Who was named is asked first, then one after the other; each is asked once in a round. Controllers
that disagree (two may name each other while they elect) cost a round and not a storm: after a round
without success the one who asks waits a little.

Not here: asking, and waiting (`broker_life.py`, and the shells in `ottla.node`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.proto.errors import ensure

# Between two rounds: an election takes longer, and asking costs little.
PAUSE_MS: Final = 50


class Seeking:
    """One search for the active controller, in rounds."""

    __slots__ = ("_asked", "_at", "believed", "controllers")

    def __init__(self, controllers: Sequence[int], *, believed: int | None = None) -> None:
        ensure(bool(controllers), "there is a controller to ask")
        self.controllers: Final = tuple(controllers)
        # Who is active, as far as somebody said.
        self.believed = believed
        self._asked: set[int] = set()
        self._at = 0

    def next(self) -> int | None:
        """Return whom to ask now; None: all were asked, so pause, and begin another round."""
        if self.believed in self.controllers and self.believed not in self._asked:
            self._asked.add(self.believed)
            return self.believed
        for _ in self.controllers:
            one = self.controllers[self._at]
            self._at = (self._at + 1) % len(self.controllers)
            if one not in self._asked:
                self._asked.add(one)
                return one
        return None

    def begin_round(self) -> None:
        self._asked.clear()

    def was_named(self, leader: int | None) -> None:
        """Take in what somebody said who is not active."""
        if leader is not None:
            self.believed = leader

    def was_silent(self, node_id: int) -> None:
        """Take in that a controller did not answer: the others first."""
        self._asked.add(node_id)
        if self.believed == node_id:
            self.believed = None

    def was_found(self, node_id: int) -> None:
        """Take in that this one is active. The next search begins with it, and anew."""
        self.believed = node_id
        self._asked.clear()
