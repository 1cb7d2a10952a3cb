"""Records for one partition that travel and arrive together, and what became of them.

A batch is one letter: all of its records are in the log, or none is. So there is one outcome for
all of them, and a `Delivery` is no more than a batch and a number.

    open ──▶ sent ──▶ ok
      │        │ ▲
      │        ▼ │        failed    surely not in the log
      │     to be sent    unknown   sent, and perhaps in the log
      └──────────────▶    moved     its records went on in other batches

D1  a batch ends exactly once: with an outcome, or moved
D2  `failed` is said only if no attempt may have been written (P7); else it is `unknown`
D3  who waits is told after the outcome can be read

Not here: when a batch is sent, and again (`sender.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.clients.errors import DeliveryError, DeliveryFailedError, DeliveryUnknownError
from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import INT32_MAX

Headers = Sequence[tuple[str, bytes | None]]
# Timestamp in ms, key, value, headers: what is kept of a record until it is encoded.
Entry = tuple[int, bytes | None, bytes | None, Headers]


class State(StrEnum):
    """What is known of a record's fate."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch."""

    state: State
    # None where nobody told: acks=0, or recognised as a repeat of something long ago.
    base_offset: int | None = None
    # The time of the leader, where the topic keeps that one.
    append_ms: int | None = None
    sentence: str = ""
    code: ErrorCode | None = None


class Report(NamedTuple):
    """What became of one record."""

    state: State
    topic: str
    # -1 if it never came to one.
    partition: int
    # None if nobody told, or it was not written.
    offset: int | None
    timestamp_ms: int
    error: DeliveryError | None

    @property
    def is_ok(self) -> bool:
        return self.state is State.OK


class Batch:
    """The records of one batch, from the first one until all is known."""

    __slots__ = (
        "attempts",
        "callbacks",
        "created_ms",
        "is_maybe_written",
        "moved_to",
        "number",
        "outcome",
        "partition",
        "records",
        "sequence",
        "size",
        "topic",
        "trouble",
        "waiters",
    )

    def __init__(self, topic: str, partition: int, created_ms: float, number: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.created_ms: Final = created_ms
        # Batches of a partition are numbered in their order, for ever.
        self.number = number
        self.records: Final = list[Entry]()
        # An upper bound of its bytes, before compression.
        self.size = 0
        # How often it was given to a connection.
        self.attempts = 0
        # Its place in the producer's count, once it has one.
        self.sequence: int | None = None
        # Whether an attempt so far may have been written (D2).
        self.is_maybe_written = False
        # What went wrong last.
        self.trouble: tuple[ErrorCode | None, str] = (None, "")
        self.outcome: Outcome | None = None
        self.moved_to: Sequence[tuple[Batch, int]] | None = None
        self.callbacks: list[tuple[int, Callable[[Report], object]]] | None = None
        # Called when it has ended. Other threads may add to it: first added, then looked.
        self.waiters: Final = list[Callable[[], object]]()

    @property
    def has_ended(self) -> bool:
        return self.outcome is not None or self.moved_to is not None

    @property
    def last_sequence(self) -> int:
        ensure(self.sequence is not None, "the batch has a sequence", topic=self.topic)
        return ((self.sequence or 0) + len(self.records) - 1) & INT32_MAX

    def end(self, outcome: Outcome) -> None:
        """Set the outcome, and tell who waits. Callbacks are the shell's to call."""
        ensure(not self.has_ended, "a batch ends once", topic=self.topic, partition=self.partition)
        self.outcome = outcome
        self._tell()

    def move(self, places: Sequence[tuple[Batch, int]]) -> None:
        """Say where each record went on: a batch, and its number in it."""
        ensure(not self.has_ended, "a batch ends once", topic=self.topic, partition=self.partition)
        ensure(len(places) == len(self.records), "every record went somewhere")
        for index, callback in self.callbacks or ():
            batch, at = places[index]
            batch.call_back(at, callback)
        self.callbacks = None
        self.moved_to = places
        self._tell()

    def call_back(self, index: int, callback: Callable[[Report], object]) -> None:
        if self.callbacks is None:
            self.callbacks = []
        self.callbacks.append((index, callback))

    def report(self, index: int) -> Report:
        """Return what became of one record; only after an outcome."""
        outcome = self.outcome
        ensure(outcome is not None, "the batch has an outcome", topic=self.topic)
        # For the type checker.
        outcome = outcome or Outcome(State.UNKNOWN)
        stamp = self.records[index][0] if outcome.append_ms is None else outcome.append_ms
        base = outcome.base_offset
        offset = None if base is None else base + index
        return Report(
            outcome.state, self.topic, self.partition, offset, stamp, self._error(outcome)
        )

    def _error(self, outcome: Outcome) -> DeliveryError | None:
        if outcome.state is State.OK or not outcome.sentence:
            return None
        kind = DeliveryFailedError if outcome.state is State.FAILED else DeliveryUnknownError
        where = self.topic if self.partition < 0 else f"{self.topic}-{self.partition}"
        return kind(f"{where}: {outcome.sentence}", outcome.code)

    def _tell(self) -> None:
        for waiter in self.waiters:
            waiter()
