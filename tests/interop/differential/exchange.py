"""One connection over which anything can be sent, and the answer read back.

A closed connection is an answer, and so is silence.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, Self

from ottla.proto.kafka.apis import API_VERSIONS, ApiRow
from tests.interop.differential.case import CLOSED, NO_ANSWER, Answer, Send
from tests.interop.differential.messages import read_response, write_request

ANSWER_DEADLINE_S: Final = 30.0
# For a node that says nothing, not even to what is asked next.
SILENCE_S: Final = 3.0
_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")
CORRELATION_ID: Final = 20_264
PROBE_ID: Final = 20_265
_PROBE: Final = Send(API_VERSIONS, 0, {})
# The answer to a version of ApiVersions that nobody knows comes in version 0.
UNKNOWN_VERSION: Final = 35


class Exchange:
    """A connection to one node."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=ANSWER_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, send: Send) -> Answer:
        """Send a request and return what came back."""
        self._socket.settimeout(SILENCE_S if send.may_be_silent else ANSWER_DEADLINE_S)
        try:
            self._socket.sendall(frame_of(send))
            answer = self._read_frame() if not send.may_be_silent else self._read_before_probe()
        except (EOFError, ConnectionError):
            return CLOSED
        except TimeoutError:
            return NO_ANSWER
        return NO_ANSWER if answer is None else _decode(send, answer)

    def _read_before_probe(self) -> bytes | None:
        """Ask something harmless behind it: answers keep their order, so that answer ends it."""
        self._socket.sendall(frame_of(_PROBE, PROBE_ID))
        answer = self._read_frame()
        if _SIZE.unpack_from(answer)[0] == PROBE_ID:
            return None
        self._read_frame()
        return answer

    def _read_frame(self) -> bytes:
        return self._read(_SIZE.unpack(self._read(_SIZE.size))[0])

    def _read(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            chunk = self._socket.recv(size - len(read))
            if not chunk:
                raise EOFError
            read += chunk
        return bytes(read)


def frame_of(send: Send, correlation_id: int = CORRELATION_ID) -> bytes:
    """Return the bytes of a request, with its length in front."""
    if send.frame is not None:
        return send.frame
    body = send.body
    if body is None:
        body = write_request(send.row, send.version, send.fields or {})
    client = send.client_id
    told = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    head = _HEAD.pack(send.row.key, send.version, correlation_id) + told
    if is_flexible(send.row, send.version):
        head += send.tags
    whole = head + body + send.tail
    return _SIZE.pack(len(whole)) + whole


def is_flexible(row: ApiRow, version: int) -> bool:
    return row.flexible_from is not None and version >= row.flexible_from


def _decode(send: Send, answer: bytes) -> Answer:
    correlation_id = _SIZE.unpack_from(answer)[0]
    if correlation_id != CORRELATION_ID:
        return f"an answer to another request: {correlation_id}"
    row, version, at = send.row, send.version, _SIZE.size
    if row is API_VERSIONS:
        (code,) = struct.unpack_from(">h", answer, at)
        version = 0 if code == UNKNOWN_VERSION else version
    elif is_flexible(row, version):
        # The header's tagged fields, of which there are none.
        at += 1
    return read_response(row, version, answer[at:])
