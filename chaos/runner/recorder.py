"""The pen: every operation is written down when it begins, and again when it ends.

Clients of all threads share one pen, one counter and one clock. A line is handed to the system at
once, so that the history of a harness that dies is there up to its death.

Not here: what an error means (`outcomes.py`), what follows (`checkers/`).

R1  indexes count from 0 without gaps, and times never go back along them
R2  an operation is begun before anything of it is sent, and ends after all of it was heard
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from ottla.chaos.clock import now_ns
from ottla.chaos.history import Event, Kind, Place, to_line
from ottla.chaos.workload import ALL
from ottla.proto.errors import ensure

SEND: Final = "send"
POLL: Final = "poll"
ASSIGN: Final = "assign"
ADMIN: Final = "admin"
SUBSCRIBE: Final = "subscribe"
OWNS: Final = "owns"
COMMIT: Final = "commit"
COMMITTED: Final = "committed"
LEAVE: Final = "leave"
CRASH: Final = "crash"
BEGIN_TXN: Final = "begin-txn"
PREPARE_TXN: Final = "prepare-txn"
KEEP_TXN: Final = "keep-txn"
COMMIT_TXN: Final = "commit-txn"
ABORT_TXN: Final = "abort-txn"
LATE_END: Final = "late-end"
HOLD: Final = "hold"
# Over how long `rate` looks back.
_RATE_NS: Final = 2_000_000_000


class Pen(Protocol):
    """Where lines go: a file that is open for text, say."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Recorder:
    """Writes the history of one run; any thread may use it."""

    def __init__(self, history: Pen, clock: Callable[[], int] = now_ns) -> None:
        self._pen: Final = history
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._next = 0
        # What has begun and not ended, by the index of its beginning.
        self._open: Final = dict[int, Event]()
        self._kinds: Final = Counter[Kind]()
        self._acknowledged_ns: Final = deque[int]()
        # By partition, the highest offset that was acknowledged to a write with acks=all.
        self._highest: Final = dict[Place, int]()
        self._leaders: Final = dict[tuple[Place, int, int], int]()

    def begin(self, process: str, function: str, **fields: Any) -> int:
        """Write down that something is about to be tried; return its index."""
        with self._lock:
            event = Event(
                index=self._next,
                t_ns=self._clock(),
                process=process,
                kind=Kind.INVOKE,
                function=function,
                **fields,
            )
            self._open[event.index] = event
            self._write(event)
            return event.index

    def end(self, index: int, kind: Kind, **fields: Any) -> None:
        """Write down what became of it."""
        with self._lock:
            begun = self._open.pop(index, None)
            ensure(begun is not None, "an operation ends once", index=index)
            assert begun is not None
            event = replace(begun, index=self._next, t_ns=self._clock(), kind=kind, **fields)
            if event.function == SEND:
                self._count(event)
            self._write(event)

    def note(self, process: str, function: str, **fields: Any) -> None:
        """Write down something that is done as soon as it is begun."""
        self.end(self.begin(process, function, **fields), Kind.OK)

    def note_leader(self, place: Place, epoch: int, node: int) -> None:
        """Note that somebody named a leader; only the first time counts."""
        if epoch >= 0 and node >= 0 and (place, epoch, node) not in self._leaders:
            with self._lock:
                self._leaders.setdefault((place, epoch, node), self._clock())

    def _write(self, event: Event) -> None:
        self._next += 1
        self._pen.write(to_line(event) + "\n")
        self._pen.flush()

    def _count(self, event: Event) -> None:
        self._kinds[event.kind] += 1
        if event.kind is not Kind.OK:
            return
        self._acknowledged_ns.append(event.t_ns)
        self._forget(event.t_ns)
        if event.acks == ALL and event.place is not None and event.offset is not None:
            self._highest[event.place] = max(self._highest.get(event.place, -1), event.offset)

    def _forget(self, now: int) -> None:
        while self._acknowledged_ns and self._acknowledged_ns[0] < now - _RATE_NS:
            self._acknowledged_ns.popleft()

    # -- looking ---------------------------------------------------------------------------------

    def acknowledged(self) -> int:
        return self._kinds[Kind.OK]

    def rate(self) -> float:
        """Return the acknowledged writes of a second, over the last two."""
        with self._lock:
            self._forget(self._clock())
            return len(self._acknowledged_ns) * 1e9 / _RATE_NS

    def progress(self) -> Mapping[str, float]:
        return {
            "ok": self._kinds[Kind.OK],
            "fail": self._kinds[Kind.FAIL],
            "unknown": self._kinds[Kind.UNKNOWN],
            "rate": self.rate(),
        }

    def highest(self, place: Place) -> int:
        """Return the highest offset acknowledged to acks=all; −1 if there is none."""
        return self._highest.get(place, -1)

    def leaders(self) -> list[tuple[int, Place, int, int]]:
        """Return when each leader of each epoch was first named: time, partition, epoch, node."""
        with self._lock:
            return sorted(
                (t, place, epoch, node) for (place, epoch, node), t in self._leaders.items()
            )
