"""The trace of all nodes (`docs/trace.md`), sorted for those who judge it.

A kill ends the trace of a process up to 10 ms early, so nothing follows from what a process did not
tell before it ended. A node that lost lines is not believed to be silent about anything.

Not here: verdicts; the lines of a topic that had several lives under one name, which are left out
where the name alone cannot tell them apart.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.chaos.history import Place

Line = Mapping[str, Any]
# How late a line about a high watermark may be, and a little for the clocks of two processes.
LATE_NS: Final = 15_000_000
_FAR: Final = 1 << 62


class Traced:
    """What nodes told of themselves. Look up by node and partition."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines: Final[Sequence[Line]] = sorted(lines, key=lambda line: int(line["t_ns"]))
        self.deleted: Final = {one["topic"] for one in self.lines if one["event"] == "deleted"}
        # Who began to lead, in the order of the clock: (moment, partition, epoch, node).
        self.leaders: Final = list[tuple[int, Place, int, int]]()
        self._starts: Final = defaultdict[int, list[int]](list)
        self._lossy: Final = set[int]()
        # Moments, and the highest high watermark told until then.
        self._committed: Final = defaultdict[tuple[int, Place], list[tuple[int, int]]](list)
        # Moments, and whether enough are in sync: by leaders, and by the metadata a node obeys.
        self._led_sets: Final = defaultdict[tuple[int, Place], list[tuple[int, bool]]](list)
        self._obeyed_sets: Final = defaultdict[tuple[int, Place], list[tuple[int, bool]]](list)
        self._last: Final = dict[Place, Line]()
        # Moments, and who was in sync from then on, by the newest metadata that anybody obeyed.
        self._in_sync: Final = defaultdict[Place, list[tuple[int, tuple[int, ...]]]](list)
        self._tellers: Final = defaultdict[Place, set[int]](set)
        for line in self.lines:
            self._take(line)

    def _take(self, line: Line) -> None:
        node, moment_ns, event = line["node"], line["t_ns"], line["event"]
        if line.get("lines_lost"):
            self._lossy.add(node)
        if event == "started":
            self._starts[node].append(moment_ns)
        if "partition" not in line or line["topic"] in self.deleted:
            return
        place = Place(line["topic"], line["partition"])
        if "high_watermark" in line:
            self._tellers[place].add(node)
            told = self._committed[node, place]
            before = told[-1][1] if told and event != "cut" else 0
            told.append((moment_ns, max(before, line["high_watermark"])))
        if event == "led":
            self.leaders.append((moment_ns, place, line["leader_epoch"], node))
        if event in ("led", "isr"):
            is_enough = len(line["isr"]) >= line["min_isr"]
            self._led_sets[node, place].append((moment_ns, is_enough))
        elif event == "partition":
            is_enough = len(line["isr"]) >= line["min_isr"]
            self._obeyed_sets[node, place].append((moment_ns, is_enough))
            last = self._last.get(place)
            if last is None or line["partition_epoch"] >= last["partition_epoch"]:
                self._last[place] = line
                self._in_sync[place].append((moment_ns, tuple(line["isr"])))

    def is_in_sync(self, place: Place, node: int, moment_ns: int | None) -> bool:
        """Whether a node was in sync at a moment; if nobody told, take it that it was."""
        told = self.in_sync_at(place, moment_ns)
        return not told or node in told

    def in_sync_at(self, place: Place, moment_ns: int | None) -> tuple[int, ...]:
        """Return who was in sync at a moment, or (None) at the end; nobody, if nobody told."""
        told = self._in_sync.get(place, [])
        at = len(told) if moment_ns is None else bisect_right(told, (moment_ns, (_FAR,)))
        return told[at - 1][1] if at else ()

    def in_sync_steps(self) -> dict[Place, list[tuple[int, tuple[int, ...]]]]:
        """Return of each partition from when on who was in sync, each time that it changed."""
        found = dict[Place, list[tuple[int, tuple[int, ...]]]]()
        for place, told in self._in_sync.items():
            steps = found.setdefault(place, [])
            steps += [
                one for at, one in enumerate(told) if not at or set(one[1]) != set(told[at - 1][1])
            ]
        return found

    def is_committed(self, node: int | None, place: Place, offset: int, by_ns: int) -> bool | None:
        """Whether an offset was below a high watermark by a moment; None: nobody can tell.

        Without a node, any node that told so will do.
        """
        nodes = self._tellers.get(place, set()) if node is None else {node}
        answers = [self._is_committed(one, place, offset, by_ns) for one in nodes]
        if True in answers:
            return True
        return None if None in answers or not answers else False

    def _is_committed(self, node: int, place: Place, offset: int, by_ns: int) -> bool | None:
        told = self._committed.get((node, place), [])
        at = bisect_right(told, (by_ns, _FAR))
        if at and told[at - 1][1] > offset:
            return True
        if node in self._lossy or at == len(told):
            return None
        # The next line must be of the same life, or the lines in between died with the process.
        starts = self._starts.get(node, [])
        lives = {bisect_right(starts, moment_ns) for moment_ns in (by_ns, told[at][0])}
        return False if len(lives) == 1 else None

    def committed_ns(self, node: int, place: Place, offset: int) -> int:
        """Return a moment before which a node had not told that it is committed; 0: none is known.

        A line about a high watermark is late, so the moment is a little earlier than its own.
        """
        told = self._committed.get((node, place), [])
        at = bisect_right(told, offset, key=lambda one: one[1])
        return told[at][0] - 2 * LATE_NS if at < len(told) else 0

    def had_enough(
        self, node: int, place: Place, begun_ns: int, ended_ns: int, *, by_metadata: bool
    ) -> bool | None:
        """Whether enough were in sync at any moment of a window; None: nobody can tell."""
        sets = self._obeyed_sets if by_metadata else self._led_sets
        told = sets.get((node, place), [])
        first = bisect_right(told, (begun_ns, True))
        last = bisect_right(told, (ended_ns + LATE_NS, True))
        if first == 0 or node in self._lossy:
            return None
        return any(is_enough for _, is_enough in told[first - 1 : last])
