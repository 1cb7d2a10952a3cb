"""U5: what was sent behind a refused batch is refused like it, by every reason to refuse one.

A real broker on a disk in memory, and one real connection on which a producer does not wait.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka import apis
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.replication.log.segment import Segment
from tests.builders import produced
from tests.unit.node.kafka.asking_for_records import Scene, topic_id, wish
from tests.unit.node.kafka.desk import Desk, Place, open_desk

ALL, LEADER = -1, 1
# The last version in which topics have names.
NAMED = 12
BY_ID = 13
OK = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Node 1 of two, which leads "t" with a minimum of two."""
    place = Place()
    for number in (1, 2):
        place.cluster.start(number)
    with open_desk(place) as opened:
        place.cluster.create((1, 2), configs={"min.insync.replicas": "2"})
        opened.tell()
        yield opened


class Producer:
    """One idempotent producer on one connection. Its batches have one record each."""

    def __init__(
        self, desk: Desk, topic: str = "t", *, acks: int = LEADER, version: int = NAMED
    ) -> None:
        self.desk = desk
        self.topic = topic
        self.acks = acks
        self.version = version
        # Its last byte is another one on the way.
        self.is_damaged = False
        self.scene = desk.run(self._connect())

    async def _connect(self) -> Scene:
        return Scene(self.desk)

    def told(self, *sequences: int) -> list[ErrorCode]:
        return [self.desk.run(self._told(one)) for one in sequences]

    async def _told(self, sequence: int) -> ErrorCode:
        batch = bytearray(produced(b"v%d" % sequence, producer_id=7, sequence=sequence))
        batch[-1] ^= self.is_damaged
        is_there = self.topic in self.desk.broker.controller.image.topics
        id_ = topic_id(self.desk, self.topic) if is_there else ZERO_UUID
        await self.scene.send(
            apis.PRODUCE,
            self.version,
            wish(self.acks, self.topic, id_, batch=bytes(batch), timeout_ms=60_000),
        )
        answer = await self.scene.read(apis.PRODUCE, self.version)
        assert isinstance(answer, Message)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@pytest.fixture
def producing(desk: Desk) -> Iterator[Callable[..., Producer]]:
    made = list[Producer]()

    def make(topic: str = "t", *, acks: int = LEADER, version: int = NAMED) -> Producer:
        made.append(Producer(desk, topic, acks=acks, version=version))
        return made[-1]

    yield make
    for one in made:
        one.scene.close()


Producing = Callable[..., Producer]


def hear(desk: Desk, is_heard: bool) -> None:
    """Let the controllers answer this broker, or not: without them it has no standing."""
    desk.broker.is_heard = lambda: is_heard


def test_rule_13_what_is_behind_a_batch_that_met_no_standing_waits_for_it(
    desk: Desk, producing: Producing
) -> None:
    producer = producing()
    assert producer.told(0) == [OK]
    hear(desk, False)
    assert producer.told(1) == [NOT_LEADER]
    hear(desk, True)
    assert producer.told(2, 3) == [NOT_LEADER, NOT_LEADER]
    assert desk.replica("t").log.end_offset == 1
    assert producer.told(1, 2, 3) == [OK, OK, OK]
    assert desk.replica("t").log.end_offset == 4


def test_rule_62_a_new_producer_does_not_begin_with_its_second_batch(
    desk: Desk, producing: Producing
) -> None:
    producer = producing()
    hear(desk, False)
    assert producer.told(0) == [NOT_LEADER]
    hear(desk, True)
    assert producer.told(1) == [NOT_LEADER]
    assert desk.replica("t").log.end_offset == 0
    assert producer.told(0, 1) == [OK, OK]


def test_topics_that_go_by_their_ids_are_told_apart(desk: Desk, producing: Producing) -> None:
    desk.create("u")
    first, second = producing(version=BY_ID), producing("u", version=BY_ID)
    hear(desk, False)
    assert first.told(0) == [NOT_LEADER]
    hear(desk, True)
    # It has the same producer id, and another partition.
    assert second.told(1) == [OK]
    assert first.told(1) == [NOT_LEADER]
    assert first.told(0, 1) == [OK, OK]


def test_what_is_behind_a_batch_that_found_no_descriptor_waits_for_it(
    desk: Desk, producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, prepare = producing(), Segment.prepare

    def finds_none(segment: Segment) -> None:
        monkeypatch.setattr(Segment, "prepare", prepare)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Segment, "prepare", finds_none)
    storage = ErrorCode.KAFKA_STORAGE_ERROR
    assert producer.told(0) == [storage]
    assert producer.told(1) == [storage]
    assert desk.replica("t").log.end_offset == 0
    assert producer.told(0, 1) == [OK, OK]


def test_what_is_behind_a_batch_that_was_damaged_on_its_way_waits_for_it(
    desk: Desk, producing: Producing
) -> None:
    producer = producing()
    producer.is_damaged = True
    assert producer.told(0) == [ErrorCode.CORRUPT_MESSAGE]
    producer.is_damaged = False
    assert producer.told(1) == [ErrorCode.CORRUPT_MESSAGE]
    assert producer.told(0, 1) == [OK, OK]


def test_rule_25_what_is_behind_a_batch_that_met_too_few_waits_for_it(
    desk: Desk, producing: Producing
) -> None:
    assert producing().told(0) == [OK]
    producer = producing(acks=ALL)
    assert desk.cluster.alter_one(1, desk.cluster.change([1])) is None
    desk.tell()
    assert producer.told(1) == [TOO_FEW]
    desk.cluster.configure("t", min__insync__replicas=1)
    desk.tell()
    assert producer.told(2) == [TOO_FEW]
    assert producer.told(1, 2) == [OK, OK]


def test_what_is_behind_a_batch_for_a_topic_that_was_not_known_yet_waits_for_it(
    desk: Desk, producing: Producing
) -> None:
    producer = producing("late")
    assert producer.told(0) == [UNKNOWN]
    desk.create("late")
    assert producer.told(1) == [UNKNOWN]
    assert desk.replica("late").log.end_offset == 0
    assert producer.told(0, 1) == [OK, OK]


def test_rule_61_a_gap_that_nobody_refused_is_out_of_order(
    desk: Desk, producing: Producing
) -> None:
    producer = producing()
    assert producer.told(0, 2) == [OK, GAP]
    hear(desk, False)
    assert producer.told(2) == [NOT_LEADER]
    hear(desk, True)
    assert producer.told(3) == [GAP]


def test_rule_61_who_comes_again_without_the_refused_batch_is_out_of_order(
    desk: Desk, producing: Producing
) -> None:
    producer = producing()
    assert producer.told(0) == [OK]
    hear(desk, False)
    assert producer.told(1) == [NOT_LEADER]
    hear(desk, True)
    assert producer.told(2, 2) == [NOT_LEADER, GAP]


def test_a_name_that_no_topic_can_have_is_not_remembered(desk: Desk, producing: Producing) -> None:
    producer = producing("x" * 250)
    assert producer.told(0) == [UNKNOWN]
    assert len(producer.scene.dispatch.produce._behind) == 0
