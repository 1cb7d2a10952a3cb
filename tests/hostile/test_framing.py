"""hostile-input.md, "Framing/transport": what arrives before anything is a request.

Kafka 4.3.1 closes the connection on each row of the first table, and so do we; our log says why.
"plaintext to TLS port" has no row: there is no TLS listener yet. "1 byte/10 s" and "half frame then
silence" are in `test_slow_clients.py`, on a clock that need not be waited for.
"""

from __future__ import annotations

import contextlib
import resource
import struct
from typing import Final

import pytest

from ottla.proto.kafka.apis import API_VERSIONS, FETCH, LIST_OFFSETS, METADATA, PRODUCE
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.framing import read_response_head, request_frame
from tests.hostile.stage import (
    CLOSED,
    CORRELATION_ID,
    FILLED,
    FILLED_END,
    MISSING,
    Closed,
    Target,
    Wire,
    batch,
    codes_of,
    fetch_fields,
    fetch_partition,
    frame_of,
    framed,
    list_fields,
    metadata_fields,
    produce_fields,
)

pytestmark = pytest.mark.integration

# socket.request.max.bytes of the node.
REQUEST_MAX: Final = 100 * 1024 * 1024
PIPELINED: Final = 10_000
# Answers to 10,000 requests that nobody reads: at most what one connection may keep unsent, and
# its buffers.
UNREAD_MEMORY_MAX: Final = 8 << 20
RESETS: Final = 1_000
# What a process needs besides: the limit is on either side of a connection.
DESCRIPTORS_KEPT: Final = 600
# An idle connection has a buffer of 2 KiB and some objects.
IDLE_MEMORY_EACH: Final = 8 * 1024


def length(size: int) -> bytes:
    return struct.pack(">i", size)


# What is sent; the outcome is a closed connection. The sentence that the log says about each is in
# `tests/unit/node/kafka/test_connection.py`: a node says only so many in a row.
NO_REQUEST: Final[dict[str, bytes]] = {
    "length 0": length(0),
    "length −1": length(-1),
    "length −2³¹": length(-(2**31)),
    "length 2³¹−1": length(2**31 - 1),
    "max+1": length(REQUEST_MAX + 1),
    "TLS ClientHello": bytes.fromhex("16030102000100"),
    "GET / HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "a frame of 1 byte": framed(b"\x00"),
    "a frame of 7 bytes": framed(bytes(7)),
    "a frame of 9 bytes": framed(bytes(9)),
}


@pytest.mark.parametrize("sent", NO_REQUEST.values(), ids=NO_REQUEST.keys())
def test_what_is_no_request_closes_the_connection(attacked: Target, sent: bytes) -> None:
    with attacked.wire() as wire:
        assert wire.exchange(sent) is CLOSED


def test_what_was_asked_before_the_broken_frame_is_still_answered(attacked: Target) -> None:
    with attacked.wire() as wire:
        wire.send(frame_of(FETCH, 12, fetch_fields()) + length(-1))
        assert not isinstance(wire.read_frame(), Closed)
        assert wire.read_frame() is CLOSED


def test_the_longest_request_that_is_allowed_is_believed_only_as_it_arrives(
    attacked: Target,
) -> None:
    before = attacked.memory
    with contextlib.ExitStack() as wires:
        for _ in range(50):
            wire = wires.enter_context(attacked.wire())
            # 100 MiB announced, 1 KiB sent: 5 GB if a length were paid for when it is heard.
            wire.send(length(REQUEST_MAX) + bytes(1024))
        # The node has read them all when it answers somebody who came later.
        assert codes_of(attacked.ask(API_VERSIONS, 0, {})) == (0,)
        assert attacked.memory - before < 50 * (64 << 10) + (8 << 20)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_a_client_that_closes_within_a_frame_is_forgotten(attacked: Target, cut: int) -> None:
    frame = frame_of(METADATA, 12, metadata_fields(MISSING))
    with attacked.wire() as wire:
        wire.send(frame[:cut])
    with attacked.wire() as wire:
        wire.send(frame + frame[:cut])
        assert not isinstance(wire.read_frame(), Closed)


def test_a_half_written_produce_writes_nothing(attacked: Target) -> None:
    with attacked.wire() as wire:
        wire.send(frame_of(PRODUCE, 9, produce_fields(FILLED, [(0, batch())]))[:-1])
    assert _end_offset(attacked) == FILLED_END


def test_ten_thousand_requests_that_nobody_reads_the_answers_of(attacked: Target) -> None:
    before = attacked.memory
    # About 900 bytes of answer each, 9 MB in all, of which the kernel keeps some.
    one = frame_of(API_VERSIONS, 4, {"client_software_name": "a", "client_software_version": "1"})
    with Wire(attacked.node.bootstrap, receive_buffer=4096) as wire:
        wire.socket.settimeout(2)
        sent = 0
        with contextlib.suppress(TimeoutError):
            for _ in range(PIPELINED // 100):
                wire.send(one * 100)
                sent += 100
        assert attacked.memory - before < UNREAD_MEMORY_MAX
        # The node stopped reading, or it has read them all; either way it answers in order.
        wire.socket.settimeout(20)
        for _ in range(sent):
            assert not isinstance(wire.read_frame(), Closed)


def test_a_storm_of_resets(attacked: Target) -> None:
    frame = frame_of(FETCH, 12, fetch_fields())
    for number in range(RESETS):
        wire = attacked.wire()
        # Nothing, half a request, a whole one, many that are being answered meanwhile.
        wire.send((b"", frame[:10], frame, frame * 20)[number % 4])
        wire.reset()


@pytest.mark.parametrize("wanted", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_idle_connections_as_many_as_descriptors_allow(attacked: Target, wanted: int) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(wanted, limit - DESCRIPTORS_KEPT)
    assert count >= 400, "this machine allows too few open files to show anything"
    before = attacked.memory
    with contextlib.ExitStack() as wires:
        for _ in range(count):
            wires.enter_context(attacked.wire())
        assert codes_of(attacked.ask(API_VERSIONS, 0, {})) == (0,)
        assert attacked.memory - before < count * IDLE_MEMORY_EACH + (4 << 20)


def test_a_correlation_id_may_come_again_and_again(attacked: Target) -> None:
    one = frame_of(API_VERSIONS, 0, {})
    with attacked.wire() as wire:
        wire.send(one * 20)
        for _ in range(20):
            answer = wire.read_frame()
            assert not isinstance(answer, Closed)
            assert read_response_head(API_VERSIONS, 0, answer)[0] == CORRELATION_ID


def test_answers_come_in_the_order_of_the_requests(attacked: Target) -> None:
    """A fetch that waits, a write that is synced and a question that is answered at once."""
    waits = fetch_fields(fetch_partition(fetch_offset=0, partition=1), max_wait=300, min_bytes=1)
    asked = [
        (FETCH, 12, waits),
        (PRODUCE, 9, produce_fields(FILLED, [(0, b"no batch")])),
        (METADATA, 12, metadata_fields(MISSING)),
        (FETCH, 4, fetch_fields()),
        (API_VERSIONS, 0, {}),
        (FETCH, 12, waits),
        (LIST_OFFSETS, 4, list_fields()),
    ] * 2
    with attacked.wire() as wire:
        wire.send(
            b"".join(
                request_frame(row, version, number, "x", encode_request(row, version, fields))
                for number, (row, version, fields) in enumerate(asked)
            )
        )
        for number, (row, version, _) in enumerate(asked):
            answer = wire.read_frame()
            assert not isinstance(answer, Closed)
            assert read_response_head(row, version, answer)[0] == number


def _end_offset(attacked: Target) -> int:
    answer = attacked.answer(LIST_OFFSETS, 4, list_fields())
    return int(answer.topics[0].partitions[0].offset)
