"""When each partition changed its leader, and whether that excuses the loss of a write with acks=1.

Such a write is acknowledged by its leader alone. It may be lost

  1. if the leader changed after it was sent, for the next one may not have it
  2. if it was sent to a leader that had been replaced and could not know it yet: within a session

Not here: writes with acks=all, which nothing excuses.
"""

from __future__ import annotations

from collections import defaultdict

from ottla.chaos.checkers.sends import Send
from ottla.chaos.checkers.traced import Traced
from ottla.chaos.evidence import Evidence
from ottla.chaos.history import Place


class LeaderChanges:
    """Who began to lead what, and when: by the trace, or else by what clients were told."""

    def __init__(self, evidence: Evidence, traced: Traced | None) -> None:
        self._session_ns = int(evidence.facts.session_s * 1e9)
        self._known = defaultdict[Place, list[tuple[int, int]]](list)
        told = [] if traced is None else traced.leaders
        if not told:
            told = sorted(evidence.leaders_seen)
        epochs = dict[Place, int]()
        for moment_ns, place, epoch, node in told:
            if epoch > epochs.get(place, -1):
                epochs[place] = epoch
                self._known[place].append((moment_ns, node))

    def excuse(self, send: Send) -> str:
        """Return why this loss is allowed; nothing if it is not."""
        changes = self._known.get(send.place)
        if not changes:
            return "nobody has told who led when"
        if changes[-1][0] > send.begun_ns and len(changes) > 1:
            return "the leader changed after it was sent"
        moment_ns, node = changes[-1]
        if send.node is not None and send.node == node:
            return ""
        if len(changes) > 1 and send.begun_ns <= moment_ns + self._session_ns:
            return "its leader had just been replaced"
        return ""
