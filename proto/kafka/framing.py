"""Headers: what stands in front of a body, both ways.

A frame is four bytes of length and then the payload: header, body. Functions that read take the
payload, without the length; the socket's owner has cut it. `request_frame` gives the whole frame.

    request header v1   api key int16, version int16, correlation id int32, client id string?
    request header v2   the same and tagged fields; the client id keeps its two-byte length
    response header v0  correlation id int32
    response header v1  the same and tagged fields

v2 and v1 go with flexible versions. One exception: the answer to ApiVersions always has header v0,
so that a client which does not know yet what the node speaks can read it.

Not here: sockets and limits of size (`node/`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.proto.errors import LocalProtocolError, RemoteProtocolError
from ottla.proto.kafka.apis import API_VERSIONS, SERVED_BY_KEY
from ottla.proto.kafka.primitives import (
    STRING_MAX,
    Buffer,
    ends_early,
    read_nullable_string,
    skip_tags,
)

if TYPE_CHECKING:
    from ottla.proto.kafka.apis import ApiRow

_HEAD: Final = struct.Struct(">hhi")
_REQUEST_START: Final = struct.Struct(">ihhih")
_INT32: Final = struct.Struct(">i")
_NO_CLIENT_ID: Final = -1


class UnsupportedApiError(RemoteProtocolError):
    """The peer asked for an API, or a version of one, that is not served: Kafka closes as well."""

    def __init__(
        self, api_key: int, api_version: int, client_id: str | None, correlation_id: int
    ) -> None:
        super().__init__(f"API {api_key} version {api_version} is not served")
        self.api_key: Final = api_key
        self.api_version: Final = api_version
        self.client_id: Final = client_id
        self.correlation_id: Final = correlation_id


class RequestHead(NamedTuple):
    """A request's header, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def read_request_head(payload: Buffer, served: Mapping[int, ApiRow] = SERVED_BY_KEY) -> RequestHead:
    """Return the header, or raise `UnsupportedApiError` for what is not in `served`.

    ApiVersions is let through in any version: one that we do not speak is answered, in version 0.
    Then `body_at` is the end, because we cannot know what the body looks like.
    """
    try:
        key, version, correlation_id = _HEAD.unpack_from(payload)
    except struct.error:
        ends_early("request header")
    client_id, at = read_nullable_string(payload, _HEAD.size, "request header, client id")
    row = served.get(key)
    if row is None or not row.speaks(version):
        if row is API_VERSIONS:
            return RequestHead(key, version, correlation_id, client_id, len(payload))
        raise UnsupportedApiError(key, version, client_id, correlation_id)
    if row.is_flexible(version):
        at = skip_tags(payload, at, "request header, tagged fields")
    return RequestHead(key, version, correlation_id, client_id, at)


def response_head(row: ApiRow, version: int, correlation_id: int) -> bytes:
    """Return the header of an answer. A version that is not spoken has header v0, too."""
    if _has_response_tags(row, version):
        return _INT32.pack(correlation_id) + b"\x00"
    return _INT32.pack(correlation_id)


def request_frame(
    row: ApiRow, version: int, correlation_id: int, client_id: str | None, body: bytes
) -> bytes:
    """Return a whole request, with its length in front."""
    client = b"" if client_id is None else client_id.encode()
    if len(client) > STRING_MAX:
        raise LocalProtocolError(f"a client id of {len(client)} bytes; {STRING_MAX} are allowed")
    size = _NO_CLIENT_ID if client_id is None else len(client)
    tags = b"\x00" if row.is_flexible(version) else b""
    length = _REQUEST_START.size - _INT32.size + len(client) + len(tags) + len(body)
    start = _REQUEST_START.pack(length, row.key, version, correlation_id, size)
    return start + client + tags + body


def read_response_head(row: ApiRow, version: int, payload: Buffer) -> tuple[int, int]:
    """Return the correlation id, and where the body begins."""
    try:
        (correlation_id,) = _INT32.unpack_from(payload)
    except struct.error:
        ends_early("response header")
    at = _INT32.size
    if _has_response_tags(row, version):
        at = skip_tags(payload, at, "response header, tagged fields")
    return correlation_id, at


def _has_response_tags(row: ApiRow, version: int) -> bool:
    return row is not API_VERSIONS and row.is_flexible(version)
