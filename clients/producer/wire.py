"""Produce requests out of batches, and answers for batches out of responses. A core.

Not here: sockets, and what an answer means (`sender.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.metadata import BrokerInfo, endpoints_of
from ottla.clients.producer.batch import Batch
from ottla.clients.producer.sender import Answer
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import PRODUCE
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

# From here on a request names topics by their ids.
IDS_FROM: Final = 13
# From here on a request adds its partitions to the transaction by itself (KIP-890).
ADDS_FROM: Final = 12
_UNTOLD: Final = Answer(ErrorCode.UNKNOWN_SERVER_ERROR, message="the broker did not speak of it")


class Hint(NamedTuple):
    """Who leads a partition, said by a broker that does not (KIP-951)."""

    topic: str
    partition: int
    leader: int
    epoch: int


def version_for(highest: int, topics: Mapping[str, UUID], *, is_first_dialect: bool = False) -> int:
    """Return the version to speak: one without ids if a topic's id is not known.

    In the first dialect of transactions, one that adds no partitions by itself.
    """
    if is_first_dialect:
        return min(highest, ADDS_FROM - 1)
    if highest >= IDS_FROM and ZERO_UUID in topics.values():
        return IDS_FROM - 1
    return highest


def encode_produce(
    version: int,
    contents: Sequence[tuple[Batch, bytes]],
    topics: Mapping[str, UUID],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> bytes:
    """Return the body of a request with these batches, each with its bytes."""
    grouped = dict[str, list[dict[str, Any]]]()
    for batch, data in contents:
        part = {"index": batch.partition, "records": data}
        grouped.setdefault(batch.topic, []).append(part)
    fields = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": timeout_ms,
        "topic_data": [
            {"name": name, "topic_id": topics[name], "partition_data": parts}
            for name, parts in grouped.items()
        ],
    }
    return encode_request(PRODUCE, version, fields)


def answers_of(
    response: Message, batches: Sequence[Batch], topics: Mapping[str, UUID]
) -> tuple[list[tuple[Batch, Answer]], list[Hint], list[BrokerInfo]]:
    """Return what was said of each batch, who is said to lead, and where they can be reached."""
    names = {topic_id: name for name, topic_id in topics.items()}
    told = dict[tuple[str, int], Answer]()
    hints = list[Hint]()
    for topic, part in _parts(response, names):
        told[topic, part.index] = _answer(part)
        leader = part.get("current_leader")
        if leader is not None and leader.leader_id >= 0:
            hints.append(Hint(topic, part.index, leader.leader_id, leader.leader_epoch))
    answers = [(one, told.get((one.topic, one.partition), _UNTOLD)) for one in batches]
    return answers, hints, endpoints_of(response)


def _parts(response: Message, names: Mapping[UUID, str]) -> Iterator[tuple[str, Message]]:
    for topic in response.responses:
        name = topic.get("name") or names.get(topic.get("topic_id"))
        if name is not None:
            for part in topic.partition_responses:
                yield name, part


def _answer(part: Message) -> Answer:
    try:
        code = ErrorCode(part.error_code)
    except ValueError:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    message = part.get("error_message") or ""
    for one in part.get("record_errors") or ():
        detail = one.batch_index_error_message
        if detail:
            message = f"record {one.batch_index} of the batch: {detail}"
            break
    return Answer(code, part.base_offset, part.get("log_append_time", -1), message)
