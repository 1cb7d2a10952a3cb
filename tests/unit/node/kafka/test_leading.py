"""Records are written and read at the leader; everybody else says so, and where it is.

A real broker on a disk in memory, a real connection to it, and two brokers that are not there but
in the metadata.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

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
from tests.unit.node.kafka.asking_for_offsets import listed
from tests.unit.node.kafka.desk import Desk, Place, open_desk
from tests.unit.node.kafka.guest import settled

DEADLINE_S = 10
NOT_LEADER, UNKNOWN, NOT_ENOUGH_REPLICAS, FENCED, UNKNOWN_EPOCH = 6, 3, 19, 74, 75
LATEST = -1
CLOSED = "closed"
Leader = tuple[int, int] | None


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Node 1 of three.

    It leads "here" alone. "there" is alone on broker 2, "nobody" alone on broker 3, which is down.
    It leads "first" and follows "second", each of which is also on broker 2.
    """
    place = Place()
    cluster = place.cluster
    for number in (1, 2, 3):
        cluster.start(number)
    with open_desk(place) as opened:
        cluster.create((1,), name="here")
        cluster.create((2,), name="there")
        cluster.create((3,), name="nobody")
        cluster.create((1, 2), name="first")
        cluster.create((2, 1), name="second")
        cluster.fence(3)
        opened.tell()
        yield opened


class Scene:
    """One connection to the broker."""

    request_bytes_max = 1 << 20

    def __init__(self, desk: Desk) -> None:
        self.dispatch = Dispatch(desk.broker)
        self.memory = ReceiveMemory()
        self.refusals: list[str] = []
        ours, self.client = socket.socketpair()
        for sock in (ours, self.client):
            sock.setblocking(False)
        self.connection = Connection(ours, "guest", 1, self, 0)

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

    # -- what a connection needs ---------------------------------------------------------------

    def serve(self, connection: Connection, frame: memoryview) -> None:
        self.dispatch.serve(connection, frame)

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None:
        self.refusals.append(str(error))

    def closed(self, connection: Connection, reason: str) -> None: ...

    def now_ms(self) -> int:
        return 0


def ask(desk: Desk, row: ApiRow, version: int, fields: dict[str, Any]) -> Message | str:
    async def run() -> Message | str:
        scene = Scene(desk)
        try:
            await scene.send(row, version, fields)
            return await scene.read(row, version)
        finally:
            scene.connection.close("the story is over")
            scene.client.close()

    return desk.run(run())


def topic_id(desk: Desk, topic: str) -> UUID:
    return desk.broker.controller.image.topics[topic].topic_id


def wish(acks: int, topic: str, id_: UUID, index: int = 0) -> dict[str, Any]:
    partition = {"index": index, "records": produced(b"v")}
    data = {"name": topic, "topic_id": id_, "partition_data": [partition]}
    return {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": [data]}


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
    desk: Desk, topic: str, *, version: int = 17, index: int = 0, epoch: int = -1
) -> Message | str:
    return ask(desk, apis.FETCH, version, question(desk, topic, index=index, epoch=epoch))


def question(
    desk: Desk, topic: str, *, index: int = 0, epoch: int = -1, wait_ms: int = 0
) -> dict[str, Any]:
    partition = {
        "partition": index,
        "current_leader_epoch": epoch,
        "fetch_offset": 0,
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


# ── Produce and Fetch ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", [3, 9, 10, 13])
def test_what_is_led_here_is_written_and_read_here(desk: Desk, version: int) -> None:
    assert written(write(desk, "here", version=version)) == (0, None)
    assert found(read(desk, "here")) == (0, None)


@pytest.mark.parametrize("topic", ["there", "second"])
def test_another_leader_is_told_to_producers_that_can_be_told(desk: Desk, topic: str) -> None:
    for version in range(3, 14):
        answer = write(desk, topic, version=version)
        assert written(answer) == (NOT_LEADER, (2, 0) if version >= 10 else None)
        assert endpoints(answer) == ([(2, "host-2", 9092)] if version >= 10 else [])


@pytest.mark.parametrize("topic", ["there", "second"])
def test_another_leader_is_told_to_consumers_that_can_be_told(desk: Desk, topic: str) -> None:
    for version in range(4, 19):
        answer = read(desk, topic, version=version)
        assert found(answer) == (NOT_LEADER, (2, 0) if version >= 16 else None)
        assert endpoints(answer) == ([(2, "host-2", 9092)] if version >= 16 else [])


def test_where_nobody_leads_nobody_is_told(desk: Desk) -> None:
    for told, answer in (
        (written, write(desk, "nobody")),
        (found, read(desk, "nobody")),
    ):
        assert told(answer) == (NOT_LEADER, None)
        assert endpoints(answer) == []


def test_a_partition_that_is_not_there_has_no_leader_either(desk: Desk) -> None:
    for index in (1, -1):
        assert written(write(desk, "there", index=index)) == (UNKNOWN, None)
        assert found(read(desk, "there", index=index)) == (UNKNOWN, None)


def test_one_who_leads_elsewhere_spoils_no_neighbour(desk: Desk) -> None:
    fields = wish(-1, "there", topic_id(desk, "there"))
    fields["topic_data"] += wish(-1, "here", topic_id(desk, "here"))["topic_data"]
    answer = ask(desk, apis.PRODUCE, 13, fields)
    assert isinstance(answer, Message)
    codes = [one.partition_responses[0].error_code for one in answer.responses]
    assert codes == [NOT_LEADER, 0]
    assert endpoints(answer) == [(2, "host-2", 9092)]


# ── Alone with its word (rule 13) ─────────────────────────────────────────────────────────────


def test_rule_13_a_leader_that_no_controller_hears_serves_nothing_another_may_lead(
    desk: Desk,
) -> None:
    desk.broker.is_heard = lambda: False
    code, _ = written(write(desk, "first"))
    assert code == NOT_LEADER
    answer = read(desk, "first")
    assert isinstance(answer, Message)
    assert answer.responses[0].partitions[0].error_code == NOT_LEADER


def test_rule_13_where_nobody_else_can_lead_it_goes_on_without_controllers(desk: Desk) -> None:
    desk.broker.is_heard = lambda: False
    assert written(write(desk, "here")) == (0, None)


# ── Until followers copy ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_is_written_that_nobody_would_copy(desk: Desk, acks: int) -> None:
    answer = write(desk, "first", acks=acks)
    assert written(answer) == (NOT_ENOUGH_REPLICAS, None)
    assert isinstance(answer, Message)
    assert "do not copy yet" in answer.responses[0].partition_responses[0].error_message
    assert desk.replica("first").log.end_offset == 0


def test_who_wants_no_answers_is_told_so_by_closing(desk: Desk) -> None:
    assert write(desk, "first", acks=0) == CLOSED
    assert write(desk, "there", acks=0) == CLOSED


def test_what_nobody_has_written_is_read_as_nothing(desk: Desk) -> None:
    answer = read(desk, "first")
    assert found(answer) == (0, None)
    assert isinstance(answer, Message)
    assert answer.responses[0].partitions[0].high_watermark == 0


# ── When the leader changes ───────────────────────────────────────────────────────────────────


def test_who_knows_another_epoch_hears_it_first(desk: Desk) -> None:
    now = desk.replica("here").leader_epoch
    desk.replica("here").leader_epoch = now + 1  # type: ignore[assignment]
    assert found(read(desk, "here", epoch=now))[0] == FENCED
    assert found(read(desk, "here", epoch=now + 2))[0] == UNKNOWN_EPOCH
    # Also where this node does not lead.
    assert found(read(desk, "second", epoch=7))[0] == UNKNOWN_EPOCH


def test_who_waits_for_bytes_hears_that_the_leader_has_moved(desk: Desk) -> None:
    async def story() -> Message | str:
        scene = Scene(desk)
        try:
            fields = question(desk, "first", wait_ms=60_000)
            await scene.send(apis.FETCH, 17, fields)
            await settled()
            assert len(scene.dispatch.fetch.waiting) == 1
            cluster = desk.cluster
            cluster.alter(1, cluster.change([1, 2], topic="first"))
            cluster.shut_down(1)
            await desk.tell_soon()
            return await scene.read(apis.FETCH, 17)
        finally:
            scene.connection.close("the story is over")
            scene.client.close()

    answer = desk.run(story())
    assert found(answer) == (NOT_LEADER, (2, 1))
    assert endpoints(answer) == [(2, "host-2", 9092)]


# ── The others ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("topic", "code"), [("here", 0), ("there", 6), ("second", 6), ("x", 3)])
def test_every_other_request_finds_the_leader_in_the_same_way(
    desk: Desk, topic: str, code: int
) -> None:
    assert listed(desk, LATEST, topic=topic)[0] == code
    wanted = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    ended = desk.ask(
        apis.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    assert ended["topics"][0]["partitions"][0]["error_code"] == code
    doomed = {"partition_index": 0, "offset": -1}
    deleted = desk.ask(
        apis.DELETE_RECORDS, 2, timeout=100, topics=[{"name": topic, "partitions": [doomed]}]
    )
    assert deleted["topics"][0]["partitions"][0]["error_code"] == code
    asked = [{"name": topic, "partition_indexes": [0]}]
    described = desk.ask(apis.DESCRIBE_PRODUCERS, 0, topics=asked)
    assert described["topics"][0]["partitions"][0]["error_code"] == code
