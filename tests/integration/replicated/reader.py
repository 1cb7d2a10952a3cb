"""Reads partitions from their first offset to the high watermark, batch by batch.

Not here: what should be there (`judge.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, read_batch_length, read_header
from tests.integration.replicated.judge import Found
from tests.integration.replicated.wire import FETCH_VERSION, Lines, newer_leader

READ_S: Final = 60.0
_ASK_S: Final = 1.0
_ANSWER_S: Final = 10.0
_PAUSE_S: Final = 0.02
_BYTES_MAX: Final = 8 << 20


class ReadBack(NamedTuple):
    """One partition as a reader sees it."""

    records: list[Found]
    high_watermark: int


def read_all(
    addresses: Mapping[int, str],
    places: Iterable[TopicPartition],
    *,
    ends: Mapping[TopicPartition, int] | None = None,
    deadline_s: float = READ_S,
) -> dict[TopicPartition, ReadBack]:
    """Return all that can be read, or raise `TimeoutError`.

    `ends` says how far each partition should go at least. A new leader may not know that yet, so
    it is asked again until the deadline; then what there is is returned.
    """
    wanted = ends or {}

    async def whole() -> dict[TopicPartition, ReadBack]:
        lines = Lines(addresses)
        try:
            async with asyncio.timeout(deadline_s + _ANSWER_S):
                return {
                    place: await _read(lines, place, wanted.get(place, 0), deadline_s)
                    for place in places
                }
        finally:
            await lines.close()

    return asyncio.run(whole())


async def _read(lines: Lines, place: TopicPartition, wanted: int, deadline_s: float) -> ReadBack:
    found, high_watermark = list[Found](), None
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        leader = await newer_leader(lines, place, -1, _ASK_S)
        if leader is None:
            await asyncio.sleep(_PAUSE_S)
            continue
        try:
            high_watermark = await _read_from(lines, leader.leader, place, found)
        except OttlaError:
            lines.cut(leader.leader)
            high_watermark = None
        if high_watermark is not None and high_watermark >= wanted:
            return ReadBack(found, high_watermark)
        await asyncio.sleep(_PAUSE_S)
    if high_watermark is not None:
        return ReadBack(found, high_watermark)
    raise TimeoutError(f"{place} could not be read: {len(found)} records came")


async def _read_from(
    lines: Lines, node_id: int, place: TopicPartition, found: list[Found]
) -> int | None:
    """Read on behind what was found; return the high watermark when it is reached."""
    line = await lines.to(node_id)
    while True:
        offset = found[-1].offset + 1 if found else 0
        answer = await line.call(
            FETCH, fetch_fields(place, offset), FETCH_VERSION, timeout_s=_ANSWER_S
        )
        (topic,) = answer.responses
        (part,) = topic.partitions
        if part.error_code != ErrorCode.NONE:
            return None
        before = len(found)
        found.extend(one for one in records_in(part.records or b"") if one.offset >= offset)
        if offset + len(found) - before >= part.high_watermark:
            return int(part.high_watermark)
        if len(found) == before:
            return None


def records_in(data: bytes | memoryview) -> Iterator[Found]:
    """Yield the records of all whole batches; the last batch may be cut short."""
    view, position = memoryview(data), 0
    while position + HEADER_SIZE <= len(view):
        size = LENGTH_END + read_batch_length(view, position)
        if position + size > len(view):
            return
        batch = bytes(view[position : position + size])
        epoch = read_header(batch).leader_epoch
        for record in decode_records(batch):
            yield Found(record.offset, record.value or b"", epoch)
        position += size


def fetch_fields(place: TopicPartition, offset: int, max_wait_ms: int = 100) -> dict[str, Any]:
    partition = {
        "partition": place.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": _BYTES_MAX,
    }
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": 0,
        "max_bytes": _BYTES_MAX,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": place.topic, "topic_id": ZERO_UUID, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
