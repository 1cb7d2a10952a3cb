"""The least that librdkafka takes for a broker: what the node is held against.

    python -m bench.limit_broker --dir DIR [--port 9092] [--partitions 4] [--fsync]

It keeps no promise. There is no index, no recovery and no bound on anything; whoever sends a wrong
byte may end it; a topic exists as soon as somebody names it, and nothing of it is left after a
restart. It is here because a figure of the node says little without the same figure of this.

What it does do is what no broker can leave out: read the frame, check the CRC-32C of each batch,
stamp the offsets, append the bytes to a file, answer. With `--fsync` it answers after fdatasync, in
a thread, one at a time, for all that was written meanwhile. Fetches are answered with sendfile.

One version of each API is served, and decoded by hand. Versions from 0 on are advertised, because
librdkafka looks for the version in which a feature came, and then uses the newest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, cast

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
SERVED: Final = {PRODUCE: 7, FETCH: 11, LIST_OFFSETS: 2, METADATA: 4, API_VERSIONS: 0}
_UNSUPPORTED_VERSION: Final = 35
_LATEST: Final = -1
_BUFFER_BYTES: Final = 256 << 10
# Behind a large frame there is room for the beginning of the next.
_SLACK_BYTES: Final = 64 << 10
_BATCH_OVERHEAD_BYTES: Final = 12

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_HEAD: Final = Struct(">hhi")
_CRC_FIELDS: Final = Struct(">IHi")
_FETCH_HEAD: Final = Struct(">iiiibiii")
_FETCH_PARTITION: Final = Struct(">iiqqi")
_FETCHED: Final = Struct(">ihqqqiii")
_PRODUCED: Final = Struct(">ihqqq")


@dataclass(slots=True)
class Partition:
    """One file, and where each batch begins in it."""

    fd: int
    end_offset: int = 0
    size: int = 0
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)

    def append(self, records: memoryview, *, stamp: bool = True) -> int:
        """Check, stamp in place unless that was done, and write the batches; return the offset."""
        first = self.end_offset
        at, size = 0, len(records)
        while at < size:
            end = at + _BATCH_OVERHEAD_BYTES + _I32.unpack_from(records, at + 8)[0]
            crc, _, last_delta = _CRC_FIELDS.unpack_from(records, at + 17)
            if crc32c(records[at + 21 : end]) != crc:
                raise ValueError("a batch arrived damaged")
            self.offsets.append(self.end_offset)
            self.positions.append(self.size + at)
            if stamp:
                _I64.pack_into(records, at, self.end_offset)
            elif _I64.unpack_from(records, at) != (self.end_offset,):
                raise ValueError("a batch that is not the next one")
            self.end_offset += last_delta + 1
            at = end
        os.writev(self.fd, [records])
        self.size += size
        return first

    def piece(self, offset: int, bytes_max: int) -> tuple[int, int]:
        """Return position and size of whole batches from the one with `offset` on."""
        if offset >= self.end_offset:
            return 0, 0
        number = bisect_right(self.offsets, offset) - 1
        start = self.positions[number]
        if start + bytes_max >= self.size:
            return start, self.size - start
        last = max(number + 1, bisect_right(self.positions, start + bytes_max) - 1)
        end = self.positions[last] if last < len(self.positions) else self.size
        return start, end - start


class Store:
    """All partitions, and the one fdatasync in flight."""

    def __init__(self, directory: str, partition_count: int, *, fsync: bool) -> None:
        self._directory = directory
        self.partition_count: Final = partition_count
        self.fsync: Final = fsync
        self.topics: dict[str, list[Partition]] = {}
        self._dirty: set[int] = set()
        self._waiting: list[Callable[[], None]] = []
        self._is_syncing = False

    def topic(self, name: str) -> list[Partition]:
        partitions = self.topics.get(name)
        if partitions is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            paths = [f"{self._directory}/{name}-{n}" for n in range(self.partition_count)]
            partitions = [Partition(os.open(path, flags, 0o640)) for path in paths]
            self.topics[name] = partitions
        return partitions

    @property
    def must_wait(self) -> bool:
        """Whether an append is not answered at once."""
        return self.fsync

    def append(self, partition: Partition, records: memoryview) -> int:
        return partition.append(records)

    def when_held(self, fds: list[int], answer: Callable[[], None]) -> None:
        self._dirty.update(fds)
        self._waiting.append(answer)
        if not self._is_syncing:
            self._sync()

    def _sync(self) -> None:
        fds, answers = self._dirty, self._waiting
        self._dirty, self._waiting, self._is_syncing = set(), [], True

        def synced(_: asyncio.Future[None]) -> None:
            for answer in answers:
                answer()
            self._is_syncing = False
            if self._waiting:
                self._sync()

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, _sync_all, fds).add_done_callback(synced)


def _sync_all(fds: set[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


class Outgoing:
    """What is still to be sent: bytes, and pieces of files. Sends at once what the socket takes.

    The descriptor is a second one of the same socket: the transport only reads.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock.dup()
        self._socket.setblocking(False)
        self._queue: deque[bytes | tuple[int, int, int]] = deque()
        self._is_watched = False

    def send(self, *pieces: bytes | tuple[int, int, int]) -> None:
        is_free = not self._queue
        self._queue.extend(pieces)
        if is_free:
            self._flush()

    def _flush(self) -> None:
        queue, loop = self._queue, asyncio.get_running_loop()
        try:
            while queue:
                self._send_one(queue.popleft())
        except BlockingIOError:
            if not self._is_watched:
                loop.add_writer(self._socket.fileno(), self._flush)
                self._is_watched = True
            return
        except OSError:
            queue.clear()
        if self._is_watched:
            loop.remove_writer(self._socket.fileno())
            self._is_watched = False

    def _send_one(self, piece: bytes | tuple[int, int, int]) -> None:
        """Send as much as goes; what does not go stays first in the queue."""
        try:
            if isinstance(piece, bytes):
                piece = piece[self._socket.send(piece) :]
            else:
                fd, at, size = piece
                sent = os.sendfile(self._socket.fileno(), fd, at, size)
                piece = (fd, at + sent, size - sent) if sent < size else b""
        finally:
            if piece:
                self._queue.appendleft(piece)

    def close(self) -> None:
        if self._is_watched:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
        self._queue.clear()
        self._socket.close()


class Reader:
    """Walks through a request that nobody checked."""

    def __init__(self, frame: memoryview, at: int) -> None:
        self.frame: Final = frame
        self.at = at

    def take(self, form: Struct) -> tuple[int, ...]:
        at = self.at
        self.at = at + form.size
        return form.unpack_from(self.frame, at)

    def int32(self) -> int:
        return self.take(_I32)[0]

    def text(self) -> str:
        size = self.take(_I16)[0]
        if size < 0:
            return ""
        start = self.at
        self.at = start + size
        return str(self.frame[start : self.at], "utf-8")

    def view(self) -> memoryview:
        size = self.int32()
        start = self.at
        self.at = start + size
        return self.frame[start : self.at]


def _text(value: str) -> bytes:
    raw = value.encode()
    return _I16.pack(len(raw)) + raw


def _framed(correlation_id: int, *body: bytes) -> bytes:
    size = 4 + sum(map(len, body))
    return b"".join((_I32.pack(size), _I32.pack(correlation_id), *body))


class Connection(asyncio.BufferedProtocol):
    """Reads frames into one buffer and answers them where they lie."""

    def __init__(self, store: Store, address: tuple[str, int]) -> None:
        self._store = store
        self._address = address
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._handlers: Final = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._out = Outgoing(sock)

    def connection_lost(self, _: Exception | None) -> None:
        self._out.close()

    def get_buffer(self, _: int) -> memoryview:
        return self._view[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        at = 0
        while self._filled - at >= 4:
            size = 4 + _I32.unpack_from(self._buffer, at)[0]
            if size > self._filled - at:
                self._make_room(size)
                break
            self._answer(self._view[at + 4 : at + size])
            at += size
        if at:
            rest = self._filled - at
            self._view[:rest] = self._view[at : self._filled]
            self._filled = rest

    def _make_room(self, size: int) -> None:
        if size + _SLACK_BYTES > len(self._buffer):
            larger = bytearray(size + _SLACK_BYTES)
            larger[: self._filled] = self._view[: self._filled]
            self._buffer, self._view = larger, memoryview(larger)

    def _answer(self, frame: memoryview) -> None:
        api_key, version, correlation_id = _HEAD.unpack_from(frame)
        reader = Reader(frame, _HEAD.size)
        if api_key == API_VERSIONS:
            self._out.send(_framed(correlation_id, _api_versions(version)))
        elif version != SERVED.get(api_key):
            self._transport.close()
        else:
            reader.text()
            self._handlers[api_key](correlation_id, reader)

    def _produce(self, correlation_id: int, reader: Reader) -> None:
        reader.text()
        acks = reader.take(_I16)[0]
        reader.int32()
        fds: list[int] = []
        body = [_I32.pack(topic_count := reader.int32())]
        for _ in range(topic_count):
            name = reader.text()
            partitions = self._store.topic(name)
            body += [_text(name), _I32.pack(count := reader.int32())]
            for _ in range(count):
                index = reader.int32()
                partition = partitions[index]
                first = self._store.append(partition, reader.view())
                fds.append(partition.fd)
                body.append(_PRODUCED.pack(index, 0, first, -1, 0))
        if acks == 0:
            return
        answer = _framed(correlation_id, *body, _I32.pack(0))
        if self._store.must_wait:
            self._store.when_held(fds, lambda: self._out.send(answer))
        else:
            self._out.send(answer)

    def _fetch(self, correlation_id: int, reader: Reader) -> None:
        _, max_wait_ms, _, left, _, _, _, topic_count = reader.take(_FETCH_HEAD)
        pieces: list[bytes | tuple[int, int, int]] = []
        head = _I32.pack(0) + _I16.pack(0) + _I32.pack(0) + _I32.pack(topic_count)
        records_size = 0
        for _ in range(topic_count):
            name = reader.text()
            partitions = self._store.topic(name)
            head += _text(name) + _I32.pack(count := reader.int32())
            for _ in range(count):
                index, _, offset, _, bytes_max = reader.take(_FETCH_PARTITION)
                partition = partitions[index]
                at, size = partition.piece(offset, min(bytes_max, left)) if left > 0 else (0, 0)
                end = partition.end_offset
                head += _FETCHED.pack(index, 0, end, end, 0, 0, -1, size)
                if size:
                    pieces += [head, (partition.fd, at, size)]
                    head = b""
                    records_size += size
                    left -= size
        pieces.append(head)
        size = 4 + records_size + sum(len(piece) for piece in pieces if isinstance(piece, bytes))
        pieces.insert(0, _I32.pack(size) + _I32.pack(correlation_id))
        if records_size:
            self._out.send(*pieces)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(max_wait_ms / 1000, self._out.send, *pieces)

    def _list_offsets(self, correlation_id: int, reader: Reader) -> None:
        reader.take(Struct(">ib"))
        body = [_I32.pack(0), _I32.pack(topic_count := reader.int32())]
        for _ in range(topic_count):
            name = reader.text()
            partitions = self._store.topic(name)
            body += [_text(name), _I32.pack(count := reader.int32())]
            for _ in range(count):
                index, time_ms = reader.take(Struct(">iq"))
                offset = partitions[index].end_offset if time_ms == _LATEST else 0
                body.append(Struct(">ihqq").pack(index, 0, -1, offset))
        self._out.send(_framed(correlation_id, *body))

    def _metadata(self, correlation_id: int, reader: Reader) -> None:
        count = reader.int32()
        names = [reader.text() for _ in range(count)] if count >= 0 else list(self._store.topics)
        host, port = self._address
        body = [_I32.pack(0), _I32.pack(1), _I32.pack(1), _text(host), _I32.pack(port)]
        body += [_I16.pack(-1), _text("limit"), _I32.pack(1), _I32.pack(len(names))]
        for name in names:
            partitions = self._store.topic(name)
            body += [_I16.pack(0), _text(name), b"\0", _I32.pack(len(partitions))]
            # No error; index, leader, replicas and in-sync replicas are all this node.
            body += [Struct(">hiiiiii").pack(0, n, 1, 1, 1, 1, 1) for n in range(len(partitions))]
        self._out.send(_framed(correlation_id, *body))


def _api_versions(version: int) -> bytes:
    error = 0 if version == 0 else _UNSUPPORTED_VERSION
    rows = [Struct(">hhh").pack(key, 0, high) for key, high in SERVED.items()]
    return _I16.pack(error) + _I32.pack(len(rows)) + b"".join(rows)


async def serve(store: Store, directory: str, port: int) -> None:
    """Listen, and leave the address where the node leaves its own."""
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    address = listening.getsockname()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(store, address), sock=listening)
    _tell_address(directory, f"{address[0]}:{address[1]}")
    await server.serve_forever()


def _tell_address(directory: str, address: str) -> None:
    unfinished = Path(directory, ".addresses.json.tmp")
    unfinished.write_text(json.dumps({"CLIENT": address}), encoding="utf-8")
    unfinished.rename(Path(directory, ".addresses.json"))


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.limit_broker", description=summary)
    parser.add_argument("--dir", required=True, help="an existing directory")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--partitions", type=int, default=4, help="of every topic")
    parser.add_argument("--fsync", action="store_true", help="answer when the disk has it")
    options = parser.parse_args()
    store = Store(options.dir, options.partitions, fsync=options.fsync)
    asyncio.run(serve(store, options.dir, options.port))


if __name__ == "__main__":
    main()
