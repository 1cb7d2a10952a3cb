"""Fetch, the hot path out: one pass over the request, and an answer with holes for the records.

The answer is a list of pieces. The records of a partition lie in a file, and go from there to the
socket; they never come through here, only their size does:

    piece 0 · records of partition 0 · piece 1 · records of partition 1 · … · piece n

`decode.py` and `encode.py` can do the same and are the measure of this. What is rare is left to
them: a request with tagged fields (a replica's, not a consumer's) is read by `decode_request`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.decode import decode_request
from ottla.proto.kafka.hot import Endpoint, TaggedError, endpoints_tag, id_bytes, leader_tag, text
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.primitives import (
    Budget,
    is_null,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    read_uuid,
    uvarint,
)
from ottla.proto.kafka.uuids import UUID

_ENDPOINTS_FROM: Final = 16
_REPLICA_STATE_FROM: Final = 15
_TOPIC_IDS_FROM: Final = 13
_FLEXIBLE_FROM: Final = 12
_RACK_FROM: Final = 11
_EPOCHS_FROM: Final = 9
_SESSIONS_FROM: Final = 7
_START_OFFSET_FROM: Final = 5

_new: Final = tuple.__new__
_pack_int32: Final = struct.Struct(">i").pack
_pack_int64: Final = struct.Struct(">q").pack
_pack_partition: Final = struct.Struct(">ihqqq").pack
_pack_old_partition: Final = struct.Struct(">ihqq").pack
_pack_head: Final = struct.Struct(">ihi").pack
_pack_aborted: Final = struct.Struct(">qq").pack
_pack_diverging: Final = struct.Struct(">iq").pack

_START_4: Final = struct.Struct(">iiiib")
_START_7: Final = struct.Struct(">iiiibii")
_START_15: Final = struct.Struct(">iiibii")
_PARTITION_4: Final = struct.Struct(">iqi")
_PARTITION_5: Final = struct.Struct(">iqqi")
_PARTITION_9: Final = struct.Struct(">iiqqi")
_PARTITION_12: Final = struct.Struct(">iiqiqi")
_NO_SESSION: Final = (0, -1)
_NO_REPLICA: Final = -1


class FetchPartition(NamedTuple):
    """From where, and how much, of one partition. What a version does not have is -1."""

    # Hides tuple.index, which nobody asks a partition for.
    index: int  # type: ignore[assignment]
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    start_offset: int
    bytes_max: int


class FetchTopic(NamedTuple):
    """The partitions asked for of one topic: a name below version 13, an id from then on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that a fetch session shall leave out from now on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """What a consumer, or somebody who says that he is a replica, wants to read."""

    # -1 for consumers.
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    bytes_max: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str


class FetchAnswer(NamedTuple):
    """What one partition has to say, but for the records themselves."""

    # Hides tuple.index, which nobody asks an answer for.
    index: int  # type: ignore[assignment]
    error: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    # Bytes that the caller puts between this piece and the next. -1: null, not empty.
    records_size: int = 0
    # Epoch and its end offset, from where the logs differ.
    diverging: tuple[int, int] | None = None
    # Leader and its epoch, where the consumer should have asked (KIP-951).
    leader: tuple[int, int] | None = None
    # Producer id and first offset of each; None for consumers that read uncommitted.
    aborted: Sequence[tuple[int, int]] | None = None


# Name below version 13, id from then on, and the answers of its partitions.
TopicAnswer = tuple[str | None, UUID | None, Sequence[FetchAnswer]]


def decode_fetch(version: int, frame: memoryview, at: int) -> FetchRequest:
    """Return the request whose body starts at `at`. Bytes after its end are passed over."""
    try:
        return _read(version, frame, at)
    except TaggedError:
        return _decode_slowly(version, frame, at)
    except (IndexError, struct.error):
        raise RemoteProtocolError(f"Fetch v{version}: the frame ends before it does") from None


def _read(version: int, frame: memoryview, at: int) -> FetchRequest:
    start, at = _read_start(version, frame, at)
    flexible = version >= _FLEXIBLE_FROM
    budget = Budget()
    count, at = _count(frame, at, budget, "Fetch, topics", flexible=flexible)
    topics = []
    for _ in range(count):
        name, topic_id, at = _read_topic(version, frame, at)
        partitions, at = _read_partitions(version, frame, at, budget)
        topics.append(_new(FetchTopic, (name, topic_id, partitions)))
    forgotten: list[ForgottenTopic] = []
    if version >= _SESSIONS_FROM:
        count, at = _count(frame, at, budget, "Fetch, forgotten_topics_data", flexible=flexible)
        for _ in range(count):
            name, topic_id, at = _read_topic(version, frame, at)
            left, at = _read_forgotten(frame, at, budget, flexible=flexible)
            forgotten.append(ForgottenTopic(name, topic_id, left))
    rack_id = ""
    if version >= _RACK_FROM:
        read = read_compact_string if flexible else read_string
        rack_id, at = read(frame, at, "Fetch, rack_id")
    if flexible:
        _no_tags(frame, at)
    return _new(FetchRequest, (*start, topics, forgotten, rack_id))


def _read_start(version: int, frame: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    """Return the seven numbers that a request starts with, from replica id to session epoch."""
    if version >= _REPLICA_STATE_FROM:
        # The replica id became a tagged field; without it, nobody claims to be a replica.
        return (_NO_REPLICA, *_START_15.unpack_from(frame, at)), at + _START_15.size
    if version >= _SESSIONS_FROM:
        return _START_7.unpack_from(frame, at), at + _START_7.size
    return _START_4.unpack_from(frame, at) + _NO_SESSION, at + _START_4.size


def _read_topic(version: int, frame: memoryview, at: int) -> tuple[str | None, UUID | None, int]:
    if version >= _TOPIC_IDS_FROM:
        topic_id, at = read_uuid(frame, at, "Fetch, topic_id")
        return None, topic_id, at
    read = read_compact_string if version >= _FLEXIBLE_FROM else read_string
    name, at = read(frame, at, "Fetch, topic")
    return name, None, at


def _read_partitions(
    version: int, frame: memoryview, at: int, budget: Budget
) -> tuple[list[FetchPartition], int]:
    partitions = []
    if version >= _FLEXIBLE_FROM:
        least = _PARTITION_12.size + 1
        count, at = read_compact_count(frame, at, least, budget, "Fetch, partitions")
        if count < 0:
            is_null("Fetch, partitions")
        for _ in range(count):
            partitions.append(_new(FetchPartition, _PARTITION_12.unpack_from(frame, at)))
            at = _no_tags(frame, at + _PARTITION_12.size)
        return partitions, _no_tags(frame, at)
    layout = _old_partition(version)
    count, at = read_count(frame, at, layout.size, budget, "Fetch, partitions")
    if count < 0:
        is_null("Fetch, partitions")
    for _ in range(count):
        partitions.append(_from_old(version, layout.unpack_from(frame, at)))
        at += layout.size
    return partitions, at


def _old_partition(version: int) -> struct.Struct:
    if version >= _EPOCHS_FROM:
        return _PARTITION_9
    return _PARTITION_5 if version >= _START_OFFSET_FROM else _PARTITION_4


def _from_old(version: int, numbers: tuple[int, ...]) -> FetchPartition:
    if version >= _EPOCHS_FROM:
        index, leader_epoch, offset, start_offset, bytes_max = numbers
        return FetchPartition(index, leader_epoch, offset, -1, start_offset, bytes_max)
    if version >= _START_OFFSET_FROM:
        index, offset, start_offset, bytes_max = numbers
        return FetchPartition(index, -1, offset, -1, start_offset, bytes_max)
    index, offset, bytes_max = numbers
    return FetchPartition(index, -1, offset, -1, -1, bytes_max)


def _read_forgotten(
    frame: memoryview, at: int, budget: Budget, *, flexible: bool
) -> tuple[list[int], int]:
    read = read_compact_count if flexible else read_count
    count, at = read(frame, at, 4, budget, "Fetch, forgotten partitions")
    if count < 0:
        is_null("Fetch, forgotten partitions")
    numbers = list(struct.unpack_from(f">{count}i", frame, at))
    at += 4 * count
    return numbers, _no_tags(frame, at) if flexible else at


def _count(
    frame: memoryview, at: int, budget: Budget, what: str, *, flexible: bool
) -> tuple[int, int]:
    # A topic is at least a name, a count and a tag section; in old versions six bytes of lengths.
    if flexible:
        count, at = read_compact_count(frame, at, 3, budget, what)
    else:
        count, at = read_count(frame, at, 6, budget, what)
    if count < 0:
        is_null(what)
    return count, at


def _no_tags(frame: memoryview, at: int) -> int:
    if frame[at]:
        raise TaggedError
    return at + 1


def _decode_slowly(version: int, frame: memoryview, at: int) -> FetchRequest:
    message = decode_request(FETCH, version, frame[at:])
    replica_id = message.get("replica_id")
    return FetchRequest(
        message.replica_state.replica_id if replica_id is None else replica_id,
        message.max_wait,
        message.min_bytes,
        message.max_bytes,
        message.isolation_level,
        message.session_id,
        message.session_epoch,
        [
            FetchTopic(
                topic.get("topic"),
                topic.get("topic_id"),
                [_from_message(partition) for partition in topic.partitions],
            )
            for topic in message.topics
        ],
        [
            ForgottenTopic(topic.get("topic"), topic.get("topic_id"), topic.partitions)
            for topic in message.forgotten_topics_data
        ],
        message.rack_id,
    )


def _from_message(partition: Message) -> FetchPartition:
    return FetchPartition(
        partition.partition,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.log_start_offset,
        partition.partition_max_bytes,
    )


def encode_fetch_response(
    version: int,
    throttle_ms: int,
    error: int,
    session_id: int,
    topics: Sequence[TopicAnswer],
    endpoints: Sequence[Endpoint] = (),
) -> list[bytes]:
    """Return the body in n + 1 pieces for n partitions, in their order.

    Below version 7 there is no place for `error` and `session_id`.
    """
    flexible = version >= _FLEXIBLE_FROM
    pieces = []
    # What has been written since the last hole.
    open_piece = (
        _pack_head(throttle_ms, error, session_id)
        if version >= _SESSIONS_FROM
        else _pack_int32(throttle_ms)
    ) + _length(len(topics), flexible=flexible)
    for name, topic_id, answers in topics:
        if version >= _TOPIC_IDS_FROM:
            open_piece += id_bytes(topic_id)
        else:
            open_piece += text(name, flexible=flexible)
        open_piece += _length(len(answers), flexible=flexible)
        for answer in answers:
            if flexible:
                pieces.append(open_piece + _flexible_front(answer))
                open_piece = _tags(answer)
            else:
                pieces.append(open_piece + _front(version, answer))
                open_piece = b""
        if flexible:
            open_piece += b"\x00"
    if flexible:
        open_piece += endpoints_tag(endpoints) if version >= _ENDPOINTS_FROM else b"\x00"
    pieces.append(open_piece)
    return pieces


def _length(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _pack_int32(count)


def _flexible_front(answer: FetchAnswer) -> bytes:
    """Return all of a partition that comes before its records."""
    # Aborted transactions, then the preferred read replica: none.
    middle = b"\x00\xff\xff\xff\xff"
    if answer.aborted is not None:
        middle = _aborted(answer.aborted, flexible=True) + b"\xff\xff\xff\xff"
    return _pack_partition(*answer[:5]) + middle + uvarint(answer.records_size + 1)


def _tags(answer: FetchAnswer) -> bytes:
    """Return the tag section of a partition, which comes after its records."""
    if answer.diverging is None and answer.leader is None:
        return b"\x00"
    count = 0
    out = b""
    if answer.diverging is not None:
        count += 1
        out += b"\x00\x0d" + _pack_diverging(*answer.diverging) + b"\x00"
    if answer.leader is not None:
        count += 1
        out += leader_tag(1, answer.leader)
    return uvarint(count) + out


def _front(version: int, answer: FetchAnswer) -> bytes:
    if version >= _START_OFFSET_FROM:
        out = _pack_partition(*answer[:5])
    else:
        out = _pack_old_partition(*answer[:4])
    out += (
        b"\xff\xff\xff\xff" if answer.aborted is None else _aborted(answer.aborted, flexible=False)
    )
    if version >= _RACK_FROM:
        # The preferred read replica: none.
        out += b"\xff\xff\xff\xff"
    return out + _pack_int32(answer.records_size)


def _aborted(aborted: Iterable[tuple[int, int]], *, flexible: bool) -> bytes:
    end = b"\x00" if flexible else b""
    packed = [_pack_aborted(*transaction) + end for transaction in aborted]
    return _length(len(packed), flexible=flexible) + b"".join(packed)
