"""What writers tried and what became of it, and who was seen to lead: all that a judge believes.

An outcome is one of three. `OK`: acknowledged, with an offset. `FAILED`: surely nothing happened,
because it never left or was refused before it was appended. `UNKNOWN`: everything else, also an
answer that says "no longer leader" or "timed out", which may come after the append.

Every value is sent once, is different from all others, and names its partition.

Not here: who writes (`raw_writer.py`, `foreign_writer.py`), what follows from it (`judge.py`).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition

# Refusals that are given before anything is appended (chaos.md B2).
SURELY_NOT: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
# Said of what never left.
NOT_SENT: Final = "NOT_SENT"


class Fate(Enum):
    """What is known of a write."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Attempt:
    """One value, sent once."""

    writer: str
    place: TopicPartition
    value: bytes
    began_s: float
    # Until it is known otherwise: whoever dies in between leaves it so.
    fate: Fate = Fate.UNKNOWN
    ended_s: float = float("inf")
    # Of what was acknowledged −1: nobody said where it is.
    offset: int = -1
    # Who acknowledged it, where that is known.
    node: int | None = None
    # A code by its name, or what else was said.
    said: str = ""


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """Somebody said that a node leads a partition in an epoch."""

    place: TopicPartition
    epoch: int
    leader: int


@dataclass(slots=True)
class History:
    """Everything that was tried and seen. Threads may add to it at the same time."""

    attempts: list[Attempt] = field(default_factory=list)
    leaders: set[LeaderSeen] = field(default_factory=set)
    # When each write of a writer was acknowledged, in order.
    acknowledged_s: dict[str, list[float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, writer: str, place: TopicPartition) -> Attempt:
        """Make the next value for a partition, and note that it is on its way."""
        with self._lock:
            value = f"{writer}/{place}/{len(self.attempts)}".encode()
            attempt = Attempt(writer, place, value, time.monotonic())
            self.attempts.append(attempt)
        return attempt

    def acknowledge(self, attempt: Attempt, offset: int, node: int | None = None) -> None:
        with self._lock:
            attempt.fate, attempt.offset, attempt.node = Fate.OK, offset, node
            attempt.ended_s = time.monotonic()
            self.acknowledged_s.setdefault(attempt.writer, []).append(attempt.ended_s)

    def refuse(self, attempt: Attempt, fate: Fate, said: str) -> None:
        with self._lock:
            attempt.fate, attempt.said, attempt.ended_s = fate, said, time.monotonic()

    def saw(self, place: TopicPartition, epoch: int, leader: int) -> None:
        if epoch >= 0 and leader >= 0:
            with self._lock:
                self.leaders.add(LeaderSeen(place, epoch, leader))

    def acknowledged_since(self, writer: str, since_s: float) -> int:
        """Return how many writes of a writer were acknowledged after a moment."""
        with self._lock:
            times = self.acknowledged_s.get(writer, [])
            return len(times) - bisect_left(times, since_s)

    def longest_gap(self, writer: str, begin_s: float, end_s: float) -> float:
        with self._lock:
            times = list(self.acknowledged_s.get(writer, []))
        return longest_gap(times, begin_s, end_s)

    def since(self, writer: str, since_s: float) -> list[Attempt]:
        """Return the attempts of a writer that began after a moment."""
        with self._lock:
            return [one for one in self.attempts if one.writer == writer and one.began_s >= since_s]

    def counts(self) -> dict[str, int]:
        """Return how often each outcome was, by writer."""
        with self._lock:
            told = Counter(map(_outcome, self.attempts))
        return dict(sorted(told.items()))


def _outcome(one: Attempt) -> str:
    is_somewhere = one.fate is Fate.OK and one.offset < 0
    told = [one.writer, one.fate.value, one.said, "somewhere" if is_somewhere else ""]
    return " ".join(filter(None, told))


def fate_of(code: int) -> Fate:
    """Return what an answer with this code means for a write that was sent once."""
    if code == ErrorCode.NONE:
        return Fate.OK
    return Fate.FAILED if code in SURELY_NOT else Fate.UNKNOWN


def longest_gap(times_s: list[float], begin_s: float, end_s: float) -> float:
    """Return the longest time between two neighbours of which any part lies in the window."""
    first = max(0, bisect_left(times_s, begin_s) - 1)
    last = min(len(times_s) - 1, bisect_left(times_s, end_s))
    gaps = [times_s[at + 1] - times_s[at] for at in range(first, last)]
    return max(gaps, default=0.0)
