"""The HTTP listener: a few pages for operators, and no more of HTTP than they need.

GET and HEAD, HTTP/1.0 and 1.1, no bodies, no TLS, no compression. It stands on loopback unless
somebody opens it, and whoever reaches it can read what the pages tell and do nothing.

Against strangers:

W1  a request has 8 KiB and 5 s to arrive, an answer 10 s to be made and 10 s to be taken
W2  at most 32 connections are served, as many again are told so with a 503, and more are dropped
W3  what is not a plain request is answered with what is wrong with it, and the connection ends:
    what follows it is never taken for a request

Not here: the pages (`status.py`, `exposition.py`).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from ottla.node.clock import Clock
from ottla.node.logs import logger
from ottla.proto.errors import ConfigError, InvariantError, RemoteProtocolError
from ottla.proto.options.endpoints import Address

log = logger("http")

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_HEAD_END: Final = b"\r\n\r\n"
_HEADERS_MAX: Final = 64
_QUERY_FIELDS_MAX: Final = 16
_LINGER_S: Final = 1.0
_LINGER_READS_MAX: Final = 16
_REQUEST_LINE: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP/(\d\.\d)"
)
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What strangers may do (W1, W2)."""

    head_bytes_max: int = 8 * 1024
    connections_max: int = 32
    read_s: float = 5.0
    answer_s: float = 10.0
    write_s: float = 10.0


class Answer(NamedTuple):
    """What a page says."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT


# A page is given the fields of the query: `/status?topic=orders` has one.
Route = Callable[[Mapping[str, str]], Awaitable[Answer]]


class HttpError(RemoteProtocolError):
    """A request that is answered with its fault."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status: Final = status


class Asked(NamedTuple):
    """A request that can be answered, and whether another may follow it."""

    path: str
    query: dict[str, str]
    wants_body: bool
    keeps_alive: bool


# ── What was asked ────────────────────────────────────────────────────────────────────────────


def read_head(head: bytes) -> Asked:
    """Return what a request asks for, or raise `HttpError`. The empty line at the end is there."""
    line, *rest = head.removesuffix(_HEAD_END).split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise HttpError(HTTPStatus.BAD_REQUEST, "the first line is not METHOD /path HTTP/1.1")
    method, target, version = found.groups()
    if version not in (b"1.0", b"1.1"):
        raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and 1.1 are spoken")
    if method not in (b"GET", b"HEAD"):
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered")
    if not target.startswith(b"/"):
        raise HttpError(HTTPStatus.BAD_REQUEST, "the path does not begin with /")
    headers = _headers(rest)
    if version == b"1.1" and len(headers.get(b"host", ())) != 1:
        raise HttpError(HTTPStatus.BAD_REQUEST, "there is not exactly one Host")
    if b"transfer-encoding" in headers or headers.get(b"content-length", [b"0"]) != [b"0"]:
        raise HttpError(HTTPStatus.BAD_REQUEST, "a GET has no body here")
    path, _, query = target.decode("ascii").partition("?")
    connection = b",".join(headers.get(b"connection", ())).lower()
    return Asked(
        path,
        _query(query),
        wants_body=method == b"GET",
        keeps_alive=version == b"1.1" and b"close" not in connection,
    )


def _headers(lines: list[bytes]) -> dict[bytes, list[bytes]]:
    if len(lines) > _HEADERS_MAX:
        raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
    headers: dict[bytes, list[bytes]] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise HttpError(HTTPStatus.BAD_REQUEST, "a header is not `name: value`")
        headers.setdefault(found[1].lower(), []).append(found[2].strip(b" \t"))
    return headers


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
    except ValueError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "there are too many fields in the query") from None
    return dict(pairs)


# ── The listener ──────────────────────────────────────────────────────────────────────────────


class HttpListener:
    """Serves pages by path. `start`, then `stop`."""

    def __init__(
        self,
        address: Address,
        routes: Mapping[str, Route],
        clock: Clock,
        limits: HttpLimits | None = None,
    ) -> None:
        self._address: Final = address
        self._routes: Final = routes
        self._clock: Final = clock
        self._limits: Final = limits or HttpLimits()
        self._server: asyncio.Server | None = None
        self._serving: Final[set[asyncio.Task[None]]] = set()
        self._refusing: Final[set[asyncio.Task[None]]] = set()

    async def start(self) -> Address:
        """Listen, and return where; raise `ConfigError` if the address cannot be had."""
        wanted = self._address
        # With any free port there is one port, so there can be one family only.
        family = socket.AF_INET if wanted.port == 0 else socket.AF_UNSPEC
        try:
            self._server = await asyncio.start_server(
                self._on_connected,
                wanted.host or None,
                wanted.port,
                family=family,
                # One byte is read before the rest, and the end of the head is not counted.
                limit=self._limits.head_bytes_max - 1 - len(_HEAD_END),
                backlog=2 * self._limits.connections_max,
            )
        except OSError as error:
            # asyncio puts words of its own in place of the system's.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {wanted}: {why}. "
                "Is another node running? Choose another: listeners=HTTP://127.0.0.1:19100"
            ) from None
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(wanted.host or host, port)

    async def stop(self) -> None:
        """Stop listening and end what is being served."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [*self._serving, *self._refusing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # `drain` is to wait until everything has gone to the kernel.
        writer.transport.set_write_buffer_limits(high=0)
        if len(self._serving) < self._limits.connections_max:
            self._begin(self._serving, self._serve(reader, writer))
        elif len(self._refusing) < self._limits.connections_max:
            self._begin(self._refusing, self._refuse(reader, writer))
        else:
            writer.transport.abort()

    def _begin(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(_report_bug)

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            told = "too many connections; try again"
            await self._send(writer, _fault(HTTPStatus.SERVICE_UNAVAILABLE, told), None)
            await _part(reader, writer)
        finally:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
            await _part(reader, writer)
        finally:
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another may follow."""
        asked: Asked | None = None
        try:
            asked = await self._receive(reader)
            if asked is None:
                return False
            answer = await self._answer(asked)
        except HttpError as error:
            answer = _fault(error.status, str(error))
        return await self._send(writer, answer, asked)

    async def _receive(self, reader: asyncio.StreamReader) -> Asked | None:
        """Return the next request; None if there will be none."""
        first = b""
        try:
            async with asyncio.timeout(self._limits.read_s):
                first = await reader.read(1)
                # The peer has nothing more to ask.
                if not first:
                    return None
                if not first.isalpha():
                    told = "this is not HTTP; is it a client of Kafka's protocol, or TLS?"
                    raise HttpError(HTTPStatus.BAD_REQUEST, told)
                rest = await reader.readuntil(_HEAD_END)
        except TimeoutError:
            # Who never said a word needs no answer.
            if not first:
                return None
            raise HttpError(HTTPStatus.REQUEST_TIMEOUT, "the request took too long") from None
        except asyncio.LimitOverrunError:
            told = f"a request has at most {self._limits.head_bytes_max} bytes"
            raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, told) from None
        except asyncio.IncompleteReadError:
            raise HttpError(HTTPStatus.BAD_REQUEST, "the request ends in the middle") from None
        except OSError:
            return None
        return read_head(first + rest)

    async def _answer(self, asked: Asked) -> Answer:
        route = self._routes.get(asked.path)
        if route is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "there is no such page; / lists those there are")
        try:
            async with asyncio.timeout(self._limits.answer_s):
                return await route(asked.query)
        except TimeoutError:
            told = "the answer took too long"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, told) from None
        except InvariantError:
            raise
        except Exception:
            log.exception("page_failed", path=asked.path)
            told = "this page failed; the node's log says why"
            return _fault(HTTPStatus.INTERNAL_SERVER_ERROR, told)

    async def _send(
        self, writer: asyncio.StreamWriter, answer: Answer, asked: Asked | None
    ) -> bool:
        keeps_alive = asked is not None and asked.keeps_alive
        head = _head(answer, self._clock.now_ms(), keeps_alive=keeps_alive)
        # Whether a request that cannot be read wanted a body is not known; it gets one.
        body = answer.body if asked is None or asked.wants_body else b""
        try:
            async with asyncio.timeout(self._limits.write_s):
                writer.write(head + body)
                await writer.drain()
        except (OSError, TimeoutError):
            writer.transport.abort()
            return False
        return keeps_alive


def _report_bug(task: asyncio.Task[None]) -> None:
    """Hand a bug to whoever the loop tells bugs to; the node does not go on with one."""
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": "a bug in the HTTP listener", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)


async def _part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """End a connection so that the peer can read the answer.

    Closing a socket that has unread bytes resets the connection, and the answer may be lost with
    it. So the end is announced, and what still comes is thrown away for a moment.
    """
    if writer.transport.is_closing():
        return
    try:
        writer.write_eof()
        async with asyncio.timeout(_LINGER_S):
            for _ in range(_LINGER_READS_MAX):
                if not await reader.read(64 * 1024):
                    break
    except (OSError, RuntimeError, TimeoutError):
        # It has gone, or does not want to.
        pass


def _fault(status: HTTPStatus, sentence: str) -> Answer:
    return Answer(status, f"{status.value} {status.phrase}: {sentence}\n".encode())


def _head(answer: Answer, now_ms: int, *, keeps_alive: bool) -> bytes:
    date = datetime.fromtimestamp(now_ms // 1000, UTC)
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Date: {date:%a, %d %b %Y %H:%M:%S} GMT",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    if answer.status is HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append("Retry-After: 1")
    return "\r\n".join(lines).encode("ascii") + _HEAD_END
