"""Where reading begins and ends, as the options of Spark's Kafka connector say it.

A place is a rule for every partition: the beginning, the end, what a group has committed, offsets
that were written down, or the first record since a time.

Not here: asking a cluster what a place is in numbers (`planning.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from ottla.clients.spark.ranges import TOPIC_IDS, TopicIds
from ottla.proto.errors import ConfigError
from ottla.proto.ids import INT32_MAX, INT64_MAX, TopicPartition
from ottla.proto.kafka.uuids import UUID

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2
# A text of offsets is written by a person or a program; more than this is neither.
_TEXT_MAX: Final = 4 << 20


class Rule(StrEnum):
    """How a place is found."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    OFFSETS = "offsets"
    TIMES = "times"


@dataclass(frozen=True, slots=True)
class Place:
    """A rule for every partition, with the numbers that belong to it."""

    rule: Rule
    # For OFFSETS: offsets, with -1 for the end and -2 for the beginning. For TIMES: milliseconds.
    numbers: Mapping[TopicPartition, int] = field(default_factory=dict)
    # For TIMES: the time of partitions that `numbers` does not name.
    time_ms: int | None = None
    # For OFFSETS: which topics they are of, if that is told, as a stream tells it of itself.
    topic_ids: TopicIds = field(default_factory=dict)


EARLIEST: Final = Place(Rule.EARLIEST)
LATEST: Final = Place(Rule.LATEST)


def read_offsets(name: str, text: str) -> Place:
    """Return what `startingOffsets` or `endingOffsets` says, or raise `ConfigError`."""
    word = text.strip().lower()
    if word in (Rule.EARLIEST, Rule.LATEST, Rule.COMMITTED):
        return Place(Rule(word))
    if not text.strip().startswith("{"):
        raise ConfigError(
            f"{name} must be earliest, latest, committed, or offsets like "
            f'{{"orders":{{"0":23}}}}, not {_shown(text)}.'
        )
    told = _object(name, text)
    topic_ids = _topic_ids(name, told.pop(TOPIC_IDS, {}))
    numbers = _partition_numbers(name, told, low=EARLIEST_OFFSET)
    return Place(Rule.OFFSETS, numbers, topic_ids=topic_ids)


def read_times(name: str, text: str) -> Place:
    """Return what `startingOffsetsByTimestamp` or its counterpart says."""
    return Place(Rule.TIMES, _partition_numbers(name, _object(name, text), low=0))


def read_time(name: str, text: str) -> Place:
    """Return what `startingTimestamp` or `endingTimestamp` says."""
    if not text.strip().isdecimal() or int(text) > INT64_MAX:
        raise ConfigError(f"{name} must be milliseconds since 1970, not {_shown(text)}.")
    return Place(Rule.TIMES, time_ms=int(text))


def _partition_numbers(
    name: str, told: Mapping[str, Any], *, low: int
) -> dict[TopicPartition, int]:
    """Return the numbers of `{"topic": {"partition": number}}`."""
    found = dict[TopicPartition, int]()
    for topic, inner in told.items():
        if not isinstance(inner, dict):
            raise ConfigError(f"{name}: topic {topic} must have a number for each partition.")
        for partition, number in inner.items():
            where = TopicPartition(topic, _partition(name, topic, partition))
            if not isinstance(number, int) or isinstance(number, bool) or number < low:
                raise ConfigError(
                    f"{name}: {where} must have a whole number from {low} on, not {number!r}."
                )
            found[where] = min(number, INT64_MAX)
    return found


def read_assign(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions of `{"topic": [0, 1]}`."""
    found = list[TopicPartition]()
    for topic, numbers in _object(name, text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ConfigError(f"{name}: topic {topic} must have a list of partitions.")
        found += [TopicPartition(topic, _partition(name, topic, one)) for one in numbers]
    return tuple(sorted(set(found)))


def _topic_ids(name: str, told: object) -> dict[str, UUID]:
    try:
        return {topic: UUID(one) for topic, one in dict(told).items()}  # type: ignore[call-overload]
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{name}: {TOPIC_IDS} must have an id for each topic.") from None


def _object(name: str, text: str) -> dict[str, Any]:
    if len(text) > _TEXT_MAX:
        raise ConfigError(f"{name} has {len(text)} characters; at most {_TEXT_MAX} are read.")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is no JSON: {error}.") from None
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{name} must be a JSON object with a topic in it, not {_shown(text)}.")
    return found


def _partition(name: str, topic: str, given: object) -> int:
    text = str(given)
    if isinstance(given, bool) or not text.isdecimal() or int(text) > INT32_MAX:
        raise ConfigError(f"{name}: {text[:32]!r} is no partition of {topic}.")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
