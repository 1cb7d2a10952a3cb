"""One connection: order, bounds, deadlines, and what is known when no answer comes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.clients.connection import Connection
from ottla.clients.errors import (
    AnswerTimeoutError,
    BrokenAnswerError,
    ClosedByPeerError,
    NoCommonVersionError,
    NotSentError,
    OutcomeUnknownError,
    UnreachableError,
)
from ottla.proto.errors import LocalProtocolError, RemoteProtocolError, RequestError
from ottla.proto.kafka.apis import (
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.encode import encode_response
from ottla.proto.kafka.framing import RequestHead, read_request_head, response_head

DEADLINE_S = 10.0
ASK = {"topics": [], "include_topic_authorized_operations": False}
PRODUCE_NOTHING = {"acks": 0, "timeout": 1000, "topic_data": []}
PRODUCE_ALL = {**PRODUCE_NOTHING, "acks": -1}
RANGES = {METADATA: (0, 13), API_VERSIONS: (0, 4), PRODUCE: (0, 13), DESCRIBE_CLUSTER: (7, 9)}


@dataclass
class FakeBroker:
    """Answers ApiVersions as real brokers do; what follows is up to the test."""

    answer: Callable[[FakeBroker, RequestHead], Awaitable[None]]
    ranges: dict[ApiRow, tuple[int, int]] = field(default_factory=lambda: dict(RANGES))
    # Versions of ApiVersions that it does not know are answered with error 35 in version 0.
    newest_api_versions: int = 4
    tells_ranges_with_error: bool = True
    heads: list[RequestHead] = field(default_factory=list)
    port: int = 0
    writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4))
                head = read_request_head(await reader.readexactly(size))
                self.heads.append(head)
                if head.api_key == API_VERSIONS.key:
                    self.send(head, API_VERSIONS, self._versions(head))
                else:
                    await self.answer(self, head)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _versions(self, head: RequestHead) -> dict[str, Any]:
        is_known = head.api_version <= self.newest_api_versions
        shown = self.ranges if is_known or self.tells_ranges_with_error else {}
        return {
            "error_code": 0 if is_known else 35,
            "throttle_time": 0,
            "api_keys": [
                {"api_key": row.key, "min_version": low, "max_version": high}
                for row, (low, high) in shown.items()
            ],
        }

    def send(self, head: RequestHead, row: ApiRow, fields: dict[str, Any]) -> None:
        version = head.api_version
        if fields.get("error_code") == 35:
            version = 0
        body = encode_response(row, version, fields)
        self.send_frame(response_head(row, version, head.correlation_id) + body)

    def send_metadata(self, head: RequestHead, cluster_id: str = "c") -> None:
        fields = {
            "throttle_time": 0,
            "brokers": [],
            "topics": [],
            "cluster_id": cluster_id,
            "error_code": 0,
        }
        self.send(head, METADATA, fields)

    def send_frame(self, frame: bytes) -> None:
        self.send_bytes(len(frame).to_bytes(4) + frame)

    def send_bytes(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    def hang_up(self) -> None:
        assert self.writer is not None
        self.writer.close()


async def _with_metadata(broker: FakeBroker, head: RequestHead) -> None:
    broker.send_metadata(head, cluster_id=str(head.correlation_id))


async def _never(_: FakeBroker, __: RequestHead) -> None:
    pass


async def _by_hanging_up(broker: FakeBroker, _: RequestHead) -> None:
    broker.hang_up()


@asynccontextmanager
async def _opened(broker: FakeBroker, **options: Any) -> AsyncIterator[Connection]:
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server:
        broker.port = server.sockets[0].getsockname()[1]
        connection = await Connection.open("127.0.0.1", broker.port, **options)
        try:
            yield connection
        finally:
            await connection.close()


def _run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work

    asyncio.run(bounded(), debug=True)


def test_the_highest_version_that_both_speak_is_taken() -> None:
    async def story() -> None:
        broker = FakeBroker(_with_metadata, ranges={METADATA: (3, 7), API_VERSIONS: (0, 4)})
        async with _opened(broker) as connection:
            assert connection.version_of(METADATA) == 7
            answer = await connection.call(METADATA, ASK)
            assert (broker.heads[-1].api_version, answer.cluster_id) == (7, "2")

    _run(story())


@pytest.mark.parametrize(("tells", "asked_again_in"), [(True, 2), (False, 0)])
def test_an_old_broker_is_asked_again_in_a_version_that_it_knows(
    tells: bool, asked_again_in: int
) -> None:
    async def story() -> None:
        broker = FakeBroker(_with_metadata, newest_api_versions=2, tells_ranges_with_error=tells)
        broker.ranges[API_VERSIONS] = (0, 2)
        async with _opened(broker) as connection:
            assert [head.api_version for head in broker.heads] == [4, asked_again_in]
            assert connection.versions[METADATA.key] == (0, 13)

    _run(story())


def test_a_broker_that_refuses_its_own_version_is_not_asked_for_ever() -> None:
    async def story() -> None:
        broker = FakeBroker(_with_metadata, newest_api_versions=-1)
        with pytest.raises(RequestError, match="UNSUPPORTED_VERSION"):
            async with _opened(broker):
                pass

    _run(story())


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (DESCRIBE_PRODUCERS, "does not serve DescribeProducers (API key 61)"),
        (DESCRIBE_CLUSTER, "serves DescribeCluster in versions 7 to 9, and we speak 0 to 2"),
    ],
)
def test_an_api_without_a_common_version_is_not_sent(row: ApiRow, told: str) -> None:
    async def story() -> None:
        broker = FakeBroker(_with_metadata)
        async with _opened(broker) as connection:
            with pytest.raises(NoCommonVersionError) as caught:
                await connection.call(row, {})
            assert told in str(caught.value)
            assert isinstance(caught.value, NotSentError)
            assert len(broker.heads) == 1

    _run(story())


def test_many_callers_get_each_their_own_answer() -> None:
    async def story() -> None:
        async with _opened(FakeBroker(_with_metadata), outstanding_max=7) as connection:
            calls = (connection.call(METADATA, ASK) for _ in range(200))
            answers = await asyncio.gather(*calls)
            assert [int(one.cluster_id) for one in answers] == list(range(2, 202))
            assert connection.outstanding == 0

    _run(story())


def test_no_more_requests_wait_for_answers_than_allowed() -> None:
    held = list[RequestHead]()

    async def in_threes(broker: FakeBroker, head: RequestHead) -> None:
        held.append(head)
        if len(held) == 3:
            for one in held:
                broker.send_metadata(one)
            held.clear()

    async def story() -> None:
        async with _opened(FakeBroker(in_threes), outstanding_max=3) as connection:
            calls = [asyncio.create_task(connection.call(METADATA, ASK)) for _ in range(9)]
            await asyncio.sleep(0)
            assert connection.outstanding == 3
            await asyncio.gather(*calls)

    _run(story())


def test_who_gets_no_place_in_time_knows_that_nothing_was_sent() -> None:
    async def story() -> None:
        broker = FakeBroker(_never)
        async with _opened(broker, outstanding_max=1) as connection:
            first = asyncio.create_task(connection.call(METADATA, ASK))
            await asyncio.sleep(0)
            with pytest.raises(NotSentError, match="1 requests before it were not answered"):
                await connection.call(METADATA, ASK, timeout_s=0.05)
            assert not connection.is_closed
            first.cancel()

    _run(story())


def test_a_request_is_unknown_after_the_broker_hung_up_and_the_next_is_not_sent() -> None:
    async def story() -> None:
        async with _opened(FakeBroker(_by_hanging_up)) as connection:
            with pytest.raises(
                ClosedByPeerError, match="it may or may not have happened"
            ) as caught:
                await connection.call(PRODUCE, PRODUCE_ALL)
            assert isinstance(caught.value, OutcomeUnknownError)
            assert connection.is_closed
            with pytest.raises(NotSentError, match="closed the connection"):
                await connection.call(METADATA, ASK)
            with pytest.raises(NotSentError):
                await connection.send(PRODUCE, PRODUCE_NOTHING)

    _run(story())


def test_nobody_has_to_wonder_whether_a_read_happened() -> None:
    async def story() -> None:
        async with _opened(FakeBroker(_by_hanging_up)) as connection:
            with pytest.raises(ClosedByPeerError) as caught:
                await connection.call(METADATA, ASK)
            told = f"Metadata was sent, and {connection} closed the connection."
            assert str(caught.value) == told
        async with _opened(FakeBroker(_never)) as connection:
            with pytest.raises(
                AnswerTimeoutError, match=r"did not answer Metadata within 0.05 s\.$"
            ):
                await connection.call(METADATA, ASK, timeout_s=0.05)

    _run(story())


def test_half_an_answer_is_no_answer() -> None:
    async def by_half(broker: FakeBroker, head: RequestHead) -> None:
        broker.send_bytes((100).to_bytes(4) + head.correlation_id.to_bytes(4))
        broker.hang_up()

    async def story() -> None:
        async with _opened(FakeBroker(by_half)) as connection:
            with pytest.raises(ClosedByPeerError, match="in the middle of an answer"):
                await connection.call(METADATA, ASK)

    _run(story())


def test_a_late_answer_ends_the_connection_for_all_who_wait() -> None:
    async def story() -> None:
        async with _opened(FakeBroker(_never)) as connection:
            other = asyncio.create_task(connection.call(PRODUCE, PRODUCE_ALL))
            await asyncio.sleep(0)
            with pytest.raises(AnswerTimeoutError, match="did not answer Metadata within"):
                await connection.call(METADATA, ASK, timeout_s=0.05)
            with pytest.raises(OutcomeUnknownError, match="it may or may not have happened"):
                await other
            with pytest.raises(NotSentError):
                await connection.call(METADATA, ASK)

    _run(story())


def test_the_answer_to_a_cancelled_caller_is_dropped() -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def later(broker: FakeBroker, head: RequestHead) -> None:
            await go_on.wait()
            broker.send_metadata(head, cluster_id=str(head.correlation_id))

        async with _opened(FakeBroker(later)) as connection:
            first = asyncio.create_task(connection.call(METADATA, ASK))
            second = asyncio.create_task(connection.call(METADATA, ASK))
            await asyncio.sleep(0)
            first.cancel()
            go_on.set()
            assert (await second).cluster_id == "3"
            with pytest.raises(asyncio.CancelledError):
                await first
            assert connection.outstanding == 0

    _run(story())


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"\x7f\xff\xff\xff", "announced an answer of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "announced an answer of -1 bytes"),
        (b"\x06\x40\x00\x01", "announced an answer of 104857601 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"\x00\x00\x00\x02\x00\x00", "ends early|too short|response header"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x63\x00", "the answer to request 99 where that to 2"),
    ],
)
def test_what_is_no_answer_ends_the_connection(sent: bytes, told: str) -> None:
    async def with_nonsense(broker: FakeBroker, _: RequestHead) -> None:
        broker.send_bytes(sent)

    async def story() -> None:
        async with _opened(FakeBroker(with_nonsense)) as connection:
            calls = [asyncio.create_task(connection.call(METADATA, ASK)) for _ in range(3)]
            for call in calls:
                with pytest.raises(BrokenAnswerError, match=told) as caught:
                    await call
                assert isinstance(caught.value, RemoteProtocolError)
            with pytest.raises(NotSentError):
                await connection.call(METADATA, ASK)

    _run(story())


def test_a_peer_that_is_not_kafka_is_found_out_while_opening() -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def story() -> None:
        server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BrokenAnswerError) as caught:
                await Connection.open("127.0.0.1", port)
            assert str(caught.value) == (
                f"127.0.0.1:{port} speaks HTTP, not Kafka's protocol; a node serves Kafka clients "
                "on another port, 9092 by default."
            )

    _run(story())


def test_an_answer_to_nothing_ends_the_connection() -> None:
    async def twice(broker: FakeBroker, head: RequestHead) -> None:
        broker.send_metadata(head)
        broker.send_metadata(head)

    async def story() -> None:
        async with _opened(FakeBroker(twice)) as connection:
            await connection.call(METADATA, ASK)
            while not connection.is_closed:  # noqa: ASYNC110 (the story has a deadline)
                await asyncio.sleep(0)
            with pytest.raises(NotSentError, match="an answer to nothing that was asked"):
                await connection.call(METADATA, ASK)

    _run(story())


def test_an_answer_that_cannot_be_read_harms_no_other() -> None:
    async def story() -> None:
        async def first_broken(broker: FakeBroker, head: RequestHead) -> None:
            if head.correlation_id == 2:
                broker.send_frame(response_head(METADATA, 13, 2) + b"\xff" * 9)
            else:
                broker.send_metadata(head)

        async with _opened(FakeBroker(first_broken)) as connection:
            with pytest.raises(BrokenAnswerError, match="Metadata version 13 with bytes that can"):
                await connection.call(METADATA, ASK)
            assert (await connection.call(METADATA, ASK)).cluster_id == "c"

    _run(story())


def test_produce_without_acks_is_sent_and_not_waited_for() -> None:
    async def unless_produce(broker: FakeBroker, head: RequestHead) -> None:
        if head.api_key != PRODUCE.key:
            broker.send_metadata(head)

    async def story() -> None:
        broker = FakeBroker(unless_produce)
        async with _opened(broker) as connection:
            await connection.send(PRODUCE, PRODUCE_NOTHING)
            await connection.call(METADATA, ASK)
            assert [head.api_key for head in broker.heads][1:] == [PRODUCE.key, METADATA.key]
            with pytest.raises(LocalProtocolError, match="use `send`"):
                await connection.call(PRODUCE, PRODUCE_NOTHING)
            with pytest.raises(LocalProtocolError, match="Metadata is answered: use `call`"):
                await connection.send(METADATA, ASK)

    _run(story())


def test_raw_bytes_go_out_and_raw_frames_come_back() -> None:
    async def story() -> None:
        broker = FakeBroker(_with_metadata)
        async with _opened(broker, negotiate=False) as connection:
            await connection.send_raw(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
            frame = await connection.read_frame()
            assert frame[:6] == bytes.fromhex("00000007 0000")
            with pytest.raises(AnswerTimeoutError):
                await connection.read_frame(timeout_s=0.05)
            assert (await connection.call(METADATA, ASK, version=0)).brokers == []
            await connection.send_raw(b"\0\0\0\1")
            broker.hang_up()
            with pytest.raises(ClosedByPeerError):
                await connection.read_frame()

    _run(story())


def test_closing_tells_whoever_waits_and_may_be_done_twice() -> None:
    async def story() -> None:
        async with _opened(FakeBroker(_never)) as connection:
            waiting = asyncio.create_task(connection.call(METADATA, ASK))
            await asyncio.sleep(0)
            await connection.close()
            with pytest.raises(OutcomeUnknownError, match="closed on this side"):
                await waiting
            await connection.close()
            with pytest.raises(NotSentError, match="closed on this side"):
                await connection.call(METADATA, ASK)

    _run(story())


def test_nobody_there_is_a_sentence() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]

    async def story() -> None:
        told = f"^localhost:{port} cannot be reached: connection refused.$"
        with pytest.raises(UnreachableError, match=told):
            await Connection.open("localhost", port)
        with pytest.raises(UnreachableError, match="the name is not known"):
            await Connection.open("no-such-host.invalid", 9092)

    _run(story())
