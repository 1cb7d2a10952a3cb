"""How a client asks a desk's broker for records, and what it reads in the answer.

The connection is real, so a produce that waits and a fetch that waits do so here too.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from ottla.node.kafka.connection import Connection
from ottla.node.kafka.dispatch import Dispatch
from ottla.node.kafka.memory import ReceiveMemory
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import read_response_head, request_frame
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID
from tests.builders import produced
from tests.unit.node.kafka.desk import Desk
from tests.unit.node.kafka.guest import settled

DEADLINE_S = 10
CLOSED = "closed"
Leader = tuple[int, int] | None


class Scene:
    """One connection to the broker."""

    request_bytes_max = 1 << 20

    def __init__(self, desk: Desk, listener: str = "CLIENT") -> None:
        self.dispatch = Dispatch(desk.broker)
        self.memory = ReceiveMemory()
        self.refusals: list[str] = []
        ours, self.client = socket.socketpair()
        for sock in (ours, self.client):
            sock.setblocking(False)
        self.connection = Connection(ours, "guest", 1, self, 0, listener=listener)

    async def send(self, row: ApiRow, version: int, fields: dict[str, Any]) -> None:
        frame = request_frame(row, version, 1, "test", encode_request(row, version, fields))
        await asyncio.get_running_loop().sock_sendall(self.client, frame)

    async def read(self, row: ApiRow, version: int) -> Message | str:
        size = int.from_bytes(await self._read(4), "big")
        if not size:
            return CLOSED
        frame = await self._read(size)
        _, at = read_response_head(row, version, frame)
        return decode_response(row, version, frame[at:])

    async def _read(self, size: int) -> bytes:
        loop, read = asyncio.get_running_loop(), b""
        while len(read) < size:
            chunk = await asyncio.wait_for(
                loop.sock_recv(self.client, size - len(read)), DEADLINE_S
            )
            if not chunk:
                break
            read += chunk
        return read

    def close(self) -> None:
        self.connection.close("the story is over")
        self.client.close()

    # -- what a connection needs ---------------------------------------------------------------

    def serve(self, connection: Connection, frame: memoryview) -> None:
        self.dispatch.serve(connection, frame)

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None:
        self.refusals.append(str(error))

    def closed(self, connection: Connection, reason: str) -> None: ...

    def now_ms(self) -> int:
        return 0

    def now_us(self) -> int:
        return 0


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await settled()


def ask(
    desk: Desk, row: ApiRow, version: int, fields: dict[str, Any], listener: str = "CLIENT"
) -> Message | str:
    async def run() -> Message | str:
        scene = Scene(desk, listener)
        try:
            await scene.send(row, version, fields)
            return await scene.read(row, version)
        finally:
            scene.close()

    return desk.run(run())


def topic_id(desk: Desk, topic: str) -> UUID:
    return desk.broker.controller.image.topics[topic].topic_id


def wish(
    acks: int,
    topic: str,
    id_: UUID,
    index: int = 0,
    *,
    batch: bytes | None = None,
    timeout_ms: int = 1000,
) -> dict[str, Any]:
    partition = {"index": index, "records": batch or produced(b"v")}
    data = {"name": topic, "topic_id": id_, "partition_data": [partition]}
    return {"transactional_id": None, "acks": acks, "timeout": timeout_ms, "topic_data": [data]}


def write(
    desk: Desk, topic: str, *, version: int = 13, acks: int = -1, index: int = 0
) -> Message | str:
    return ask(desk, apis.PRODUCE, version, wish(acks, topic, topic_id(desk, topic), index))


def written(answer: Message | str) -> tuple[int, Leader]:
    """Return the code of the only partition, and who leads it as far as that is told."""
    assert isinstance(answer, Message)
    one = answer.responses[0].partition_responses[0]
    return one.error_code, _leader(one)


def read(
    desk: Desk, topic: str, *, version: int = 17, index: int = 0, epoch: int = -1, offset: int = 0
) -> Message | str:
    asked = question(desk, topic, index=index, epoch=epoch, offset=offset)
    return ask(desk, apis.FETCH, version, asked)


def question(
    desk: Desk, topic: str, *, index: int = 0, epoch: int = -1, wait_ms: int = 0, offset: int = 0
) -> dict[str, Any]:
    partition = {
        "partition": index,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    named = {"topic": topic, "topic_id": topic_id(desk, topic), "partitions": [partition]}
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [named],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def found(answer: Message | str) -> tuple[int, Leader]:
    assert isinstance(answer, Message)
    one = answer.responses[0].partitions[0]
    return one.error_code, _leader(one)


def _leader(one: Message) -> Leader:
    told = one.get("current_leader")
    if told is None or told.leader_id == -1:
        return None
    return told.leader_id, told.leader_epoch


def endpoints(answer: Message | str) -> list[tuple[int, str, int]]:
    assert isinstance(answer, Message)
    return [(one.node_id, one.host, one.port) for one in answer.get("node_endpoints", ())]
