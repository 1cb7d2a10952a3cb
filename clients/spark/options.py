"""The options of the source and the sink, under the names of Spark's Kafka connector.

Spark hands options over without their capitals, so names are compared without them and told with
them. What begins with `kafka.` goes to the client, and is checked by the client's own table.

P1  an option that nobody obeys is refused, with the nearest name that is known
P2  what contradicts itself is refused when the query is planned, not while it runs

Not here: what a place is in numbers (`planning.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.clients.options import ClientOptions, Role, options_of, read_options
from ottla.clients.spark.decisions import BatchName
from ottla.clients.spark.places import (
    EARLIEST,
    LATEST,
    Place,
    Rule,
    read_assign,
    read_offsets,
    read_time,
    read_times,
)
from ottla.proto.errors import ConfigError
from ottla.proto.ids import INT64_MAX, TopicPartition

CLIENT_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
SOURCE_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "pushDownFilters",
    "kafkaConsumer.pollTimeoutMs",
)
SINK_OPTIONS: Final = (
    "topic",
    "includeHeaders",
    "exactlyOnce",
    "transactionalIdPrefix",
    "decisionsTopic",
    "takeOverPrefix",
    "acceptLostBatch",
)
DECISIONS_TOPIC: Final = "ottla-spark-decisions"
# Spark's own, on every path.
CHECKPOINT: Final = "checkpointLocation"
_PASSED_OVER: Final = frozenset({"path", "checkpointlocation", "queryname"})
_ENDINGS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# Larger fetches than a consumer's: a task reads one partition, and all of it.
_CONSUMER_DEFAULTS: Final = {
    "allow.auto.create.topics": "false",
    "enable.auto.commit": "false",
    "max.partition.fetch.bytes": str(4 << 20),
}
_PRODUCER_DEFAULTS: Final = {"allow.auto.create.topics": "false", "linger.ms": "20"}
# The bytes of keys and values are columns of a table; a serde would make something else of them.
_REFUSED: Final = frozenset(
    {
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "auto.offset.reset",
        "enable.auto.commit",
        "transactional.id",
        "transaction.two.phase.commit.enable",
    }
)
_POLL_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, complete and checked; small enough to be sent to every task."""

    # Under Kafka's names, for a consumer.
    client: Mapping[str, str]
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicPartition, ...]
    start: Place
    end: Place
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    push_down_filters: bool
    # How long a task waits for the next records of a range.
    poll_timeout_ms: int

    def consumer_options(self) -> ClientOptions:
        return read_options(Role.CONSUMER, self.client)

    def admin_config(self) -> dict[str, str]:
        own = {option.name for option in options_of(Role.ADMIN)}
        return {name: value for name, value in self.client.items() if name in own}

    @property
    def group_id(self) -> str:
        return self.client.get("group.id", "")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where a query writes, complete and checked."""

    # Under Kafka's names, for a producer.
    client: Mapping[str, str]
    # None: the column `topic` says it for each row.
    topic: str | None
    # What the transactions of a query are called that writes exactly once; None: at least once.
    prefix: str | None = None
    # Where it is written down which of them count.
    decisions_topic: str = DECISIONS_TOPIC
    # The query that had the prefix before is gone for good.
    takes_over: bool = False
    # Where Spark keeps a stream's id and progress; None: not told, or a batch query.
    checkpoint: str | None = None
    # The batch whose lost rows stay missing.
    accepts: BatchName | None = None


class _Given:
    """Options as they were given, by names without capitals."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values: Final = {name.lower(): str(value) for name, value in given.items()}
        self.problems: Final = list[str]()
        by_name = {name.lower(): name for name in known}
        for name in self._values:
            if name.startswith(CLIENT_PREFIX) or name in by_name or name in _PASSED_OVER:
                continue
            near = difflib.get_close_matches(name[:64], [*by_name, BOOTSTRAP], n=1)
            hint = f"; is {by_name.get(near[0], near[0])} meant?" if near else "."
            self.problems.append(f"{name[:64]} is no option of format ottla{hint}")

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def client(self, role: Role, defaults: Mapping[str, str]) -> dict[str, str]:
        client = dict(defaults)
        for name, value in self._values.items():
            if name.startswith(CLIENT_PREFIX):
                bare = name.removeprefix(CLIENT_PREFIX)
                if bare in _REFUSED:
                    self.problems.append(f"{name} cannot be set: format ottla decides it.")
                client[bare] = value
        if not client.get("bootstrap.servers", "").strip():
            self.problems.append(f"{BOOTSTRAP} is needed, as in {BOOTSTRAP}=localhost:9092.")
        elif not self.problems:
            try:
                read_options(role, client)
            except ConfigError as error:
                self.problems.extend(f"{CLIENT_PREFIX}*: {problem}" for problem in error.problems)
        return client

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or not 0 < int(text) <= INT64_MAX:
            self.problems.append(f"{name} must be a whole number from 1 on, not {text[:32]!r}.")
            return None
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            self.problems.append(f"{name} must be true or false, not {text[:32]!r}.")
        return text == "true"


def read_source_options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Return what is to be read, or raise `ConfigError` with a sentence for each problem."""
    options = _Given(given, SOURCE_OPTIONS)
    found = SourceOptions(
        client=options.client(Role.CONSUMER, _CONSUMER_DEFAULTS),
        topics=_topics(options),
        pattern=options.text("subscribePattern"),
        assigned=_assigned(options),
        start=_place(options, "starting", LATEST if is_stream else EARLIEST),
        end=_place(options, "ending", LATEST),
        max_offsets_per_trigger=options.count("maxOffsetsPerTrigger"),
        min_partitions=options.count("minPartitions"),
        max_records_per_partition=options.count("maxRecordsPerPartition"),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        include_headers=options.flag("includeHeaders", default=False),
        push_down_filters=options.flag("pushDownFilters", default=False),
        poll_timeout_ms=options.count("kafkaConsumer.pollTimeoutMs") or _POLL_TIMEOUT_MS,
    )
    options.problems.extend(_contradictions(options, found, is_stream=is_stream))
    if options.problems:
        raise ConfigError(*options.problems)
    return found


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return where to write, or raise `ConfigError` with a sentence for each problem."""
    options = _Given(given, SINK_OPTIONS)
    client = options.client(Role.PRODUCER, _PRODUCER_DEFAULTS)
    topic = options.text("topic")
    if topic is not None and not topic.strip():
        options.problems.append("topic must not be empty; without it a column says the topic.")
    is_once = options.flag("exactlyOnce", default=False)
    prefix = options.text("transactionalIdPrefix")
    if is_once and not (prefix or "").strip():
        options.problems.append(
            "exactlyOnce=true needs a transactionalIdPrefix: a name that no other query has, and "
            "that this one keeps."
        )
    elif prefix is not None and "/" in prefix:
        # Or the names of one sink could be taken for those of another.
        options.problems.append("transactionalIdPrefix must not have a / in it.")
    elif prefix is not None and not is_once:
        options.problems.append("transactionalIdPrefix has a meaning with exactlyOnce=true only.")
    takes_over = options.flag("takeOverPrefix", default=False)
    if takes_over and not is_once:
        options.problems.append("takeOverPrefix has a meaning with exactlyOnce=true only.")
    accepts = _accepted(options, is_once=is_once)
    if is_once and client.get("acks", "all") not in ("all", "-1"):
        options.problems.append("exactlyOnce=true needs kafka.acks=all.")
    if options.problems:
        raise ConfigError(*options.problems)
    where = options.text("decisionsTopic") or DECISIONS_TOPIC
    checkpoint = options.text(CHECKPOINT)
    prefix = prefix if is_once else None
    return SinkOptions(client, topic, prefix, where, takes_over, checkpoint, accepts)


def _accepted(options: _Given, *, is_once: bool) -> BatchName | None:
    text = options.text("acceptLostBatch")
    if text is None:
        return None
    if not is_once:
        options.problems.append("acceptLostBatch has a meaning with exactlyOnce=true only.")
        return None
    try:
        return BatchName.parse(text)
    except ConfigError:
        # With the query: numbers of batches come again, with another checkpoint or a batch query.
        options.problems.append(
            "acceptLostBatch must be QUERY:BATCH, as the failure of the query names it, not "
            f"{text[:60]!r}."
        )
        return None


def _topics(options: _Given) -> tuple[str, ...]:
    text = options.text("subscribe")
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        options.problems.append(f"subscribe must be names with commas between, not {text[:60]!r}.")
    return tuple(sorted(set(names)))


def _assigned(options: _Given) -> tuple[TopicPartition, ...]:
    text = options.text("assign")
    if text is None:
        return ()
    try:
        return read_assign("assign", text)
    except ConfigError as error:
        options.problems.extend(error.problems)
        return ()


def _place(options: _Given, which: str, default: Place) -> Place:
    readers = {
        f"{which}Timestamp": read_time,
        f"{which}OffsetsByTimestamp": read_times,
        f"{which}Offsets": read_offsets,
    }
    given = {name: text for name in readers if (text := options.text(name)) is not None}
    if len(given) > 1:
        options.problems.append(f"{' and '.join(given)} contradict each other; give one of them.")
    for name, text in given.items():
        try:
            return readers[name](name, text)
        except ConfigError as error:
            options.problems.extend(error.problems)
    return default


def _contradictions(options: _Given, found: SourceOptions, *, is_stream: bool) -> list[str]:
    told = list[str]()
    ways = [name for name in SOURCE_OPTIONS[:3] if options.text(name) is not None]
    if len(ways) != 1:
        what = f"{' and '.join(ways)} were given" if ways else "none was given"
        told.append(f"One of subscribe, subscribePattern and assign is needed, and {what}.")
    told += _wrong_pattern(found.pattern)
    if is_stream and found.push_down_filters:
        told.append("pushDownFilters is for spark.read; Spark hands a stream no filters.")
    if is_stream:
        endings = [name for name in _ENDINGS if options.text(name) is not None]
        told += [f"{name} is for spark.read; a stream has no end." for name in endings]
    else:
        if found.start.rule is Rule.LATEST:
            told.append("startingOffsets=latest leaves a batch query nothing to read.")
        if found.start.rule is Rule.TIMES and found.end.rule is Rule.TIMES:
            told += _backwards(found)
        if found.max_offsets_per_trigger is not None:
            told.append("maxOffsetsPerTrigger is for spark.readStream; a batch reads all.")
    if found.end.rule in (Rule.EARLIEST, Rule.COMMITTED):
        told.append(f"endingOffsets cannot be {found.end.rule.value}.")
    if found.start.rule is Rule.COMMITTED and not found.group_id:
        told.append("startingOffsets=committed needs kafka.group.id: whose offsets?")
    return told


def _backwards(found: SourceOptions) -> list[str]:
    start, end = found.start.time_ms, found.end.time_ms
    if start is not None and end is not None and end < start:
        return [f"endingTimestamp ({end}) is before startingTimestamp ({start})."]
    return []


def _wrong_pattern(pattern: str | None) -> list[str]:
    if pattern is None:
        return []
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"subscribePattern is no regular expression: {error}."]
    return []
