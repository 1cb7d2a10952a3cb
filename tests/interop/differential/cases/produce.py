"""Produce, InitProducerId and DescribeProducers.

What is wrong inside the records of one partition is in `tests/unit/proto/records/bad_batches.py`
and has been asked of Kafka there; here are the requests around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from ottla.proto.kafka.apis import (
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
)
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record
from tests.builders import NOW_MS, produced
from tests.interop.differential.case import Ask, Case, NewTopic, Send, Talk, ends_of, many, one
from tests.interop.differential.messages import Fields, Plain
from tests.interop.differential.stage import RECORDS_PER_BATCH, batch

BATCH: Final = batch(0)
ONE: Final = NewTopic()
TWO: Final = NewTopic(partitions=2)
# Not given out by any node in a test run.
FOREIGN_ID: Final = 5_000_000
# One record more than the default of max.message.bytes allows.
TOO_LARGE: Final = produced(b"x" * 1_048_588)

KEYED: Final = produced((b"key", b"value"), (b"key", None))
# A year that has not come yet: later than `message.timestamp.after.max.ms` allows.
FUTURE: Final = produced(b"value", timestamps=[253_370_764_800_000])

TRANSACTIONAL: Final = build_batch(
    [Record(0, NOW_MS, None, b"value", ())],
    producer_id=FOREIGN_ID,
    producer_epoch=0,
    base_sequence=0,
    transactional=True,
)

Partitions = list[tuple[int, bytes | None]]


def request(
    ask: Ask,
    partitions: Partitions,
    *,
    topic: str | None = None,
    topic_id: UUID | None = None,
    **changes: Any,
) -> Fields:
    """Return the fields of a Produce request to the case's own topic, or to the one named."""
    data = [{"index": index, "records": records} for index, records in partitions]
    if topic is None:
        topic, topic_id = ask.topic, ask.topic_id
    told = {"name": topic, "topic_id": topic_id, "partition_data": data}
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [told],
        **changes,
    }


def _good(name: str, partitions: Partitions, **changes: Any) -> Case:
    return one(name, PRODUCE, lambda ask: request(ask, partitions, **changes), topic=TWO)


def _at_ends(name: str, partitions: Partitions, **changes: Any) -> Case:
    return one(
        name,
        PRODUCE,
        lambda ask: request(ask, partitions, **changes),
        versions=(3, 9, 13),
        topic=TWO,
    )


def _into(name: str, settings: Mapping[str, str], records: bytes, **changes: Any) -> Case:
    """To a topic with options of its own."""
    return one(
        name,
        PRODUCE,
        lambda ask: request(ask, [(0, records)], **changes),
        versions=(3, 8, 13),
        topic=NewTopic(settings=settings),
    )


def _topics(name: str, *topics: tuple[Partitions, ...]) -> Case:
    """A request that names its topic more than once."""

    def fields(ask: Ask) -> Fields:
        parts = [request(ask, partitions)["topic_data"][0] for (partitions,) in topics]
        return {**request(ask, []), "topic_data": parts}

    return one(name, PRODUCE, fields, versions=(3, 12, 13), topic=TWO)


def _acks_zero(ask: Ask) -> Talk:
    """There is no answer to acks=0, and nobody says when the batch is there."""
    yield Send(PRODUCE, ask.version, request(ask, [(0, BATCH)], acks=0), may_be_silent=True)
    topic = {"name": ask.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [topic]}
    yield Send(
        LIST_OFFSETS,
        1,
        fields,
        until=lambda answer: answer["topics"][0]["partitions"][0]["offset"] == RECORDS_PER_BATCH,
    )


def _acks_zero_refused(ask: Ask) -> Talk:
    fields = request(ask, [(9, BATCH)], acks=0)
    yield Send(PRODUCE, ask.version, fields, may_be_silent=True)


def _acks_zero_corrupt(ask: Ask) -> Talk:
    fields = request(ask, [(0, BATCH[:-1] + b"!")], acks=0)
    yield Send(PRODUCE, ask.version, fields, may_be_silent=True)


def _null_records(ask: Ask) -> Talk:
    yield Send(PRODUCE, ask.version, request(ask, [(0, None)]), may_be_silent=True)


_FETCH: Final[Plain] = {
    "replica_id": -1,
    "max_wait": 0,
    "min_bytes": 0,
    "isolation_level": 0,
    "forgotten_topics_data": [],
}


def _grows(ask: Ask) -> Talk:
    """Three requests, then what is there to be read."""
    for number in range(3):
        yield Send(PRODUCE, ask.version, request(ask, [(0, batch(number))]))
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    topic = {"topic": ask.topic, "partitions": [partition]}
    yield Send(FETCH, 11, {**_FETCH, "topics": [topic]})


def _packed(codec: Codec) -> Callable[[Ask], Talk]:
    """A batch that is packed, and read back by clients old and new."""
    records = produced(b"a" * 100, b"b" * 100, codec=codec)

    def talk(ask: Ask) -> Talk:
        yield Send(PRODUCE, ask.version, request(ask, [(0, records)]))
        for version in (4, 9, 10, 18):
            partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
            topic = {"topic": ask.topic, "topic_id": ask.topic_id, "partitions": [partition]}
            fields = {**_FETCH, "topics": [topic]}
            yield Send(FETCH, version, fields)

    return talk


def _sequences(*steps: tuple[int, int]) -> Callable[[Ask], Talk]:
    """Batches of two records by one producer, as (epoch, sequence)."""

    def talk(ask: Ask) -> Talk:
        answer = yield Send(INIT_PRODUCER_ID, 4, _NO_TRANSACTION)
        producer_id = answer["producer_id"] if isinstance(answer, dict) else -1
        for epoch, sequence in steps:
            records = _idempotent(producer_id, epoch, sequence)
            yield Send(PRODUCE, ask.version, request(ask, [(0, records)]))

    return talk


def _idempotent(producer_id: int, epoch: int, sequence: int) -> bytes:
    return produced(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


def _foreign(name: str, epoch: int, sequence: int) -> Case:
    records = _idempotent(FOREIGN_ID, epoch, sequence)
    return _at_ends(name, [(0, records)])


_NO_TRANSACTION: Final[Plain] = {
    "transactional_id": None,
    "transaction_timeout": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


def _init(name: str, versions: Iterable[int] | None = None, **changes: Any) -> Case:
    return one(name, INIT_PRODUCER_ID, lambda _: {**_NO_TRANSACTION, **changes}, versions=versions)


def _describe_producers(ask: Ask) -> Talk:
    for producer, (epoch, sequence) in enumerate([(0, 0), (3, 7), (0, 0)]):
        records = _idempotent(FOREIGN_ID + producer, epoch, sequence)
        yield Send(PRODUCE, 9, request(ask, [(0, records)]))
    topics = [
        {"name": ask.topic, "partition_indexes": [0, 1, 7, -1]},
        {"name": "missing", "partition_indexes": [0]},
        {"name": "a/b", "partition_indexes": [0]},
    ]
    yield Send(DESCRIBE_PRODUCERS, 0, {"topics": topics})


_PRODUCE: Final = (
    _good("one batch", [(0, BATCH)]),
    _good("two partitions", [(0, BATCH), (1, batch(1))]),
    _good("acks 1", [(0, BATCH)], acks=1),
    many("three in a row, and read back", PRODUCE, _grows, topic=ONE),
    *(
        many(f"packed with {codec.name.lower()}", PRODUCE, _packed(codec), topic=ONE)
        for codec in Codec
        if codec is not Codec.NONE
    ),
    _at_ends("3000 partitions", [(index, b"x") for index in range(3000)]),
    many("acks 0", PRODUCE, _acks_zero, versions=(3, 13), topic=ONE),
    many(
        "acks 0 to an unknown partition", PRODUCE, _acks_zero_refused, versions=(3, 13), topic=ONE
    ),
    many("acks 0 with a wrong CRC", PRODUCE, _acks_zero_corrupt, versions=(3, 13), topic=ONE),
    *(_good(f"acks {acks}", [(0, BATCH)], acks=acks) for acks in (2, -2, 32767, -32768)),
    *(_at_ends(f"timeout {t}", [(0, BATCH)], timeout=t) for t in (0, -1, 2**31 - 1, -(2**31))),
    _at_ends("an unknown topic", [(0, BATCH)], topic="missing", topic_id=UUID(int=9)),
    _at_ends("an empty topic name, or the zero id", [(0, BATCH)], topic=""),
    _at_ends("a name that cannot be", [(0, BATCH)], topic="../../etc/x", topic_id=UUID(int=10)),
    *(_at_ends(f"partition {index}", [(index, BATCH)]) for index in (2, -1, 2**31 - 1, -(2**31))),
    _at_ends("a good and an unknown partition", [(0, BATCH), (7, BATCH)]),
    _at_ends("a good and a corrupt partition", [(0, BATCH), (1, BATCH[:-1] + b"!")]),
    many("records null", PRODUCE, _null_records, versions=ends_of(PRODUCE), topic=ONE),
    _at_ends("records empty", [(0, b"")]),
    _at_ends("records of one byte", [(0, b"x")]),
    _at_ends("a CRC that is wrong", [(0, BATCH[:-1] + b"!")]),
    _at_ends("two batches for one partition", [(0, BATCH + batch(1))]),
    _at_ends("half a batch", [(0, BATCH[:40])]),
    _at_ends("a batch and half a batch", [(0, BATCH + BATCH[:40])]),
    _at_ends("more than max.message.bytes", [(0, TOO_LARGE)]),
    _into("to a topic with LogAppendTime", {"message.timestamp.type": "LogAppendTime"}, BATCH),
    _into("records without keys to a compacted topic", {"cleanup.policy": "compact"}, BATCH),
    _into("records with keys to a compacted topic", {"cleanup.policy": "compact"}, KEYED),
    _into("more replicas in sync asked for than there are", {"min.insync.replicas": "2"}, BATCH),
    _into(
        "more replicas in sync than there are, acks 1", {"min.insync.replicas": "2"}, BATCH, acks=1
    ),
    _into("a time in the far future", {}, FUTURE),
    _into("a time too far in the past", {"message.timestamp.before.max.ms": "1000"}, BATCH),
    _at_ends("no partitions", []),
    one("no topics", PRODUCE, lambda ask: {**request(ask, []), "topic_data": []}, topic=ONE),
    _at_ends("a partition twice", [(0, BATCH), (0, batch(1))]),
    _topics("a topic twice, other partitions", ([(0, BATCH)],), ([(1, batch(1))],)),
    _topics("a topic twice, the same partition", ([(0, BATCH)],), ([(0, batch(1))],)),
    _at_ends("a transactional id, and a batch that is not", [(0, BATCH)], transactional_id="t"),
    _at_ends("a transactional batch without a transactional id", [(0, TRANSACTIONAL)]),
    _at_ends("a transactional batch", [(0, TRANSACTIONAL)], transactional_id="t"),
    _at_ends("an empty transactional id", [(0, BATCH)], transactional_id=""),
)

_IDEMPOTENT: Final = (
    many("sequences in order", PRODUCE, _sequences((0, 0), (0, 2), (0, 4)), topic=ONE),
    many(
        "a duplicate gets its first offset",
        PRODUCE,
        _sequences((0, 0), (0, 2), (0, 2), (0, 0)),
        topic=ONE,
    ),
    many("a gap in the sequence", PRODUCE, _sequences((0, 0), (0, 9)), topic=ONE),
    many("a sequence that overlaps", PRODUCE, _sequences((0, 0), (0, 2), (0, 1)), topic=ONE),
    many(
        "a duplicate that is too old",
        PRODUCE,
        _sequences(*((0, i) for i in range(0, 14, 2)), (0, 0)),
        topic=ONE,
    ),
    many("a new epoch begins at 0", PRODUCE, _sequences((0, 0), (1, 0), (1, 2)), topic=ONE),
    many("a new epoch that does not begin at 0", PRODUCE, _sequences((0, 0), (1, 2)), topic=ONE),
    many("an old epoch", PRODUCE, _sequences((3, 0), (2, 0)), topic=ONE),
    many("a first sequence that is not 0", PRODUCE, _sequences((0, 5)), topic=ONE),
    many(
        "the last sequence, then the first", PRODUCE, _sequences((0, 2**31 - 2), (0, 0)), topic=ONE
    ),
    _foreign("a producer id that nobody gave out", 0, 0),
    _foreign("a producer id that nobody gave out, later", 4, 7),
    _foreign("a producer id with sequence -1", 0, -1),
    _foreign("a producer id with epoch -1", -1, 0),
)

_INIT_PRODUCER_ID: Final = (
    _init("a new producer id"),
    _init("an empty transactional id", transactional_id=""),
    _init("timeout 0", transaction_timeout=0),
    _init("timeout -1", transaction_timeout=-1),
    _init("timeout 2147483647", transaction_timeout=2**31 - 1),
    _init("an id and an epoch without a transaction", (3, 4, 5), producer_id=5, producer_epoch=3),
    _init("an id without an epoch", (3, 4, 5), producer_id=5),
    _init("an epoch without an id", (3, 4, 5), producer_epoch=3),
    _init("the last epoch", (3, 4, 5), producer_id=5, producer_epoch=32767),
    _init("id -2", (3, 4, 5), producer_id=-2, producer_epoch=0),
    _init("a transactional id", transactional_id="t"),
    _init("a transactional id with timeout 0", transactional_id="t", transaction_timeout=0),
)

PRODUCE_CASES: Final[tuple[Case, ...]] = (
    *_PRODUCE,
    *_IDEMPOTENT,
    *_INIT_PRODUCER_ID,
    many(
        "three producers, and what is not there", DESCRIBE_PRODUCERS, _describe_producers, topic=TWO
    ),
)
