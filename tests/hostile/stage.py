"""A real node that strangers send anything to, and the bystander who must not notice.

Every list of `hostile-input.md` is a table in its own module: a row is what is sent and exactly
what comes back. After each row the bystander, on a connection of its own, still gets its answers
at once, and the node's memory is where it was (`conftest.py`).

Not here: what is sent.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from ottla.proto.kafka.apis import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import read_response_head, request_frame
from ottla.proto.kafka.message import Message
from tests.builders import NOW_MS, produced
from tests.integration.nodes import RunningNode, running_node, wait_until

# By when a node has answered or closed, however loaded the machine is.
DEADLINE_S: Final = 20.0
# By when a bystander is served. A node that is busy with one stranger for longer is at fault.
BYSTANDER_DEADLINE_S: Final = 5.0
# How much more anonymous memory a node may hold after a row than before it, and after all of them
# than at the start: an allocator keeps some of what was freed, and topics that were made stay.
GROWTH_MAX: Final = 48 << 20
GROWTH_MAX_IN_ALL: Final = 128 << 20
CORRELATION_ID: Final = 77_001

# Two partitions; four batches of three records in partition 0.
FILLED: Final = "filled"
FILLED_END: Final = 12
EMPTY: Final = "empty"
MISSING: Final = "missing"

ZERO_ID: Final = UUID(int=0)
_SIZE: Final = struct.Struct(">i")


class Closed:
    """In the place of an answer: the node closed the connection."""

    def __repr__(self) -> str:
        return "CLOSED"


CLOSED: Final = Closed()


class Wire:
    """One connection over which any bytes may be sent."""

    def __init__(self, address: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket: Final = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with RST: the node learns of it by an error."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> bytes | Closed:
        """Return the next answer without its length, or CLOSED. Silence is a failure."""
        size = self._read(_SIZE.size)
        if isinstance(size, Closed):
            return CLOSED
        return self._read(_SIZE.unpack(size)[0])

    def _read(self, size: int) -> bytes | Closed:
        read = bytearray()
        while len(read) < size:
            try:
                chunk = self.socket.recv(size - len(read))
            except ConnectionError:
                return CLOSED
            if not chunk:
                return CLOSED
            read += chunk
        return bytes(read)

    def exchange(self, data: bytes) -> bytes | Closed:
        """Send bytes, of which the node may refuse the rest, and return what comes back."""
        try:
            self.send(data)
        except ConnectionError:
            # What it said before it closed is still there.
            return self.read_frame()
        return self.read_frame()

    def ask_raw(self, row: ApiRow, version: int, frame: bytes) -> Message | Closed:
        answer = self.exchange(frame)
        if isinstance(answer, Closed):
            return CLOSED
        correlation_id, at = read_response_head(row, version, answer)
        assert correlation_id == CORRELATION_ID
        return decode_response(row, version, answer[at:])

    def ask(self, row: ApiRow, version: int, fields: Mapping[str, Any]) -> Message | Closed:
        return self.ask_raw(row, version, frame_of(row, version, fields))


def frame_of(row: ApiRow, version: int, fields: Mapping[str, Any]) -> bytes:
    body = encode_request(row, version, fields)
    return request_frame(row, version, CORRELATION_ID, "stranger", body)


def framed(content: bytes) -> bytes:
    return _SIZE.pack(len(content)) + content


def head_of(
    row: ApiRow, version: int, *, client_id: bytes | None = b"stranger", tags: bytes = b"\x00"
) -> bytes:
    """Return a request header of which each part may be wrong."""
    told = struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    head = struct.pack(">hhi", row.key, version, CORRELATION_ID) + told
    return head + tags if row.is_flexible(version) else head


def codes_of(answer: Message | Closed) -> tuple[int, ...] | Closed:
    """Return every error code of an answer, in the order in which they stand there."""
    if isinstance(answer, Closed):
        return CLOSED
    return tuple(_codes(answer.as_dict()))


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        if "error_code" in value:
            yield value["error_code"]
        for inner in value.values():
            yield from _codes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _codes(inner)


class Target(NamedTuple):
    """The node under attack, and what was in it before."""

    node: RunningNode
    ids: Mapping[str, UUID]
    memory_before: int

    def wire(self) -> Wire:
        return Wire(self.node.bootstrap)

    def ask(self, row: ApiRow, version: int, fields: Mapping[str, Any]) -> Message | Closed:
        """Ask on a new connection."""
        with self.wire() as wire:
            return wire.ask(row, version, fields)

    def answer(self, row: ApiRow, version: int, fields: Mapping[str, Any]) -> Message:
        answer = self.ask(row, version, fields)
        assert not isinstance(answer, Closed)
        return answer

    def ask_raw(self, row: ApiRow, version: int, frame: bytes) -> Message | Closed:
        with self.wire() as wire:
            return wire.ask_raw(row, version, frame)

    @property
    def memory(self) -> int:
        return anonymous_bytes(self.node.pid)

    def settles(self, bytes_max: int, since: int | None = None) -> None:
        """Raise unless the node holds at most so much more than it did; soon is enough."""
        before = self.memory_before if since is None else since
        wait_until(
            lambda: self.memory - before < bytes_max,
            DEADLINE_S,
            f"the node holds less than {bytes_max >> 20} MiB more than before",
        )


def anonymous_bytes(pid: int) -> int:
    """Return RssAnon: what the process itself holds, without files and libraries."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("there is no RssAnon")


@contextmanager
def target(directory: Path, **options: str) -> Iterator[Target]:
    """Yield a node with the topics FILLED and EMPTY in it."""
    chosen = {name.replace("_", "."): value for name, value in options.items()}
    with running_node(directory, options=chosen) as node, Wire(node.bootstrap) as wire:
        create(wire, FILLED, partitions=2)
        create(wire, EMPTY)
        for number in range(FILLED_END // 3):
            asked = produce_fields(FILLED, [(0, batch(number))])
            assert codes_of(wire.ask(PRODUCE, 9, asked)) == (0,)
        # Once through everything that is made on first use.
        assert codes_of(wire.ask(FETCH, 12, fetch_fields())) == (0, 0)
        yield Target(node, ids_of(wire, FILLED, EMPTY), anonymous_bytes(node.pid))


def batch(number: int = 0) -> bytes:
    """Return a batch of three records, whose timestamps grow with the number."""
    times = [NOW_MS + number * 1000 + i for i in range(3)]
    return produced(*(b"value-%d-%d" % (number, i) for i in range(3)), timestamps=times)


def create(wire: Wire, name: str, partitions: int = 1, **options: str) -> None:
    # The records of tests are years old; nothing may expire while a long run goes on.
    chosen = {"retention.ms": "-1"} | {key.replace("_", "."): text for key, text in options.items()}
    configs = [{"name": key, "value": text} for key, text in chosen.items()]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": configs,
    }
    answer = wire.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000})
    assert codes_of(answer) == (0,), answer


def ids_of(wire: Wire, *names: str) -> dict[str, UUID]:
    answer = wire.ask(METADATA, 12, metadata_fields(*names))
    assert not isinstance(answer, Closed)
    return {topic.name: topic.topic_id for topic in answer.topics}


def metadata_fields(*names: str) -> dict[str, Any]:
    return {
        "topics": [{"name": name, "topic_id": ZERO_ID} for name in names],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def list_fields(
    timestamp: int = -1, index: int = 0, topic: str = FILLED, **changes: Any
) -> dict[str, Any]:
    asked = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "timeout": 1000,
        "topics": [{"name": topic, "partitions": [{**asked, **changes}]}],
    }


def produce_fields(
    topic: str, partitions: Sequence[tuple[int, bytes | None]], **changes: Any
) -> dict[str, Any]:
    data = [{"index": index, "records": records} for index, records in partitions]
    return {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "topic_id": ZERO_ID, "partition_data": data}],
        **changes,
    }


def fetch_partition(index: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "partition": index,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
        **changes,
    }


def fetch_fields(
    *partitions: dict[str, Any], topic: str = FILLED, topic_id: UUID = ZERO_ID, **changes: Any
) -> dict[str, Any]:
    asked = list(partitions) or [fetch_partition()]
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": asked}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **changes,
    }


class Bystander:
    """An honest client on a connection of its own, opened before any stranger came."""

    def __init__(self, address: str) -> None:
        self._wire: Final = Wire(address)
        self._wire.socket.settimeout(BYSTANDER_DEADLINE_S)

    def is_served(self) -> None:
        """Raise unless a request about the cluster and one about data are answered at once."""
        assert self.is_answered() == (0, 0)

    def is_answered(self) -> tuple[int, ...]:
        """The same, but return the codes: whoever may send anything may delete what is read."""
        began = time.monotonic()
        versions = self._wire.ask(API_VERSIONS, 0, {})
        assert codes_of(versions) == (0,)
        fetched = self._wire.ask(FETCH, 12, fetch_fields())
        assert time.monotonic() - began < BYSTANDER_DEADLINE_S
        codes = codes_of(fetched)
        assert not isinstance(codes, Closed)
        return codes

    def close(self) -> None:
        self._wire.close()
