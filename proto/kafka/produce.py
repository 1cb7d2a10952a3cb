"""Produce, the hot path in: one pass over the request, no copy of a record, and a quick answer.

Written by hand because every write goes through here; `decode.py` and `encode.py` can do the same
and are the measure of it (the tests compare both ways, byte for byte). What is rare is left to
them: a request with tagged fields is read by `decode_request`.

The bounds of `primitives.py` hold here, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.apis import PRODUCE
from ottla.proto.kafka.decode import decode_request
from ottla.proto.kafka.hot import (
    Endpoint,
    TaggedError,
    endpoints_tag,
    id_bytes,
    leader_tag,
    text,
    text_or_null,
)
from ottla.proto.kafka.primitives import (
    Budget,
    is_null,
    read_compact_count,
    read_compact_size,
    read_compact_string,
    read_count,
    read_nullable_compact_string,
    read_nullable_string,
    read_size,
    read_string,
    read_uuid,
    uvarint,
)
from ottla.proto.kafka.uuids import UUID

_TOPIC_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 10
_FLEXIBLE_FROM: Final = 9
_MESSAGES_FROM: Final = 8
_START_OFFSET_FROM: Final = 5

_ACKS: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_ANSWER_3: Final = struct.Struct(">ihqq")
_ANSWER_5: Final = struct.Struct(">ihqqq")
_unpack_acks: Final = _ACKS.unpack_from
_unpack_int32: Final = _INT32.unpack_from
_pack_int32: Final = _INT32.pack
_pack_answer_5: Final = _ANSWER_5.pack
_new: Final = tuple.__new__

# The fewest bytes of a topic and of a partition.
_LEAST_TOPIC: Final = 6
_LEAST_PARTITION: Final = 8
_LEAST_FLEXIBLE_TOPIC: Final = 3
_LEAST_ID_TOPIC: Final = 18
_LEAST_FLEXIBLE_PARTITION: Final = 6

# Partition and its records, which are a view into the frame.
Batches = tuple[int, memoryview | None]


class ProduceTopic(NamedTuple):
    """The batches for one topic, which has a name below version 13 and an id from then on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[Batches]


class ProduceRequest(NamedTuple):
    """What a producer wants to have appended."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class PartitionAnswer(NamedTuple):
    """What became of the batches for one partition."""

    # Hides tuple.index, which nobody asks an answer for.
    index: int  # type: ignore[assignment]
    error: int
    base_offset: int = -1
    append_time_ms: int = -1
    start_offset: int = -1
    # Position in the batch, and a sentence or None.
    record_errors: Sequence[tuple[int, str | None]] = ()
    message: str | None = None
    # Leader and its epoch, where the producer should have asked (KIP-951).
    leader: tuple[int, int] | None = None


# Name below version 13, id from then on, and the answers of its partitions.
TopicAnswer = tuple[str | None, UUID | None, Iterable[PartitionAnswer]]


def decode_produce(version: int, frame: memoryview, at: int) -> ProduceRequest:
    """Return the request whose body starts at `at`. Bytes after its end are passed over."""
    try:
        if version >= _FLEXIBLE_FROM:
            return _read_flexible(version, frame, at)
        return _read(frame, at)
    except TaggedError:
        return _decode_slowly(version, frame, at)
    except (IndexError, struct.error):
        raise RemoteProtocolError(f"Produce v{version}: the frame ends before it does") from None


def _read_flexible(version: int, frame: memoryview, at: int) -> ProduceRequest:
    budget = Budget()
    transactional_id, at = read_nullable_compact_string(frame, at, "Produce, transactional_id")
    acks, timeout_ms = _unpack_acks(frame, at)
    by_id = version >= _TOPIC_IDS_FROM
    least = _LEAST_ID_TOPIC if by_id else _LEAST_FLEXIBLE_TOPIC
    count, at = read_compact_count(frame, at + 6, least, budget, "Produce, topic_data")
    if count < 0:
        is_null("Produce, topic_data")
    topics = []
    name = topic_id = None
    for _ in range(count):
        if by_id:
            topic_id, at = read_uuid(frame, at, "Produce, topic_id")
        else:
            name, at = read_compact_string(frame, at, "Produce, name")
        partitions, at = _read_flexible_partitions(frame, at, budget)
        topics.append(_new(ProduceTopic, (name, topic_id, partitions)))
    if frame[at]:
        raise TaggedError
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _read_flexible_partitions(
    frame: memoryview, at: int, budget: Budget
) -> tuple[list[Batches], int]:
    count, at = read_compact_count(
        frame, at, _LEAST_FLEXIBLE_PARTITION, budget, "Produce, partition_data"
    )
    if count < 0:
        is_null("Produce, partition_data")
    partitions: list[Batches] = []
    for _ in range(count):
        (index,) = _unpack_int32(frame, at)
        size, at = read_compact_size(frame, at + 4, "Produce, records")
        if size < 0:
            partitions.append((index, None))
        else:
            partitions.append((index, frame[at : at + size]))
            at += size
        if frame[at]:
            raise TaggedError
        at += 1
    if frame[at]:
        raise TaggedError
    return partitions, at + 1


def _read(frame: memoryview, at: int) -> ProduceRequest:
    budget = Budget()
    transactional_id, at = read_nullable_string(frame, at, "Produce, transactional_id")
    acks, timeout_ms = _unpack_acks(frame, at)
    count, at = read_count(frame, at + 6, _LEAST_TOPIC, budget, "Produce, topic_data")
    if count < 0:
        is_null("Produce, topic_data")
    topics = []
    for _ in range(count):
        name, at = read_string(frame, at, "Produce, name")
        partitions, at = _read_partitions(frame, at, budget)
        topics.append(_new(ProduceTopic, (name, None, partitions)))
    return _new(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def _read_partitions(frame: memoryview, at: int, budget: Budget) -> tuple[list[Batches], int]:
    count, at = read_count(frame, at, _LEAST_PARTITION, budget, "Produce, partition_data")
    if count < 0:
        is_null("Produce, partition_data")
    partitions: list[Batches] = []
    for _ in range(count):
        (index,) = _unpack_int32(frame, at)
        size, at = read_size(frame, at + 4, "Produce, records")
        if size < 0:
            partitions.append((index, None))
        else:
            partitions.append((index, frame[at : at + size]))
            at += size
    return partitions, at


def _decode_slowly(version: int, frame: memoryview, at: int) -> ProduceRequest:
    message = decode_request(PRODUCE, version, frame[at:])
    return ProduceRequest(
        message.transactional_id,
        message.acks,
        message.timeout,
        [
            ProduceTopic(
                topic.get("name"),
                topic.get("topic_id"),
                [(partition.index, partition.records) for partition in topic.partition_data],
            )
            for topic in message.topic_data
        ],
    )


def encode_produce_response(
    version: int,
    topics: Sequence[TopicAnswer],
    throttle_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """Return the body of the answer. `endpoints` are where the leaders in it can be reached."""
    if version < _FLEXIBLE_FROM:
        return _encode_legacy(version, topics, throttle_ms)
    pieces = [uvarint(len(topics) + 1)]
    for name, topic_id, answers in topics:
        if version >= _TOPIC_IDS_FROM:
            pieces.append(id_bytes(topic_id))
        else:
            pieces.append(text(name, flexible=True))
        pieces.append(_flexible_partitions(version, answers))
    pieces.append(_pack_int32(throttle_ms))
    pieces.append(endpoints_tag(endpoints) if version >= _LEADERS_FROM else b"\x00")
    return b"".join(pieces)


def _flexible_partitions(version: int, answers: Iterable[PartitionAnswer]) -> bytes:
    pieces = []
    for index, error, base_offset, append_ms, start, record_errors, message, leader in answers:
        pieces.append(_pack_answer_5(index, error, base_offset, append_ms, start))
        if record_errors or message is not None:
            pieces.append(_messages(record_errors, message, flexible=True))
        else:
            # No record errors, no message.
            pieces.append(b"\x01\x00")
        if leader is not None and version >= _LEADERS_FROM:
            pieces.append(b"\x01" + leader_tag(0, leader))
        else:
            pieces.append(b"\x00")
    # Three pieces for each partition; the last byte is the topic's empty tag section.
    return uvarint(len(pieces) // 3 + 1) + b"".join(pieces) + b"\x00"


def _encode_legacy(version: int, topics: Sequence[TopicAnswer], throttle_ms: int) -> bytes:
    pieces = [_pack_int32(len(topics))]
    for name, _, answers in topics:
        pieces.append(text(name, flexible=False))
        listed = list(answers)
        pieces.append(_pack_int32(len(listed)))
        for answer in listed:
            if version >= _START_OFFSET_FROM:
                pieces.append(_pack_answer_5(*answer[:5]))
            else:
                pieces.append(_ANSWER_3.pack(*answer[:4]))
            if version >= _MESSAGES_FROM:
                pieces.append(_messages(answer.record_errors, answer.message, flexible=False))
    pieces.append(_pack_int32(throttle_ms))
    return b"".join(pieces)


def _messages(
    record_errors: Sequence[tuple[int, str | None]], message: str | None, *, flexible: bool
) -> bytes:
    count = len(record_errors)
    out = uvarint(count + 1) if flexible else _pack_int32(count)
    for index, sentence in record_errors:
        out += _pack_int32(index) + text_or_null(sentence, flexible=flexible)
        if flexible:
            out += b"\x00"
    return out + text_or_null(message, flexible=flexible)
