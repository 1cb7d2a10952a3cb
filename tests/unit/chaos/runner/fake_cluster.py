"""Nodes that answer what a test tells them to, over real sockets on loopback.

    async with fake_cluster(1, 2) as cluster:
        cluster.lead(HERE, node=1, epoch=3)
        cluster.answers[1] = [Answer(code=7), Answer(offset=4), HANG_UP]

Produce takes its answers from the list of a node, one after the other, and is acknowledged when the
list is empty. Fetch and ListOffsets read `logs`, which every node shares; groups are answered by
`group` (`fake_group.py`).

Not here: anything that a real node would check.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from ottla.chaos.history import Place
from ottla.chaos.runner.requests import Seen
from ottla.proto.kafka.apis import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.decode import decode_request
from ottla.proto.kafka.encode import encode_response
from ottla.proto.kafka.framing import RequestHead, read_request_head, response_head
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from tests.unit.chaos.runner import fake_group

HOST: Final = "127.0.0.1"
OUT_OF_RANGE: Final = 1
_ROWS: Final = {
    row.key: row for row in (API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, *fake_group.ROWS)
}


@dataclass(frozen=True)
class Answer:
    """What a write is answered."""

    code: int = 0
    offset: int = -1
    # Who leads instead, and in which epoch.
    hint: Seen | None = None


HANG_UP: Final = "hang up"
SAY_NOTHING: Final = "say nothing"
Reply = Answer | str


@dataclass
class Log:
    """A partition: whole batches, where it starts and how far readers may see."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0

    def add(self, base: int, batch: bytes, end: int) -> None:
        self.batches.append((base, batch))
        self.high_watermark = end


@dataclass
class FakeCluster:
    """What all nodes say."""

    nodes: tuple[int, ...]
    addresses: dict[int, str] = field(default_factory=dict)
    leaders: dict[Place, Seen] = field(default_factory=dict)
    answers: dict[int, list[Reply]] = field(default_factory=dict)
    logs: dict[Place, Log] = field(default_factory=dict)
    # Which node was asked to write what, in order.
    writes: list[tuple[int, Place]] = field(default_factory=list)
    offsets: count[int] = field(default_factory=lambda: count(0))
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)
    servers: dict[int, asyncio.Server] = field(default_factory=dict)
    group: fake_group.FakeGroup = field(default_factory=fake_group.FakeGroup)

    def lead(self, place: Place, *, node: int, epoch: int) -> None:
        self.leaders[place] = Seen(node, epoch)

    async def down(self, node: int) -> None:
        """Let a node refuse connections from now on."""
        self.servers[node].close()
        await self.servers[node].wait_closed()

    async def serve(
        self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                frame = await reader.readexactly(size)
                head = read_request_head(frame)
                row = _ROWS[head.api_key]
                body = memoryview(frame)[head.body_at :]
                told = self._answer(node, row, decode_request(row, head.api_version, body))
                if told == HANG_UP:
                    return
                if isinstance(told, dict):
                    _send(writer, head, row, told)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, node: int, row: ApiRow, asked: Message) -> dict[str, Any] | str:
        if row is API_VERSIONS:
            return _versions()
        if row is METADATA:
            return self._metadata()
        if row in fake_group.ROWS:
            return self.group.answer(row, asked)
        if row is PRODUCE:
            return self._produce(node, asked)
        return self._list_offsets(asked) if row is LIST_OFFSETS else self._fetch(asked)

    def _metadata(self) -> dict[str, Any]:
        topics = dict[str, list[dict[str, Any]]]()
        for place, seen in self.leaders.items():
            topics.setdefault(place.topic, []).append(
                {
                    "error_code": 0,
                    "partition_index": place.partition,
                    "leader_id": seen.leader,
                    "leader_epoch": seen.epoch,
                    "replica_nodes": [],
                    "isr_nodes": [],
                    "offline_replicas": [],
                }
            )
        return {
            "throttle_time": 0,
            "brokers": [],
            "cluster_id": "c",
            "controller_id": -1,
            "error_code": 0,
            "topics": [
                {
                    "error_code": 0,
                    "name": name,
                    "topic_id": ZERO_UUID,
                    "is_internal": False,
                    "partitions": parts,
                    "topic_authorized_operations": 0,
                }
                for name, parts in topics.items()
            ],
        }

    def _produce(self, node: int, asked: Message) -> dict[str, Any] | str:
        (topic,) = asked.topic_data
        (part,) = topic.partition_data
        self.writes.append((node, Place(topic.name, part.index)))
        self.was_asked.set()
        if asked.acks == 0:
            return SAY_NOTHING
        script = self.answers.get(node)
        reply = script.pop(0) if script else Answer(offset=next(self.offsets))
        if isinstance(reply, str):
            return reply
        hint = reply.hint or Seen(-1, -1)
        told = {
            "index": part.index,
            "error_code": reply.code,
            "base_offset": reply.offset,
            "log_append_time": -1,
            "log_start_offset": 0,
            "record_errors": [],
            "error_message": None,
            "current_leader": {"leader_id": hint.leader, "leader_epoch": hint.epoch},
        }
        response = {"name": topic.name, "topic_id": ZERO_UUID, "partition_responses": [told]}
        return {"responses": [response], "throttle_time": 0, "node_endpoints": []}

    def _list_offsets(self, asked: Message) -> dict[str, Any]:
        (topic,) = asked.topics
        (part,) = topic.partitions
        log = self.logs[Place(topic.name, part.partition_index)]
        told = {
            "partition_index": part.partition_index,
            "error_code": 0,
            "timestamp": -1,
            "offset": log.start,
            "leader_epoch": 0,
        }
        return {"throttle_time": 0, "topics": [{"name": topic.name, "partitions": [told]}]}

    def _fetch(self, asked: Message) -> dict[str, Any]:
        return {
            "throttle_time": 0,
            "error_code": 0,
            "session_id": 0,
            "responses": [
                {
                    "topic": topic.topic,
                    "topic_id": ZERO_UUID,
                    "partitions": [
                        self._fetched(Place(topic.topic, part.partition), part.fetch_offset)
                        for part in topic.partitions
                    ],
                }
                for topic in asked.topics
            ],
            "node_endpoints": [],
        }

    def _fetched(self, place: Place, offset: int) -> dict[str, Any]:
        log = self.logs[place]
        is_there = log.start <= offset <= log.high_watermark
        # A broker answers with the batch that holds the offset, or the next one.
        at = next(
            (number for number, (_, batch) in enumerate(log.batches) if _end_of(batch) > offset),
            len(log.batches),
        )
        data = b"".join(batch for _, batch in log.batches[at:])
        return {
            "partition_index": place.partition,
            "error_code": 0 if is_there else OUT_OF_RANGE,
            "high_watermark": log.high_watermark,
            "last_stable_offset": -1,
            "log_start_offset": log.start,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": data if is_there else b"",
        }


def _end_of(batch: bytes) -> int:
    from ottla.chaos.runner.requests import end_of_batches

    return end_of_batches(batch) or 0


def _versions() -> dict[str, Any]:
    keys = [
        {"api_key": row.key, "min_version": 0, "max_version": row.high} for row in _ROWS.values()
    ]
    return {"error_code": 0, "throttle_time": 0, "api_keys": keys}


def _send(
    writer: asyncio.StreamWriter, head: RequestHead, row: ApiRow, fields: dict[str, Any]
) -> None:
    body = encode_response(row, head.api_version, fields)
    frame = response_head(row, head.api_version, head.correlation_id) + body
    writer.write(len(frame).to_bytes(4) + frame)


@asynccontextmanager
async def fake_cluster(*nodes: int) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(nodes)

    def serving(node: int) -> Any:
        return lambda reader, writer: cluster.serve(node, reader, writer)

    for node in nodes:
        server = await asyncio.start_server(serving(node), HOST, 0)
        cluster.servers[node] = server
        cluster.addresses[node] = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield cluster
    finally:
        for server in cluster.servers.values():
            server.close()
