"""Requests made by hand and sent on a plain socket, so that the driver costs next to nothing.

Produce 7 and CreateTopics 2: old versions that both brokers take and that need no tags.
Not here: librdkafka (`drive.py`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from struct import Struct
from typing import Final

from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

_PRODUCE: Final = (0, 7)
_CREATE_TOPICS: Final = (19, 2)
_HEAD: Final = Struct(">ihhi")
_TIMEOUT_MS: Final = 30_000
# Behind the correlation id: one topic with its name, one partition with its index.
_PRODUCED_ERROR: Final = Struct(">h")


def _text(value: str) -> bytes:
    raw = value.encode()
    return Struct(">h").pack(len(raw)) + raw


def _frame(api: tuple[int, int], body: bytes) -> bytes:
    client = _text("bench")
    return _HEAD.pack(8 + len(client) + len(body), *api, 1) + client + body


def batch(record_size: int, record_count: int) -> bytes:
    now_ms = int(time.time() * 1000)
    value = bytes(record_size)
    return build_batch([Record(n, now_ms, None, value, ()) for n in range(record_count)])


def produce_frame(topic: str, index: int, records: bytes) -> bytes:
    """Return a whole Produce request with acks=1."""
    body = Struct(">hhii").pack(-1, 1, _TIMEOUT_MS, 1) + _text(topic)
    body += Struct(">iii").pack(1, index, len(records)) + records
    return _frame(_PRODUCE, body)


def create_topics_frame(names: Sequence[str], partition_count: int) -> bytes:
    body = Struct(">i").pack(len(names))
    for name in names:
        body += _text(name) + Struct(">ihii").pack(partition_count, 1, 0, 0)
    return _frame(_CREATE_TOPICS, body + Struct(">ib").pack(_TIMEOUT_MS, 0))


class Wire:
    """A connection that sends frames and counts answers."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """Return the next answer from its correlation id on."""
        size = self._reader.read(4)
        if len(size) < 4:
            raise SystemExit("The broker closed the connection.")
        return self._reader.read(int.from_bytes(size, "big"))

    def produced(self, topic_size: int) -> None:
        """Take an answer to a Produce request, and insist that it was written."""
        answer = self.answer()
        error = _PRODUCED_ERROR.unpack_from(answer, 4 + 4 + 2 + topic_size + 4 + 4)[0]
        if error:
            raise SystemExit(f"The broker refused a write with error {error}.")

    def create_topics(self, names: Sequence[str], partition_count: int) -> None:
        self.send(create_topics_frame(names, partition_count))
        answer = self.answer()
        at = 12
        for name in names:
            at += 2 + len(name)
            error, message_size = Struct(">hh").unpack_from(answer, at)
            at += 4 + max(0, message_size)
            if error:
                raise SystemExit(f"The broker did not make topic {name}: error {error}.")

    def stream(self, frames: Sequence[bytes], topic_size: int, count: int, depth: int) -> float:
        """Send `count` requests with `depth` of them unanswered; return the seconds it took."""
        start = time.perf_counter()
        for number in range(count):
            if number >= depth:
                self.produced(topic_size)
            self.send(frames[number % len(frames)])
        for _ in range(min(depth, count)):
            self.produced(topic_size)
        return time.perf_counter() - start


@contextmanager
def wire_to(address: tuple[str, int]) -> Iterator[Wire]:
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Wire(connection)
