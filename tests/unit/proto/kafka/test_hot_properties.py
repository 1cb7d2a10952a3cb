"""Produce, Fetch and Heartbeat, written by hand, against kio's writer and the codec."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ottla.proto.errors import LocalProtocolError
from ottla.proto.kafka.apis import FETCH, HEARTBEAT, PRODUCE, ApiRow
from ottla.proto.kafka.decode import decode_request
from ottla.proto.kafka.fetch import FetchAnswer, FetchPartition, decode_fetch, encode_fetch_response
from ottla.proto.kafka.heartbeat import encode_heartbeat_response
from ottla.proto.kafka.hot import Endpoint
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.produce import PartitionAnswer, decode_produce, encode_produce_response
from ottla.proto.kafka.uuids import UUID
from tests.unit.proto.kafka.kio_messages import TEXTS, draw_message, entity_class, written

SEEDS = st.integers(0, 2**32 - 1)
QUICK = settings(max_examples=60, deadline=None, database=None)
CODES = [int(code) for code in ErrorCode]
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


def versions(row: ApiRow) -> range:
    return range(row.low, row.high + 1)


def number(random: Random, bits: int) -> int:
    top = 2 ** (bits - 1)
    return random.choice((0, 1, -1, -top, top - 1, random.randint(-top, top - 1)))


def text_or_none(random: Random) -> str | None:
    return random.choice((None, *TEXTS))


def pair(random: Random, first: int, second: int) -> tuple[int, int] | None:
    # kio, like Kafka, leaves out a tagged field that is its default: -1 and -1.
    drawn = number(random, first), number(random, second)
    return None if drawn == (-1, -1) else random.choice((None, drawn))


def endpoints_of(random: Random) -> list[Endpoint]:
    return [
        (number(random, 32), random.choice(TEXTS), number(random, 32), text_or_none(random))
        for _ in range(random.randint(0, 2))
    ]


def kio_endpoints(module: Any, endpoints: list[Endpoint]) -> tuple[Any, ...]:
    return tuple(
        module.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in endpoints
    )


def module_of(row: ApiRow, version: int) -> Any:
    from importlib import import_module

    return import_module(entity_class(row, version, "response").__module__)


def only_known(cls: Any, **values: Any) -> Any:
    """Build what the version has of it."""
    return cls(**{name: value for name, value in values.items() if name in cls.__slots__})


@QUICK
@given(seed=SEEDS)
def test_produce_requests_are_read_as_the_codec_reads_them(seed: int) -> None:
    random = Random(seed)
    for version in versions(PRODUCE):
        body = written(draw_message(random, entity_class(PRODUCE, version, "request"))[0])
        slowly = decode_request(PRODUCE, version, body)
        quickly = decode_produce(version, memoryview(b"head" + body + b"more"), 4)
        assert quickly[:3] == (slowly.transactional_id, slowly.acks, slowly.timeout)
        assert quickly.topics == [
            (
                topic.get("name"),
                topic.get("topic_id"),
                [(partition.index, partition.records) for partition in topic.partition_data],
            )
            for topic in slowly.topic_data
        ]


def partition_of(partition: Message) -> FetchPartition:
    return FetchPartition(
        partition.partition,
        partition.get("current_leader_epoch", -1),
        partition.fetch_offset,
        partition.get("last_fetched_epoch", -1),
        partition.get("log_start_offset", -1),
        partition.partition_max_bytes,
    )


@QUICK
@given(seed=SEEDS)
def test_fetch_requests_are_read_as_the_codec_reads_them(seed: int) -> None:
    random = Random(seed)
    for version in versions(FETCH):
        body = written(draw_message(random, entity_class(FETCH, version, "request"))[0])
        slowly = decode_request(FETCH, version, body)
        quickly = decode_fetch(version, memoryview(b"head" + body + b"more"), 4)
        replica = slowly.replica_state if version >= 15 else slowly
        assert quickly[:5] == (
            replica.replica_id,
            slowly.max_wait,
            slowly.min_bytes,
            slowly.max_bytes,
            slowly.isolation_level,
        )
        assert quickly.session_id == slowly.get("session_id", 0)
        assert quickly.session_epoch == slowly.get("session_epoch", -1)
        assert quickly.rack_id == slowly.get("rack_id", "")
        assert quickly.topics == [
            (topic.get("topic"), topic.get("topic_id"), [*map(partition_of, topic.partitions)])
            for topic in slowly.topics
        ]
        assert quickly.forgotten == [
            (topic.get("topic"), topic.get("topic_id"), topic.partitions)
            for topic in slowly.get("forgotten_topics_data", [])
        ]


def test_a_replica_is_known_by_its_tagged_field_and_by_the_field_before_that() -> None:
    for version in versions(FETCH):
        cls = entity_class(FETCH, version, "request")
        module = __import__(cls.__module__, fromlist=["ReplicaState"])
        values: dict[str, Any] = {"replica_id": 3}
        if version >= 15:
            values["replica_state"] = module.ReplicaState(replica_id=3)
        entity = only_known(
            cls,
            max_wait=timedelta(0),
            min_bytes=1,
            topics=(),
            forgotten_topics_data=(),
            **values,
        )
        assert decode_fetch(version, memoryview(written(entity)), 0).replica_id == 3


def produce_answer(random: Random) -> PartitionAnswer:
    return PartitionAnswer(
        number(random, 32),
        random.choice(CODES),
        number(random, 64),
        random.choice((-1, 0, 1_700_000_000_123)),
        number(random, 64),
        [(number(random, 32), text_or_none(random)) for _ in range(random.choice((0, 0, 1, 2)))],
        text_or_none(random),
        pair(random, 32, 32),
    )


def kio_produce_answer(module: Any, answer: PartitionAnswer) -> Any:
    errors = [
        module.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=sentence)
        for index, sentence in answer.record_errors
        if hasattr(module, "BatchIndexAndErrorMessage")
    ]
    leader = None
    if hasattr(module, "LeaderIdAndEpoch"):
        leader_id, epoch = answer.leader or (-1, -1)
        leader = module.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
    time = answer.append_time_ms
    return only_known(
        module.PartitionProduceResponse,
        index=answer.index,
        error_code=ErrorCode(answer.error),
        base_offset=answer.base_offset,
        log_append_time=None
        if time < 0
        else datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time),
        log_start_offset=answer.start_offset,
        record_errors=tuple(errors),
        error_message=answer.message,
        current_leader=leader,
    )


@QUICK
@given(seed=SEEDS)
def test_produce_answers_are_written_as_kio_writes_them(seed: int) -> None:
    random = Random(seed)
    for version in versions(PRODUCE):
        module = module_of(PRODUCE, version)
        topics = [
            (
                random.choice(TEXTS),
                UUID(int=random.getrandbits(128) or 1),
                [produce_answer(random) for _ in range(random.randint(0, 3))],
            )
            for _ in range(random.randint(0, 3))
        ]
        throttle_ms, endpoints = random.choice((0, 1, 2**31 - 1)), endpoints_of(random)
        expected = only_known(
            module.ProduceResponse,
            responses=tuple(
                only_known(
                    module.TopicProduceResponse,
                    name=name,
                    topic_id=topic_id,
                    partition_responses=tuple(
                        kio_produce_answer(module, answer) for answer in answers
                    ),
                )
                for name, topic_id, answers in topics
            ),
            throttle_time=timedelta(milliseconds=throttle_ms),
            node_endpoints=kio_endpoints(module, endpoints)
            if hasattr(module, "NodeEndpoint")
            else (),
        )
        body = encode_produce_response(version, topics, throttle_ms, endpoints)
        assert body == written(expected)


def fetch_answer(random: Random) -> FetchAnswer:
    aborted = [(number(random, 64), number(random, 64)) for _ in range(random.randint(0, 2))]
    return FetchAnswer(
        number(random, 32),
        random.choice(CODES),
        number(random, 64),
        number(random, 64),
        number(random, 64),
        random.choice((-1, 0, 1, 130, 20_000)),
        pair(random, 32, 64),
        pair(random, 32, 32),
        random.choice((None, aborted)),
    )


def kio_fetch_answer(module: Any, answer: FetchAnswer) -> Any:
    tagged = {}
    if hasattr(module, "LeaderIdAndEpoch"):
        leader_id, leader_epoch = answer.leader or (-1, -1)
        epoch, end_offset = answer.diverging or (-1, -1)
        tagged = {
            "current_leader": module.LeaderIdAndEpoch(
                leader_id=leader_id, leader_epoch=leader_epoch
            ),
            "diverging_epoch": module.EpochEndOffset(epoch=epoch, end_offset=end_offset),
        }
    return only_known(
        module.PartitionData,
        partition_index=answer.index,
        error_code=ErrorCode(answer.error),
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.last_stable_offset,
        log_start_offset=answer.start_offset,
        aborted_transactions=None
        if answer.aborted is None
        else tuple(
            module.AbortedTransaction(producer_id=producer_id, first_offset=offset)
            for producer_id, offset in answer.aborted
        ),
        records=None if answer.records_size < 0 else b"r" * answer.records_size,
        **tagged,
    )


@QUICK
@given(seed=SEEDS)
def test_fetch_answers_with_their_records_are_what_kio_writes(seed: int) -> None:
    random = Random(seed)
    for version in versions(FETCH):
        module = module_of(FETCH, version)
        topics = [
            (
                random.choice(TEXTS),
                UUID(int=random.getrandbits(128) or 1),
                [fetch_answer(random) for _ in range(random.randint(0, 3))],
            )
            for _ in range(random.randint(0, 3))
        ]
        error, session_id, endpoints = (
            random.choice(CODES),
            number(random, 32),
            endpoints_of(random),
        )
        expected = only_known(
            module.FetchResponse,
            throttle_time=timedelta(milliseconds=5),
            error_code=ErrorCode(error),
            session_id=session_id,
            responses=tuple(
                only_known(
                    module.FetchableTopicResponse,
                    topic=name,
                    topic_id=topic_id,
                    partitions=tuple(kio_fetch_answer(module, answer) for answer in answers),
                )
                for name, topic_id, answers in topics
            ),
            node_endpoints=kio_endpoints(module, endpoints)
            if hasattr(module, "NodeEndpoint")
            else (),
        )
        pieces = encode_fetch_response(version, 5, error, session_id, topics, endpoints)
        sizes = [answer.records_size for _, _, answers in topics for answer in answers]
        assert len(pieces) == len(sizes) + 1
        records = [b"r" * size for size in sizes] + [b""]
        body = b"".join(part for both in zip(pieces, records, strict=True) for part in both)
        assert body == written(expected)


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_heartbeat_answers_are_written_as_kio_writes_them(version: int) -> None:
    for error in CODES:
        for throttle_ms in (0, 1, 2**31 - 1):
            expected = only_known(
                entity_class(HEARTBEAT, version, "response"),
                error_code=ErrorCode(error),
                throttle_time=timedelta(milliseconds=throttle_ms),
            )
            assert encode_heartbeat_response(version, error, throttle_ms) == written(expected)


def test_records_are_a_view_into_the_frame() -> None:
    cls = entity_class(PRODUCE, 9, "request")
    module = __import__(cls.__module__, fromlist=["TopicProduceData"])
    partition = module.PartitionProduceData(index=0, records=b"batch")
    topic = module.TopicProduceData(name="orders", partition_data=(partition,))
    entity = cls(acks=1, timeout=timedelta(0), topic_data=(topic,))
    frame = bytearray(written(entity))
    request = decode_produce(9, memoryview(frame), 0)
    (_, records) = request.topics[0].partitions[0]
    assert records is not None
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


def test_an_answer_without_the_name_that_its_version_needs_is_our_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="allows no null"):
        encode_produce_response(9, [(None, TOPIC_ID, [])])
    with pytest.raises(LocalProtocolError, match="needs an id"):
        encode_produce_response(13, [("orders", None, [])])
    with pytest.raises(LocalProtocolError, match="needs an id"):
        encode_fetch_response(13, 0, 0, 0, [("orders", None, [])])
    with pytest.raises(LocalProtocolError, match="33000 bytes"):
        encode_produce_response(9, [("x" * 33_000, None, [])])
