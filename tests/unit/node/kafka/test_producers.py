"""InitProducerId and DescribeProducers, row by row.

Where a comment says so, the answer is that of Apache Kafka 4.3.1 to the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.node.kafka.producers import ProducerIds
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, INT64_MAX
from ottla.proto.kafka.apis import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from tests.builders import NOW_MS, produced
from tests.unit.node.kafka.desk import Desk, Place, open_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk() as opened:
        opened.create("t", 2)
        yield opened


def begun(
    desk: Desk,
    *,
    version: int = 5,
    transactional_id: str | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    timeout: int = 1000,
) -> tuple[int, int, int]:
    """Ask for an id; return error, id, epoch."""
    answer = desk.ask(
        INIT_PRODUCER_ID,
        version,
        transactional_id=transactional_id,
        transaction_timeout=timeout,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    return answer["error_code"], answer["producer_id"], answer["producer_epoch"]


def test_every_version_gives_an_id_that_nobody_had(desk: Desk) -> None:
    versions = range(INIT_PRODUCER_ID.low, INIT_PRODUCER_ID.high + 1)
    answers = [begun(desk, version=version) for version in versions]
    assert [(error, epoch) for error, _, epoch in answers] == [(0, 0)] * len(versions)
    ids = [producer_id for _, producer_id, _ in answers]
    assert len(set(ids)) == len(ids)


# The same as Kafka's: there is no epoch to raise without a transactional id.
@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(0, 0), (5, 3), (5, 32767), (-2, -2), (INT64_MAX, 0)]
)
def test_a_producer_that_asks_again_gets_a_new_id(desk: Desk, producer_id: int, epoch: int) -> None:
    begun(desk)
    error, given, given_epoch = begun(desk, producer_id=producer_id, epoch=epoch)
    assert (error, given_epoch) == (0, 0)
    assert given != producer_id


# The same as Kafka's.
@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 3), (5, -1)])
def test_an_id_without_an_epoch_contradicts_itself(
    desk: Desk, producer_id: int, epoch: int
) -> None:
    for version in (3, 4, 5):
        answer = begun(desk, version=version, producer_id=producer_id, epoch=epoch)
        assert answer == (ErrorCode.INVALID_REQUEST, -1, -1)


# The same as Kafka's.
@pytest.mark.parametrize("timeout", [-1, 0, INT32_MAX])
def test_without_transactions_their_timeout_does_not_matter(desk: Desk, timeout: int) -> None:
    assert begun(desk, timeout=timeout)[0] == 0


@pytest.mark.parametrize("version", range(INIT_PRODUCER_ID.low, INIT_PRODUCER_ID.high + 1))
def test_a_transactional_id_is_given_by_its_coordinator_alone(desk: Desk, version: int) -> None:
    refused = (ErrorCode.NOT_COORDINATOR, -1, -1)
    assert begun(desk, version=version, transactional_id="tx") == refused


# The same as Kafka's.
@pytest.mark.parametrize("version", range(INIT_PRODUCER_ID.low, INIT_PRODUCER_ID.high + 1))
def test_an_empty_transactional_id_is_a_mistake(desk: Desk, version: int) -> None:
    assert begun(desk, version=version, transactional_id="")[0] == ErrorCode.INVALID_REQUEST


def test_no_id_is_given_twice_also_after_a_restart() -> None:
    place = Place()
    seen: list[int] = []
    for _ in range(3):
        with open_desk(place) as desk:
            seen += [begun(desk)[1] for _ in range(5)]
    assert len(set(seen)) == 15


def test_those_who_come_at_once_share_a_block() -> None:
    blocks = iter([range(3), range(3, 3), range(10, 12)])
    taken = 0

    async def take_block() -> range:
        nonlocal taken
        taken += 1
        await asyncio.sleep(0)
        return next(blocks)

    async def five() -> list[int]:
        ids = ProducerIds(take_block)
        return list(await asyncio.gather(*(ids.take() for _ in range(5))))

    assert asyncio.run(five()) == [0, 1, 2, 10, 11]
    assert taken == 3


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (RequestError(ErrorCode.NOT_CONTROLLER), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (RequestError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        # There are none left in the world: no retry helps.
        (RequestError(ErrorCode.UNKNOWN_SERVER_ERROR), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_controller_that_has_no_ids_is_told_of(desk: Desk, failure: Exception, code: int) -> None:
    async def fail() -> range:
        raise failure

    desk.broker.producer_ids = ProducerIds(fail)
    assert begun(desk) == (code, -1, -1)
    # Nothing is stuck: the next block is taken when there is one.
    desk.broker.producer_ids = ProducerIds(desk.broker.controller.take_producer_ids)
    assert begun(desk)[0] == 0


# ── DescribeProducers ─────────────────────────────────────────────────────────────────────────


def described(desk: Desk, *topics: tuple[str, list[int]]) -> list[dict[str, Any]]:
    asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    answer = desk.ask(DESCRIBE_PRODUCERS, 0, topics=asked)
    found: list[dict[str, Any]] = answer["topics"]
    return found


# The same as Kafka's.
def test_the_producers_of_a_log_are_described(desk: Desk) -> None:
    desk.write("t", produced(b"a", b"b", producer_id=7, producer_epoch=3))
    desk.write("t", produced(b"c", producer_id=4), produced(b"d"))
    (topic,) = described(desk, ("t", [0]))
    assert topic["partitions"] == [
        {
            "partition_index": 0,
            "error_code": 0,
            "error_message": None,
            "active_producers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "last_sequence": sequence,
                    "last_timestamp": NOW_MS,
                    "coordinator_epoch": -1,
                    "current_txn_start_offset": -1,
                }
                for producer_id, epoch, sequence in ((4, 0, 0), (7, 3, 1))
            ],
        }
    ]


# The same as Kafka's.
@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("t", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_partition_without_producers_says_why(
    desk: Desk, topic: str, index: int, code: int
) -> None:
    (told,) = described(desk, (topic, [index]))
    (one,) = told["partitions"]
    assert (one["error_code"], one["active_producers"]) == (code, [])
    assert one["error_message"]


def test_a_partition_is_described_once_however_often_it_is_asked_for(desk: Desk) -> None:
    found = described(desk, ("t", [0, 0, 1]), ("t", [1, 0]))
    assert [(one["name"], [p["partition_index"] for p in one["partitions"]]) for one in found] == [
        ("t", [0, 1])
    ]
    assert described(desk, ("t", [])) == [{"name": "t", "partitions": []}]
    assert described(desk) == []
