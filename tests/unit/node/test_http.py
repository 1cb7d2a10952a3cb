"""The HTTP listener, as well-behaved and hostile peers see it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node import logs
from ottla.node.clock import Clock
from ottla.node.http import Answer, Asked, HttpError, HttpLimits, HttpListener, Route, read_head
from ottla.proto.errors import ConfigError, InvariantError
from ottla.proto.options.endpoints import Address

QUICK = HttpLimits(read_s=0.2, answer_s=0.2, write_s=0.5)
DEADLINE_S = 10
# More than sockets and streams take in on the way.
LARGE_BYTES = 50_000_000


class FakeClock(Clock):
    __slots__ = ()

    def now_ms(self) -> int:
        return 1_767_323_045_006


async def _hello(query: Mapping[str, str]) -> Answer:
    return Answer(HTTPStatus.OK, f"hello {query.get('name', 'you')}\n".encode())


async def _fails(_query: Mapping[str, str]) -> Answer:
    raise ValueError("no such thing")


async def _is_a_bug(_query: Mapping[str, str]) -> Answer:
    raise InvariantError("ends meet")


async def _never(_query: Mapping[str, str]) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError


async def _large(_query: Mapping[str, str]) -> Answer:
    return Answer(HTTPStatus.OK, b"x" * LARGE_BYTES)


ROUTES: dict[str, Route] = {
    "/hello": _hello,
    "/fails": _fails,
    "/bug": _is_a_bug,
    "/never": _never,
    "/large": _large,
}


@asynccontextmanager
async def _listening(limits: HttpLimits = QUICK) -> AsyncIterator[Address]:
    listener = HttpListener(Address("127.0.0.1", 0), ROUTES, FakeClock(), limits)
    address = await listener.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield address
    finally:
        await listener.stop()


def _run(scene: Callable[[Address], Awaitable[None]], limits: HttpLimits = QUICK) -> None:
    async def run() -> None:
        async with _listening(limits) as address:
            await scene(address)

    asyncio.run(run())


async def _said(address: Address, sent: bytes, *, ends: bool = False) -> bytes:
    """Send bytes and return all that comes back until the listener closes."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(sent)
    if ends:
        writer.write_eof()
    try:
        return await reader.read(-1)
    finally:
        writer.close()


async def _wait_until_served(address: Address) -> None:
    """Return when there is room again; the deadline of the scene limits it."""
    served = False
    while not served:
        with suppress(ConnectionError):
            said = await _said(address, _get("/hello", "Connection: close"))
            served = said.startswith(b"HTTP/1.1 200 ")


def _get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: x", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────


def test_a_page_is_served_with_its_headers() -> None:
    async def scene(address: Address) -> None:
        said = await _said(address, _get("/hello?name=Ada", "Connection: close"))
        assert said == (
            b"HTTP/1.1 200 OK\r\n"
            b"Date: Fri, 02 Jan 2026 03:04:05 GMT\r\n"
            b"Content-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: 10\r\n"
            b"Cache-Control: no-store\r\n"
            b"X-Content-Type-Options: nosniff\r\n"
            b"Connection: close\r\n\r\n"
            b"hello Ada\n"
        )

    _run(scene)


def test_head_has_the_headers_and_no_body() -> None:
    async def scene(address: Address) -> None:
        said = await _said(address, _get("/hello", "Connection: close", method="HEAD"))
        assert b"Content-Length: 10\r\n" in said
        assert said.endswith(b"\r\n\r\n")

    _run(scene)


def test_a_connection_serves_one_request_after_another() -> None:
    async def scene(address: Address) -> None:
        last = _get("/hello?name=b", "Connection: close")
        # All at once: the second is not lost while the first is answered.
        said = await _said(address, _get("/hello?name=a") + _get("/nothing") + last)
        assert [said.count(one) for one in (b"hello a\n", b"404 Not Found:", b"hello b\n")] == [
            1,
            1,
            1,
        ]

    _run(scene)


def test_http_1_0_is_answered_and_closed() -> None:
    async def scene(address: Address) -> None:
        said = await _said(address, b"GET /hello HTTP/1.0\r\n\r\n")
        assert _status(said) == 200
        assert b"Connection: close" in said

    _run(scene)


def test_an_idle_connection_is_closed_without_a_word() -> None:
    async def scene(address: Address) -> None:
        assert await _said(address, b"") == b""
        assert (await _said(address, _get("/hello"))).endswith(b"hello you\n")

    _run(scene)


# ── Hostile input ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (_get("/nothing", "Connection: close"), 404, "no such page"),
        (_get("/../etc/passwd", "Connection: close"), 404, "no such page"),
        (_get("/hello%00", "Connection: close"), 404, "no such page"),
        (_get("/hello", method="POST"), 405, "only GET and HEAD"),
        (_get("/hello", method="get"), 405, "only GET and HEAD"),
        (_get("/hello", "Content-Length: 5", method="PUT") + b"12345", 405, "only GET and HEAD"),
        (_get("/hello", version="2.0"), 505, "only HTTP/1.0 and 1.1"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "only HTTP/1.0 and 1.1"),
        (_get("hello"), 400, "begin with /"),
        (_get("http://localhost/hello"), 400, "begin with /"),
        (_get("/hel lo"), 400, "first line"),
        (_get("/h\u00e9llo"), 400, "first line"),
        (b"GET /hello\r\n\r\n", 400, "first line"),
        (b"\r\n\r\n", 400, "not HTTP"),
        # The beginning of TLS, and a frame of Kafka's protocol.
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "not HTTP"),
        (b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01\x00\x02ab\x00", 400, "not HTTP"),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400, "exactly one Host"),
        (_get("/hello", "Host: y"), 400, "exactly one Host"),
        (_get("/hello", "Content-Length: 5") + b"12345", 400, "no body"),
        (_get("/hello", "Content-Length: 0", "Content-Length: 5"), 400, "no body"),
        (_get("/hello", "Content-Length: -1"), 400, "no body"),
        (_get("/hello", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, "no body"),
        (_get("/hello", "no colon"), 400, "a header"),
        (_get("/hello", ": no name"), 400, "a header"),
        (_get("/hello", "X : y"), 400, "a header"),
        (_get("/hello", "X: a", " folded"), 400, "a header"),
        (_get("/hello", "X: a\nY: b"), 400, "a header"),
        (_get("/hello", "X: a\x00b"), 400, "a header"),
        (_get("/hello", *["X: y"] * 100), 431, "too many headers"),
        (_get("/hello", "X: " + "y" * 9_000), 431, "at most 8192 bytes"),
        (_get("/" + "x" * 9_000), 431, "at most 8192 bytes"),
        (b"x" * 1_000_000, 431, "at most 8192 bytes"),
        (_get("/hello?" + "&".join("abcdefghijklmnopqrstuvwxyz")), 400, "too many fields"),
        (b"GET /hello HTT", 408, "took too long"),
        (_get("/never"), 503, "the answer took too long"),
    ],
)
def test_a_request_that_is_wrong_is_told_why(sent: bytes, status: int, told: str) -> None:
    async def scene(address: Address) -> None:
        said = await _said(address, sent)
        assert _status(said) == status
        assert told.encode() in said
        # Whatever it was, the next one is served.
        assert _status(await _said(address, _get("/hello", "Connection: close"))) == 200

    _run(scene)


def test_after_a_wrong_request_nothing_on_the_connection_is_one() -> None:
    async def scene(address: Address) -> None:
        smuggled = _get("/hello", "Content-Length: 40") + _get("/hello")
        said = await _said(address, smuggled)
        assert said.count(b"HTTP/1.1 ") == 1
        assert b"hello" not in said

    _run(scene)


def test_a_request_that_ends_in_the_middle_is_told_so() -> None:
    async def scene(address: Address) -> None:
        said = await _said(address, b"GET /hello HTTP/1.1\r\nHo", ends=True)
        assert _status(said) == 400

    _run(scene)


def test_a_method_that_is_not_allowed_is_told_which_are() -> None:
    async def scene(address: Address) -> None:
        assert b"\r\nAllow: GET, HEAD\r\n" in await _said(address, _get("/hello", method="DELETE"))

    _run(scene)


def test_a_request_may_have_just_the_bytes_allowed() -> None:
    bare = len(_get("/hello", "Connection: close", "X: "))

    async def scene(address: Address) -> None:
        full = _get("/hello", "Connection: close", "X: " + "y" * (8192 - bare))
        assert len(full) == 8192
        assert _status(await _said(address, full)) == 200
        longer = _get("/hello", "Connection: close", "X: " + "y" * (8193 - bare))
        assert _status(await _said(address, longer)) == 431

    _run(scene)


def test_a_byte_at_a_time_does_not_hold_a_connection_for_longer() -> None:
    async def scene(address: Address) -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        answer = asyncio.create_task(reader.read(-1))
        sent = 0
        while not answer.done() and sent < 1_000:
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.02)
            sent += 1
        assert _status(await answer) == 408
        # 0.2 s at 50 bytes a second, and some for a slow machine.
        assert sent < 200
        writer.close()

    _run(scene)


def test_more_connections_than_allowed_are_told_so_and_leave_room_again() -> None:
    limits = HttpLimits(connections_max=2, read_s=5)

    async def scene(address: Address) -> None:
        held = [await asyncio.open_connection(address.host, address.port) for _ in range(2)]
        for reader, writer in held:
            writer.write(_get("/hello"))
            await reader.readuntil(b"hello you\n")
        refused = await _said(address, _get("/hello", "Connection: close"))
        assert _status(refused) == 503
        assert b"Retry-After: 1\r\n" in refused
        for reader, writer in held:
            writer.close()
            assert await reader.read() == b""
        await _wait_until_served(address)

    _run(scene, limits)


def test_a_flood_of_connections_is_dropped_and_survived() -> None:
    limits = HttpLimits(connections_max=2, read_s=0.3)

    async def scene(address: Address) -> None:
        flood = [await asyncio.open_connection(address.host, address.port) for _ in range(100)]

        async def ending(reader: asyncio.StreamReader) -> bytes:
            with suppress(ConnectionError):
                return await reader.read(-1)
            return b""

        said = await asyncio.gather(*(ending(reader) for reader, _ in flood))
        told = [_status(one) for one in said if one]
        assert told == [503] * len(told)
        assert len(told) <= 98
        for _, writer in flood:
            writer.close()
        await _wait_until_served(address)

    _run(scene, limits)


def test_who_does_not_take_the_answer_is_left() -> None:
    async def run() -> None:
        listener = HttpListener(Address("127.0.0.1", 0), ROUTES, FakeClock(), QUICK)
        address = await listener.start()
        # This stream takes twice its limit and then waits for its reader.
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
        writer.write(_get("/large"))
        got = len(await reader.readexactly(16))
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*listener._serving)
            with suppress(ConnectionError):
                while part := await reader.read(1 << 20):
                    got += len(part)
        assert got < LARGE_BYTES
        writer.close()
        await listener.stop()

    asyncio.run(run())


@given(st.binary(max_size=200))
def test_no_head_does_anything_but_be_read_or_refused(head: bytes) -> None:
    for tried in (head + b"\r\n\r\n", b"GET /" + head + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
        with suppress(HttpError):
            assert isinstance(read_head(tried), Asked)


# ── What goes wrong here ──────────────────────────────────────────────────────────────────────


def test_a_page_that_fails_is_told_in_the_log_and_not_to_strangers() -> None:
    before, stream = logs._current.sink, io.StringIO()
    logs._current.sink = logs.Sink(stream, FakeClock(), "text", "info")

    async def scene(address: Address) -> None:
        said = await _said(address, _get("/fails", "Connection: close"))
        assert _status(said) == 500
        assert b"no such thing" not in said

    try:
        _run(scene)
    finally:
        logs._current.sink = before
    assert 'http page_failed path=/fails error="ValueError: no such thing"' in stream.getvalue()


def test_a_bug_is_not_swallowed() -> None:
    told: list[BaseException] = []

    async def scene(address: Address) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: told.append(context["exception"])
        )
        assert await _said(address, _get("/bug")) == b""

    _run(scene)
    assert [type(error) for error in told] == [InvariantError]


def test_an_address_in_use_is_a_sentence() -> None:
    async def scene(address: Address) -> None:
        with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:"):
            await HttpListener(address, ROUTES, FakeClock()).start()

    _run(scene)


def test_stopping_ends_what_is_being_served() -> None:
    async def run() -> None:
        listener = HttpListener(Address("", 0), ROUTES, FakeClock())
        port = (await listener.start()).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_get("/never"))
        await writer.drain()
        async with asyncio.timeout(DEADLINE_S):
            await listener.stop()
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        await listener.stop()

    asyncio.run(run())
