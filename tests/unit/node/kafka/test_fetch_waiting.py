"""Fetches that wait: what wakes them, what a wake-up costs, and how they end.

A real broker on a disk in memory, and a real connection to it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Iterator
from typing import Any, Final

import pytest

from ottla.node.kafka import fetch as fetch_module
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.fetch import Fetch
from ottla.node.kafka.memory import ReceiveMemory
from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.fetch import FetchRequest
from ottla.proto.kafka.framing import read_request_head, read_response_head, request_frame
from ottla.proto.kafka.message import Message
from tests.builders import NOW_MS, produced
from tests.unit.node.kafka.desk import Desk, open_desk
from tests.unit.node.kafka.guest import settled

VERSION: Final = 12
PARTITIONS: Final = 20
FOR_EVER: Final = 2**31 - 1
DEADLINE_S: Final = 10


class CountingFetch(Fetch):
    """Counts how often all the partitions of a request are looked at."""

    finds = 0

    def find(self, request: FetchRequest) -> Any:
        self.finds += 1
        return super().find(request)


class Scene:
    """One broker, and clients that fetch from it."""

    request_bytes_max = 1 << 20

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.fetch = CountingFetch(desk.broker)
        self.memory = ReceiveMemory()
        self.connections: list[Connection] = []

    def client(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        self.connections.append(Connection(ours, "guest", 1, self, 0))
        return theirs

    def append(self, index: int, size: int = 100) -> None:
        replica = self.desk.replica("t", index)
        replica.append([produced(b"x" * size)], now_ms=NOW_MS)

    async def answer(self, client: socket.socket) -> Message:
        frame = await self._read(client, int.from_bytes(await self._read(client, 4), "big"))
        _, at = read_response_head(FETCH, VERSION, frame)
        return decode_response(FETCH, VERSION, frame[at:])

    async def _read(self, client: socket.socket, size: int) -> bytes:
        loop, read = asyncio.get_running_loop(), b""
        while len(read) < size:
            chunk = await asyncio.wait_for(loop.sock_recv(client, size - len(read)), DEADLINE_S)
            assert chunk, "the node closed the connection"
            read += chunk
        return read

    # -- what a connection needs ---------------------------------------------------------------

    def serve(self, connection: Connection, frame: memoryview) -> None:
        self.fetch.serve(connection, read_request_head(frame), frame)

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None:
        raise AssertionError(error)

    def closed(self, connection: Connection, reason: str) -> None:
        self.connections.remove(connection)

    def now_ms(self) -> int:
        return 0

    def now_us(self) -> int:
        return 0


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(ottla_durability="pagecache") as opened:
        opened.create("t", PARTITIONS)
        yield opened


def play(desk: Desk, story: Any) -> None:
    async def run() -> None:
        scene = Scene(desk)
        try:
            await story(scene)
        finally:
            for connection in tuple(scene.connections):
                connection.close("the story is over")
        assert not scene.fetch.waiting
        assert not any(desk.replica("t", n).readers for n in range(PARTITIONS))

    work: Coroutine[Any, Any, None] = run()
    desk.run(work)


def request(*indexes: int, partition_bytes: int = 1 << 20, **changes: Any) -> bytes:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes,
        }
        for index in indexes or range(PARTITIONS)
    ]
    fields = {
        "replica_id": -1,
        "max_wait": FOR_EVER,
        "min_bytes": FOR_EVER,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": partitions}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **changes,
    }
    return request_frame(FETCH, VERSION, 7, "guest", encode_request(FETCH, VERSION, fields))


def sizes_of(answer: Message) -> dict[int, int]:
    (topic,) = answer.responses
    return {
        one.partition_index: len(one.records) for one in topic.partitions if one.records is not None
    }


def test_f4_n5_of_one_connection_one_fetch_waits_at_a_time(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        with scene.client() as client:
            client.send(request(0, min_bytes=1) + request(1, min_bytes=1) + request(2))
            await settled()
            assert len(scene.fetch.waiting) == 1
            # It is the first that waits, whoever else has something.
            scene.append(1)
            await settled()
            assert len(scene.fetch.waiting) == 1
            scene.append(0)
            assert set(sizes_of(await scene.answer(client))) == {0}
            assert set(sizes_of(await scene.answer(client))) == {1}
            assert len(scene.fetch.waiting) == 1

    play(desk, story)


def test_an_append_has_a_waiting_fetch_look_at_one_partition(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        with scene.client() as client:
            client.send(request())
            await settled()
            assert scene.fetch.finds == 1
            for number in range(50):
                scene.append(number % PARTITIONS)
                await settled()
            assert scene.fetch.finds == 1
            assert len(scene.fetch.waiting) == 1

    play(desk, story)


def test_what_it_cannot_be_given_does_not_have_a_fetch_look_at_all_of_them(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        scene.append(0)
        with scene.client() as client:
            # One byte more than there is; of a partition it takes the first batch and no other.
            client.send(request(min_bytes=len(produced(b"x" * 100)) + 1, partition_bytes=1))
            await settled()
            for _ in range(20):
                scene.append(0)
                await settled()
            assert scene.fetch.finds == 1

    play(desk, story)


def test_a_fetch_is_answered_when_its_partitions_have_enough_together(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        size = len(produced(b"x" * 100))
        scene.append(0)
        with scene.client() as client:
            # What is there already counts.
            client.send(request(min_bytes=3 * size))
            await settled()
            scene.append(3)
            await settled()
            assert len(scene.fetch.waiting) == 1
            scene.append(3)
            sizes = sizes_of(await scene.answer(client))
            assert {index: found for index, found in sizes.items() if found} == {
                0: size,
                3: 2 * size,
            }
            assert scene.fetch.finds == 2

    play(desk, story)


def test_who_asks_for_more_than_an_answer_may_have_gets_what_it_may(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        size = len(produced(b"x" * 100))
        with scene.client() as client:
            client.send(request(max_bytes=2 * size))
            await settled()
            scene.append(1)
            await settled()
            assert len(scene.fetch.waiting) == 1
            scene.append(2)
            assert sum(sizes_of(await scene.answer(client)).values()) == 2 * size

    play(desk, story)


def test_a_client_that_leaves_takes_its_fetch_with_it_at_once(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        with scene.client() as client:
            client.send(request())
            await settled()
        await settled()
        assert not scene.fetch.waiting
        assert not scene.connections

    play(desk, story)


def test_a_client_that_leaves_requests_unread_is_noticed_when_it_is_looked_for(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        with scene.client() as client:
            client.send(request() * 3)
            await settled()
            (connection,) = scene.connections
            connection.notice_leaving()
            await settled()
            assert len(scene.fetch.waiting) == 1
        connection.notice_leaving()
        await settled()
        assert not scene.fetch.waiting
        assert not scene.connections

    play(desk, story)


def test_who_leaves_the_way_back_open_gets_all_answers_when_it_is_looked_for(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        with scene.client() as client:
            client.send(request(0) + request(1))
            await settled()
            client.shutdown(socket.SHUT_WR)
            (connection,) = scene.connections
            connection.notice_leaving()
            assert set(sizes_of(await scene.answer(client))) == {0}
            assert set(sizes_of(await scene.answer(client))) == {1}

    play(desk, story)


def test_a_partition_that_is_deleted_ends_the_wait(desk: Desk) -> None:
    desk.create("other")

    async def story(scene: Scene) -> None:
        with scene.client() as client:
            partition = {
                "partition": 0,
                "current_leader_epoch": -1,
                "fetch_offset": 0,
                "last_fetched_epoch": -1,
                "log_start_offset": -1,
                "partition_max_bytes": 1,
            }
            topics = [{"topic": name, "partitions": [partition]} for name in ("t", "other")]
            client.send(request(topics=topics))
            await settled()
            assert len(scene.fetch.waiting) == 1
            await desk.broker.controller.delete_topics(["other"])
            gone = (await scene.answer(client)).responses[1].partitions[0]
            assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(desk, story)


def test_a_stop_answers_all_who_wait(desk: Desk) -> None:
    async def story(scene: Scene) -> None:
        clients = [scene.client() for _ in range(3)]
        for client in clients:
            client.send(request(5))
        await settled()
        for connection in scene.connections:
            connection.drain()
        scene.fetch.stop()
        for client in clients:
            with client:
                assert sizes_of(await scene.answer(client)) == {5: 0}

    play(desk, story)


def test_f4_beyond_what_may_be_watched_who_waits_longest_is_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "WATCHED_MAX", 3 * PARTITIONS)

    async def story(scene: Scene) -> None:
        clients = [scene.client() for _ in range(5)]
        for client in clients:
            client.send(request())
            await settled()
        assert len(scene.fetch.waiting) == 3
        for client in clients[:2]:
            assert sum(sizes_of(await scene.answer(client)).values()) == 0
        for client in clients:
            client.close()

    play(desk, story)
