"""Frames, headers, and bodies that are cut or too long, for every API and version."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ottla.proto.kafka.apis import API_TABLE, API_VERSIONS, METADATA, ApiRow
from tests.interop.differential.case import Ask, Case, Send, Talk, many, one, versions_of
from tests.interop.differential.cases.examples import EXAMPLES
from tests.interop.differential.exchange import CORRELATION_ID
from tests.interop.differential.messages import write_request

# The first flexible version of Metadata, and the last that is not.
FLEXIBLE: Final = 12
PLAIN: Final = 8
_HEAD: Final = struct.Struct(">hhi")


def _frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def _whole(name: str, frame: bytes) -> Case:
    """A frame that is no request at all; an answer would be decoded as one to Metadata."""

    def talk(_: Ask) -> Talk:
        yield Send(METADATA, 0, frame=frame)

    return Case(f"Framing: {name}", METADATA, talk, (0,))


def _header(name: str, version: int = FLEXIBLE, **send: Any) -> Case:
    case = one("", METADATA, lambda _: EXAMPLES[METADATA], versions=(version,), **send)
    return Case(f"Header: {name}", METADATA, case.talk, case.versions)


def _other_key(key: int, version: int = 0) -> Case:
    head = _HEAD.pack(key, version, CORRELATION_ID) + b"\x00\x01x"
    return _whole(f"API key {key}", _frame(head))


def _unknown_version(row: ApiRow) -> Case:
    """Versions around those that there are. The body is one of the highest version."""

    def talk(ask: Ask) -> Talk:
        body = write_request(row, row.high, EXAMPLES[row])
        yield Send(row, ask.version, body=body)

    around = {-32768, -1, row.low - 1, row.high + 1, 32767} - set(versions_of(row))
    if row is not API_VERSIONS:
        # Unstable in Kafka, which reads it only if told to.
        around.discard(6 if row.name == "InitProducerId" else -2)
    return Case(f"Header: {row.name} in an unknown version", row, talk, tuple(sorted(around)))


def _cut(row: ApiRow) -> Case:
    """The body without its last byte: the length in front is right, so nothing more will come."""

    def talk(ask: Ask) -> Talk:
        body = write_request(row, ask.version, EXAMPLES[row])
        yield Send(row, ask.version, body=body[:-1])

    return many("a body without its last byte", row, talk)


def _no_body(row: ApiRow) -> Case:
    def talk(ask: Ask) -> Talk:
        yield Send(row, ask.version, body=b"")

    return many("no body", row, talk)


def _example(row: ApiRow) -> Case:
    return one("an example", row, lambda _: EXAMPLES[row])


def _tail(row: ApiRow) -> Case:
    return one("bytes after the body", row, lambda _: EXAMPLES[row], tail=b"more")


def _software(name: str, told: str, version_told: str = "1") -> Case:
    fields = {"client_software_name": told, "client_software_version": version_told}
    return one(name, API_VERSIONS, lambda _: fields, versions=(3, 4))


def _tags(*tags: tuple[int, bytes], count: int | None = None) -> bytes:
    told = _varint(len(tags) if count is None else count)
    return told + b"".join(_varint(tag) + _varint(len(data)) + data for tag, data in tags)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _two_requests(ask: Ask) -> Talk:
    """A refusal of ApiVersions leaves the connection as it was."""
    yield Send(API_VERSIONS, 99, body=b"")
    yield Send(API_VERSIONS, 0, fields={})
    yield Send(METADATA, ask.version, fields=EXAMPLES[METADATA])


_FRAMES: Final = (
    _whole("length 0", struct.pack(">i", 0)),
    _whole("length -1", struct.pack(">i", -1)),
    _whole("length -2147483648", struct.pack(">i", -(2**31))),
    _whole("length 2147483647", struct.pack(">i", 2**31 - 1)),
    _whole("length one more than socket.request.max.bytes", struct.pack(">i", 104_857_601)),
    _whole("a TLS ClientHello", bytes.fromhex("160301020001000001fc0303")),
    _whole("an HTTP request", b"GET / HTTP/1.1\r\n\r\n"),
    *(_whole(f"{size} bytes", _frame(bytes(size))) for size in (1, 2, 4, 7, 8, 9)),
    *(_other_key(key) for key in (-1, 4, 52, 62, 93, 999, 32767)),
)

_CLIENT_IDS: Final = (
    _header("client id null", client_id=None),
    _header("client id empty", client_id=b""),
    _header("client id of 32767 bytes", client_id=b"c" * 32_767),
    _header("client id that is not UTF-8", client_id=b"\xff\xfe"),
    _header("client id with a NUL", client_id=b"a\x00b"),
    _header("client id null, header v1", PLAIN, client_id=None),
    _header("client id that is not UTF-8, header v1", PLAIN, client_id=b"\xff\xfe"),
)

_HEADER_TAGS: Final = (
    _header("one unknown tag", tags=_tags((7, b"abc"))),
    _header("64 unknown tags", tags=_tags(*((i, b"") for i in range(64)))),
    _header("65 unknown tags", tags=_tags(*((i, b"") for i in range(65)))),
    _header("20000000 tags and no bytes for them", tags=_varint(20_000_000)),
    _header("a tag twice", tags=_tags((3, b"a"), (3, b"a"))),
    _header("tags out of order", tags=_tags((4, b"a"), (3, b"a"))),
    _header("a tag longer than the frame", tags=_tags(count=1) + b"\x00" + _varint(100_000)),
    _header("number of tags in six bytes", tags=b"\x80\x80\x80\x80\x80\x00"),
    _header("number of tags in two bytes where one does", tags=b"\x80\x00"),
    _header("a negative number of tags", tags=b"\xff\xff\xff\xff\x0f"),
    _header("tag of a negative size", tags=b"\x01\x00\xff\xff\xff\xff\x0f"),
)

_EVERY_API: Final[tuple[Callable[[ApiRow], Case], ...]] = (_unknown_version, _cut, _no_body, _tail)

HEADER_CASES: Final[tuple[Case, ...]] = (
    *_FRAMES,
    *_CLIENT_IDS,
    *_HEADER_TAGS,
    *(make(row) for make in _EVERY_API for row in API_TABLE),
    *(_example(row) for row in API_TABLE),
    _software("software name empty", ""),
    _software("software name that begins with a dash", "-x"),
    _software("software name that ends in a dot", "x."),
    _software("software name with a blank", "a b"),
    _software("software name of one letter", "a"),
    _software("software version empty", "a", ""),
    _software("software version with a slash", "a", "1/2"),
    many(
        "the connection lives on after an unknown version",
        API_VERSIONS,
        _two_requests,
        versions=(0,),
    ),
)
