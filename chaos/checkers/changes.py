"""When each partition changed its leader, and whether that excuses the loss of a write with acks=1.

Such a write is acknowledged by its leader alone. It may be lost

  1. if the leader changed after it was sent, for the next one may not have it
  2. if it was sent to a leader that had been replaced and could not know it yet: within a session

Not here: writes with acks=all, which nothing excuses.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

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
        after = [one for one in changes if one[0] > send.begun_ns]
        before = changes[: len(changes) - len(after)]
        if after and after[0][1] == send.node and after[0][0] <= send.ended_ns:
            # It began to lead while the write was under way.
            before, after = [*before, after[0]], after[1:]
        if send.node is None or not before or before[-1][1] == send.node:
            return "the leader changed after it was sent" if after else ""
        replaced_ns = _replaced_ns(before, send.node)
        if replaced_ns is None:
            return "nobody has told when its leader led"
        if send.begun_ns <= replaced_ns + self._session_ns:
            return "its leader had just been replaced"
        return ""


def _replaced_ns(changes: list[tuple[int, int]], node: int) -> int | None:
    """Return when a node that led was replaced for the last time; None: it never led."""
    replaced_ns = None
    for (_, leader), (moment_ns, _) in pairwise(changes):
        if leader == node:
            replaced_ns = moment_ns
    return replaced_ns
