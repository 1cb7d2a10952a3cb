"""The few requests of the harness's own clients, and what their answers hold.

Not here: sending them (`lines.py`), what follows from an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.chaos.history import Place
from ottla.chaos.payload import TOMBSTONE_HEADER
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from ottla.proto.records.build import build_batch
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import (
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_END,
    TRANSACTIONAL_BIT,
    read_batch_length,
    read_header,
)
from ottla.proto.records.record import Record

# The last ones that name topics; the next want their ids.
PRODUCE_BY_NAME: Final = 12
PRODUCE_BY_ID: Final = 13
FETCH_BY_NAME: Final = 12
EARLIEST: Final = -2
POLL_BYTES_MAX: Final = 256 << 10
_CHANGE_MS: Final = 8_000
_TOPIC: Final = 2
_SET: Final = 0


class Seen(NamedTuple):
    """Who leads a partition, as somebody said; −1: nobody."""

    leader: int
    epoch: int


class Taken(NamedTuple):
    """A record as it was fetched."""

    offset: int
    # Its value, or of a tombstone what stands in its header.
    payload: bytes | None
    leader_epoch: int
    is_control: bool
    # Who wrote it; −1: somebody without an identity.
    producer_id: int
    # Whether readers of what is committed may have to wait for it, or are not given it.
    is_transactional: bool
    # Where its batch ends, exclusive: gaps of a compacted topic are within or behind batches.
    next_offset: int


def place_of(partition: TopicPartition) -> Place:
    """Return a partition as the history names it."""
    return Place(partition.topic, partition.partition)


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────


def metadata_fields(topics: Collection[str]) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": ZERO_UUID} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def leaders_in(answer: Message) -> dict[Place, Seen]:
    return {
        Place(topic.name, part.partition_index): Seen(part.leader_id, part.leader_epoch)
        for topic in answer.topics
        if topic.error_code == ErrorCode.NONE
        for part in topic.partitions
    }


# ── Produce and Fetch ─────────────────────────────────────────────────────────────────────────


def produce_fields(
    place: Place,
    payload: bytes,
    *,
    key: bytes | None,
    acks: int,
    timeout_ms: int,
    now_ms: int,
    topic_id: UUID = ZERO_UUID,
    is_tombstone: bool = False,
) -> dict[str, Any]:
    if is_tombstone:
        record = Record(0, now_ms, key, None, ((TOMBSTONE_HEADER, payload),))
    else:
        record = Record(0, now_ms, key, payload, ())
    batch = build_batch([record])
    data = [{"index": place.partition, "records": batch}]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [{"name": place.topic, "topic_id": topic_id, "partition_data": data}],
    }


class ProduceResult(NamedTuple):
    """What became of one batch, as the answer has it."""

    code: int
    offset: int
    # Who leads instead.
    hint: Seen | None


def produce_result(answer: Message) -> ProduceResult | None:
    """Return what an answer says of the one batch that was sent; None if it says nothing of it."""
    found = [part for topic in answer.responses for part in topic.partition_responses]
    if len(found) != 1:
        return None
    (result,) = found
    hint = result.get("current_leader")
    is_named = hint is not None and hint.leader_id >= 0
    seen = Seen(hint.leader_id, hint.leader_epoch) if is_named else None
    return ProduceResult(result.error_code, result.base_offset, seen)


def fetch_fields(
    offsets: Mapping[Place, int],
    *,
    max_wait_ms: int,
    bytes_max: int = POLL_BYTES_MAX,
    is_committed: bool = False,
) -> dict[str, Any]:
    topics = dict[str, list[dict[str, int]]]()
    for place, offset in offsets.items():
        topics.setdefault(place.topic, []).append(
            {
                "partition": place.partition,
                "current_leader_epoch": -1,
                "fetch_offset": offset,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": bytes_max,
            }
        )
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": 1 if max_wait_ms else 0,
        "max_bytes": 4 * bytes_max,
        "isolation_level": int(is_committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": name, "topic_id": ZERO_UUID, "partitions": parts}
            for name, parts in topics.items()
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def records_in(data: bytes | memoryview) -> Iterator[Taken]:
    """Yield the records of all whole batches; the last batch may be cut short."""
    view, position = memoryview(data), 0
    while position + HEADER_SIZE <= len(view):
        size = LENGTH_END + read_batch_length(view, position)
        if position + size > len(view):
            return
        batch = bytes(view[position : position + size])
        header = read_header(batch)
        is_control = bool(header.attributes & CONTROL_BIT)
        for record in decode_records(batch):
            yield Taken(
                record.offset,
                _payload(record),
                header.leader_epoch,
                is_control,
                header.producer_id,
                bool(header.attributes & TRANSACTIONAL_BIT),
                header.next_offset,
            )
        position += size


def without_aborted(taken: Iterable[Taken], aborted: Iterable[tuple[int, int]]) -> Iterator[Taken]:
    """Leave out what was aborted, as a reader of what is committed does; and control records.

    `aborted` are producer ids with the first offsets of their transactions, as a Fetch tells them:
    each from there to the next marker of that producer.
    """
    waiting = sorted(aborted, key=lambda one: one[1])
    gone = set[int]()
    for one in taken:
        while waiting and waiting[0][1] <= one.offset:
            gone.add(waiting.pop(0)[0])
        if one.is_control:
            gone.discard(one.producer_id)
        elif not one.is_transactional or one.producer_id not in gone:
            yield one


def _payload(record: Record) -> bytes | None:
    if record.value is not None:
        return record.value
    return dict(record.headers).get(TOMBSTONE_HEADER)


def end_of_batches(data: bytes | memoryview) -> int | None:
    """Return the offset behind the last whole batch, empty or not; None if there is none."""
    view, position, end = memoryview(data), 0, None
    while position + HEADER_SIZE <= len(view):
        size = LENGTH_END + read_batch_length(view, position)
        if position + size > len(view):
            break
        end = int(read_header(view[position : position + HEADER_SIZE]).next_offset)
        position += size
    return end


def list_offsets_fields(place: Place, timestamp: int) -> dict[str, Any]:
    part = {
        "partition_index": place.partition,
        "current_leader_epoch": -1,
        "timestamp": timestamp,
        "max_num_offsets": 1,
    }
    topic = {"name": place.topic, "partitions": [part]}
    return {"replica_id": -1, "isolation_level": 0, "topics": [topic], "timeout": _CHANGE_MS}


# ── Changes ───────────────────────────────────────────────────────────────────────────────────


def create_fields(
    name: str, assignments: Sequence[Sequence[int]], options: Mapping[str, str]
) -> dict[str, Any]:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": list(nodes)}
            for index, nodes in enumerate(assignments)
        ],
        "configs": [{"name": key, "value": value} for key, value in options.items()],
    }
    return {"topics": [topic], "timeout": _CHANGE_MS, "validate_only": False}


def delete_fields(name: str) -> dict[str, Any]:
    named = {"name": name, "topic_id": ZERO_UUID}
    return {"topics": [named], "topic_names": [name], "timeout": _CHANGE_MS}


def grow_fields(name: str, count: int) -> dict[str, Any]:
    wish = {"name": name, "count": count, "assignments": None}
    return {"topics": [wish], "timeout": _CHANGE_MS, "validate_only": False}


def option_fields(name: str, option: str, value: str) -> dict[str, Any]:
    config = {"name": option, "config_operation": _SET, "value": value}
    resource = {"resource_type": _TOPIC, "resource_name": name, "configs": [config]}
    return {"resources": [resource], "validate_only": False}
