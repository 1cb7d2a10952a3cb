"""What becomes of a record that a handler failed on. A core: time is an argument.

A letter that could not be delivered goes to a shelf for tomorrow, then to one for next week, and at
last to the dead letters; the envelope says how often, when and why.

X1  each failure moves a record exactly one level up; after the last it is a dead letter
X2  origin and time of the first failure are written once, at the first failure, and never changed
X3  headers of the program stay as they were; ours have the prefix `ottla-` and occur once
X4  an error that cannot heal (`DeserializationError`, or what the program names) skips all levels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from ottla.clients.consumer.record import Record
from ottla.proto.errors import ConfigError

PREFIX: Final = "ottla-"
ATTEMPTS: Final = "ottla-attempts"
ERROR: Final = "ottla-error"
ERROR_TYPE: Final = "ottla-error-type"
FAILED_AT: Final = "ottla-failed-at-ms"
FIRST_FAILED_AT: Final = "ottla-first-failed-at-ms"
DUE_AT: Final = "ottla-due-at-ms"
ORIGIN_TOPIC: Final = "ottla-origin-topic"
ORIGIN_PARTITION: Final = "ottla-origin-partition"
ORIGIN_OFFSET: Final = "ottla-origin-offset"
ORIGIN_TIMESTAMP: Final = "ottla-origin-timestamp-ms"
_OURS: Final = frozenset(
    {
        ATTEMPTS,
        ERROR,
        ERROR_TYPE,
        FAILED_AT,
        FIRST_FAILED_AT,
        DUE_AT,
        ORIGIN_TOPIC,
        ORIGIN_PARTITION,
        ORIGIN_OFFSET,
        ORIGIN_TIMESTAMP,
    }
)
_REASON_BYTES_MAX: Final = 1024

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Level:
    """One retry topic."""

    topic: str
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Passed:
    """Where a record goes after a failure, and with which headers."""

    topic: str
    headers: Headers
    is_dead: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The levels in order, and the topic behind the last."""

    levels: tuple[Level, ...]
    dead_letters: str

    def __post_init__(self) -> None:
        names = [*self.topics, self.dead_letters]
        if len(set(names)) != len(names):
            raise ConfigError("each level and the dead letters need a topic of their own.")
        if any(level.delay_ms < 0 for level in self.levels):
            raise ConfigError("a delay is 0 ms or more.")

    @classmethod
    def of(cls, group_id: str, *, delays_ms: Sequence[int] = (1_000, 10_000, 60_000)) -> Self:
        """Return levels with these delays, in topics `<group>.retry.<n>` and `<group>.dead`."""
        levels = tuple(
            Level(f"{group_id}.retry.{number}", delay)
            for number, delay in enumerate(delays_ms, start=1)
        )
        return cls(levels, f"{group_id}.dead")

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(level.topic for level in self.levels)

    def level_of(self, topic: str) -> int:
        """Return the number of the level, from 1; 0 for a topic that is none."""
        for number, level in enumerate(self.levels, start=1):
            if level.topic == topic:
                return number
        return 0

    def due_ms(self, record: Record) -> int:
        """Return when the record may be handled; 0 for any time."""
        level = self.level_of(record.topic)
        if level == 0:
            return 0
        told = number_of(record, DUE_AT)
        # Somebody else put it there: its time of writing is all that is known.
        return record.timestamp_ms + self.levels[level - 1].delay_ms if told is None else told

    def after_failure(
        self, record: Record, error: BaseException, now_ms: int, *, is_final: bool = False
    ) -> Passed:
        """Return where the record goes now (X1)."""
        level = self.level_of(record.topic)
        is_dead = is_final or level >= len(self.levels)
        if is_dead:
            return Passed(self.dead_letters, self._headers(record, error, now_ms, None), True)
        following = self.levels[level]
        headers = self._headers(record, error, now_ms, now_ms + following.delay_ms)
        return Passed(following.topic, headers, False)

    def _headers(
        self, record: Record, error: BaseException, now_ms: int, due_ms: int | None
    ) -> Headers:
        attempts = (number_of(record, ATTEMPTS) or 0) + 1
        reason = str(error) or type(error).__name__
        ours: list[tuple[str, bytes | None]] = [
            (ATTEMPTS, b"%d" % attempts),
            (ERROR_TYPE, type(error).__qualname__.encode()),
            (ERROR, reason.encode(errors="replace")[:_REASON_BYTES_MAX]),
            (FAILED_AT, b"%d" % now_ms),
            (FIRST_FAILED_AT, record.header(FIRST_FAILED_AT) or b"%d" % now_ms),
        ]
        if due_ms is not None:
            ours.append((DUE_AT, b"%d" % due_ms))
        if record.header(ORIGIN_TOPIC) is None:
            ours += [
                (ORIGIN_TOPIC, record.topic.encode()),
                (ORIGIN_PARTITION, b"%d" % record.partition),
                (ORIGIN_OFFSET, b"%d" % record.offset),
                (ORIGIN_TIMESTAMP, b"%d" % record.timestamp_ms),
            ]
        else:
            names = (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET, ORIGIN_TIMESTAMP)
            ours += [(name, record.header(name)) for name in names]
        kept = tuple(header for header in record.headers if header[0] not in _OURS)
        return (*kept, *ours)


def number_of(record: Record, name: str) -> int | None:
    """Return the number in a header of ours; None if there is none that can be read."""
    data = record.header(name)
    try:
        return None if data is None else int(data)
    except ValueError:
        return None
