"""hostile-input.md, "Produce": the request, and what is in it.

The rows about the bytes of a batch stand in `tests/unit/proto/records/bad_batches.py`, each with
our code and Kafka's; here they are sent to a node. What lies inside a batch is by default stored as
it was signed, so each such row is also consumed and verified afterwards.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, PRODUCE
from ottla.proto.records.compression import Codec
from ottla.proto.records.header import TimestampType
from ottla.proto.records.validate import BatchLimits
from tests.builders import produced
from tests.hostile.stage import (
    CLOSED,
    FILLED,
    MISSING,
    Closed,
    Target,
    batch,
    codes_of,
    create,
    fetch_fields,
    fetch_partition,
    frame_of,
    ids_of,
    list_fields,
    produce_fields,
)
from tests.integration.nodes import wait_until
from tests.unit.proto.records.bad_batches import CASES, BadBatch

pytestmark = pytest.mark.integration

GOOD: Final = batch()
TXN_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
# Refused by who reads the request, before the batch is looked at: it needs a transactional id.
ABOUT_THE_REQUEST: Final = {
    "transactional bit without producer id": TXN_REFUSED,
    "transactional bit without transactional id": TXN_REFUSED,
}


def options_of(limits: BatchLimits) -> dict[str, str]:
    append_time = limits.timestamp_type is TimestampType.LOG_APPEND_TIME
    return {
        "max.message.bytes": str(limits.max_message_bytes),
        "segment.bytes": str(limits.segment_bytes),
        "message.timestamp.type": "LogAppendTime" if append_time else "CreateTime",
        "message.timestamp.before.max.ms": str(limits.timestamp_before_max_ms),
        "message.timestamp.after.max.ms": str(limits.timestamp_after_max_ms),
        "cleanup.policy": "compact" if limits.compacted else "delete",
        "ottla.validate.records": str(limits.validate_records).lower(),
    }


@pytest.fixture(scope="module")
def places(hostile_target: Target) -> dict[str, tuple[str, int]]:
    """Give each bad batch a partition of its own, in one topic for each set of options."""
    groups: dict[BatchLimits, list[str]] = {}
    for case in CASES:
        groups.setdefault(case.limits, []).append(case.name)
    found: dict[str, tuple[str, int]] = {}
    with hostile_target.wire() as wire:
        for number, (limits, names) in enumerate(groups.items()):
            topic = f"batches-{number}"
            create(wire, topic, partitions=len(names), **options_of(limits))
            found.update({name: (topic, index) for index, name in enumerate(names)})
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_bad_batch_gets_its_code(
    attacked: Target, places: dict[str, tuple[str, int]], case: BadBatch
) -> None:
    topic, index = places[case.name]
    expected = ABOUT_THE_REQUEST.get(case.name, case.expected)
    with attacked.wire() as wire:
        answer = wire.ask(PRODUCE, 9, produce_fields(topic, [(index, case.build())]))
        assert codes_of(answer) == (int(expected or 0),)
        # What was refused left nothing, and what was taken is given out as it came in.
        fetched = wire.ask(
            FETCH, 12, fetch_fields(fetch_partition(index), topic=topic, max_bytes=4 << 20)
        )
        assert not isinstance(fetched, Closed)
        (partition,) = fetched.responses[0].partitions
        assert (partition.high_watermark > 0) == (expected is None)
        assert bool(partition.records) == (expected is None)
        # A lookup by time opens what is stored; it must harm nothing either.
        looked = wire.ask(LIST_OFFSETS, 7, list_fields(1, index, topic))
        assert not isinstance(looked, Closed)


class Row(NamedTuple):
    """A request to a topic of its own with two partitions, and all codes of the answer."""

    fields: dict[str, Any]
    expected: tuple[int, ...] | Closed
    version: int = 9
    # Why not as Kafka, where it is not.
    stricter: str = ""


def to(*partitions: tuple[int, bytes | None], topic: str = "", **changes: Any) -> dict[str, Any]:
    return produce_fields(topic, partitions, **changes)


def twice(first: tuple[int, bytes], second: tuple[int, bytes]) -> dict[str, Any]:
    fields = to(first)
    return {**fields, "topic_data": fields["topic_data"] + to(second)["topic_data"]}


BOTH: Final = "Kafka keeps the last and drops the first without a word; we write and answer both"

REQUESTS: Final[dict[str, Row]] = {
    "acks 2": Row(to((0, GOOD), acks=2), (21,)),
    "acks −2": Row(to((0, GOOD), acks=-2), (21,)),
    "acks 32767": Row(to((0, GOOD), acks=32767), (21,)),
    "acks 2, before flexible versions": Row(to((0, GOOD), acks=2), (21,), 3),
    "acks 0 and a wrong CRC": Row(to((0, GOOD[:-1] + b"!"), acks=0), CLOSED),
    "acks 0 to a partition that is not there": Row(to((9, GOOD), acks=0), CLOSED),
    "timeout −1": Row(to((0, GOOD), timeout=-1), (0,)),
    "timeout −2³¹": Row(to((0, GOOD), timeout=-(2**31)), (0,)),
    "timeout 2³¹−1": Row(to((0, GOOD), timeout=2**31 - 1), (0,)),
    "records null": Row(
        to((0, None)), (87,), stricter="Kafka's thread dies of it and it never answers"
    ),
    "records null, version 3": Row(to((0, None)), (87,), 3, "likewise"),
    "records empty": Row(to((0, b"")), (87,)),
    "records of one byte": Row(to((0, b"x")), (87,)),
    "two batches in one partition": Row(to((0, GOOD + GOOD)), (87,)),
    "same partition twice": Row(to((0, GOOD), (0, batch(1))), (0, 0), stricter=BOTH),
    "same topic and partition twice": Row(twice((0, GOOD), (0, batch(1))), (0, 0), stricter=BOTH),
    "same topic twice": Row(twice((0, GOOD), (1, batch(1))), (0, 0)),
    "no topics": Row({**to(), "topic_data": []}, ()),
    "no partitions": Row(to(), ()),
    "a good and a corrupt partition": Row(to((0, GOOD), (1, GOOD[:-1] + b"!")), (0, 2)),
    "a good and an unknown partition": Row(to((0, GOOD), (7, GOOD)), (0, 3)),
    "partition −1": Row(to((-1, GOOD)), (3,)),
    "partition 2": Row(to((2, GOOD)), (3,)),
    "partition 2³¹−1": Row(to((2**31 - 1, GOOD)), (3,)),
    "partition −2³¹": Row(to((-(2**31), GOOD)), (3,)),
    "an unknown topic": Row(to((0, GOOD), topic=MISSING), (3,)),
    "a topic whose name is a path": Row(to((0, GOOD), topic="../../etc/x"), (3,)),
    "unknown topic id": Row(to((0, GOOD), topic=MISSING), (100,), 13),
    "a transactional id and a plain batch": Row(to((0, GOOD), transactional_id="t"), (0,)),
    "zstd before version 7": Row(to((0, produced(b"v", codec=Codec.ZSTD))), (76,), 6),
    "zstd from version 7": Row(to((0, produced(b"v", codec=Codec.ZSTD))), (0,), 7),
}


@pytest.fixture
def own_topic(attacked: Target, request: pytest.FixtureRequest) -> str:
    name = f"own-{abs(hash(request.node.name))}"
    with attacked.wire() as wire:
        create(wire, name, partitions=2)
    return name


@pytest.mark.parametrize("row", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_produce_request_gets_its_codes(attacked: Target, own_topic: str, row: Row) -> None:
    topics = [{**topic, "name": topic["name"] or own_topic} for topic in row.fields["topic_data"]]
    if row.version >= 13:
        topics = [{**topic, "topic_id": UUID(int=9)} for topic in topics]
    fields = {**row.fields, "topic_data": topics}
    assert codes_of(attacked.ask(PRODUCE, row.version, fields)) == row.expected


def test_a_produce_without_acks_is_not_answered(attacked: Target, own_topic: str) -> None:
    with attacked.wire() as wire:
        wire.send(frame_of(PRODUCE, 9, produce_fields(own_topic, [(0, GOOD)], acks=0)))
        # The next answer belongs to the next request.
        assert codes_of(wire.ask(LIST_OFFSETS, 4, list_fields(topic=own_topic))) == (0,)
    wait_until(lambda: _end_of(attacked, own_topic) == 3, 10, "the batch is there")


def _end_of(attacked: Target, topic: str) -> int:
    answer = attacked.answer(LIST_OFFSETS, 4, list_fields(topic=topic))
    return int(answer.topics[0].partitions[0].offset)


# Two records each, as (epoch, sequence), and the codes in turn: what Kafka answers.
SEQUENCES: Final = {
    "in order": ([(0, 0), (0, 2), (0, 4)], [0, 0, 0]),
    "a duplicate": ([(0, 0), (0, 2), (0, 2), (0, 0)], [0, 0, 0, 0]),
    "sequence regresses": ([(0, 0), (0, 2), (0, 1)], [0, 0, 45]),
    "a gap": ([(0, 0), (0, 9)], [0, 45]),
    "epoch regresses": ([(3, 0), (2, 0)], [0, 47]),
    "a new epoch": ([(0, 0), (1, 0), (1, 2)], [0, 0, 0]),
    "a new epoch that does not begin at 0": ([(0, 0), (1, 2)], [0, 45]),
    "a first sequence that is not 0": ([(0, 5)], [0]),
    "over the largest sequence": ([(0, 2**31 - 2), (0, 0)], [0, 0]),
}


@pytest.mark.parametrize(("steps", "codes"), SEQUENCES.values(), ids=SEQUENCES.keys())
def test_sequences_and_epochs_of_producers(
    attacked: Target, own_topic: str, steps: list[tuple[int, int]], codes: list[int]
) -> None:
    with attacked.wire() as wire:
        producer = wire.ask(INIT_PRODUCER_ID, 4, _NO_TRANSACTION)
        assert not isinstance(producer, Closed)
        answers = [
            codes_of(
                wire.ask(
                    PRODUCE, 9, produce_fields(own_topic, [(0, _of(producer.producer_id, *step))])
                )
            )
            for step in steps
        ]
        assert answers == [(code,) for code in codes]


_NO_TRANSACTION: Final = {
    "transactional_id": None,
    "transaction_timeout": 60_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


def _of(producer_id: int, epoch: int, sequence: int) -> bytes:
    return produced(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


def test_a_hundred_thousand_partitions_in_one_request(attacked: Target) -> None:
    """As many elements as a request may have; one more and the connection closes."""
    many: list[tuple[int, bytes | None]] = [(index, None) for index in range(2, 99_999 + 2)]
    answer = attacked.ask(PRODUCE, 9, produce_fields(FILLED, many))
    assert codes_of(answer) == (3,) * 99_999
    for version in (8, 9):
        too_many = produce_fields(FILLED, [*many, (0, None)])
        assert attacked.ask(PRODUCE, version, too_many) is CLOSED


def test_a_topic_id_that_is_known_and_a_partition_that_is_not(attacked: Target) -> None:
    with attacked.wire() as wire:
        fields = produce_fields("", [(5, GOOD)])
        fields["topic_data"][0]["topic_id"] = ids_of(wire, FILLED)[FILLED]
        assert codes_of(wire.ask(PRODUCE, 13, fields)) == (3,)
