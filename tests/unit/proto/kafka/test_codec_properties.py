"""The codec against kio's writer: every API, every version, both directions, byte for byte."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.apis import FETCH, KNOWN_APIS, METADATA, PRODUCE, ApiRow
from ottla.proto.kafka.decode import decode_request, decode_response
from ottla.proto.kafka.encode import encode_request, encode_response
from ottla.proto.kafka.fetch import decode_fetch
from ottla.proto.kafka.framing import read_request_head, request_frame
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.produce import decode_produce
from tests.unit.proto.kafka.kio_messages import (
    HALVES,
    VERSIONS,
    draw_message,
    entity_class,
    written,
)

SEEDS = st.integers(0, 2**32 - 1)
# The first example of a version loads kio's classes, and that is slow.
QUICK = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
DECODE = {"request": decode_request, "response": decode_response}
ENCODE = {"request": encode_request, "response": encode_response}


def as_bytes(value: Any) -> Any:
    """Return the tree with views replaced by the bytes that they show."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {name: as_bytes(inner) for name, inner in value.items()}
    return [as_bytes(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("row", KNOWN_APIS, ids=lambda row: row.name)
@QUICK
@given(seed=SEEDS)
def test_what_kio_writes_is_read_and_written_again(row: ApiRow, seed: int) -> None:
    random = Random(seed)
    for version in range(row.low, row.high + 1):
        for half in HALVES:
            entity, expected = draw_message(random, entity_class(row, version, half))
            body = written(entity)
            message = DECODE[half](row, version, body)
            assert as_bytes(message.as_dict()) == expected
            assert ENCODE[half](row, version, message) == body
            assert ENCODE[half](row, version, expected) == body


@pytest.mark.parametrize("row", KNOWN_APIS, ids=lambda row: row.name)
@QUICK
@given(seed=SEEDS)
def test_changed_bytes_are_read_or_refused_and_nothing_else(row: ApiRow, seed: int) -> None:
    random = Random(seed)
    for version in range(row.low, row.high + 1):
        for half in HALVES:
            entity, _ = draw_message(random, entity_class(row, version, half), longest=2)
            body = changed(random, written(entity))
            try:
                message = DECODE[half](row, version, body)
            except RemoteProtocolError:
                continue
            # Whatever could be read can be written, and then read as the same.
            again = DECODE[half](row, version, ENCODE[half](row, version, message))
            assert repr(as_bytes(again.as_dict())) == repr(as_bytes(message.as_dict()))


@settings(max_examples=150, deadline=None, database=None)
@given(seed=SEEDS)
def test_changed_frames_are_read_or_refused_and_nothing_else(seed: int) -> None:
    random = Random(seed)
    row, version = random.choice(VERSIONS)
    entity, _ = draw_message(random, entity_class(row, version, "request"), longest=2)
    frame = request_frame(row, version, 7, random.choice((None, "", "rdkafka")), written(entity))
    payload = memoryview(changed(random, frame[4:]))
    rows = {known.key: known for known in KNOWN_APIS}
    try:
        head = read_request_head(payload, rows)
        known = rows[head.api_key]
        if known.speaks(head.api_version):
            decode_request(known, head.api_version, payload[head.body_at :])
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize(("row", "read"), [(PRODUCE, decode_produce), (FETCH, decode_fetch)])
@settings(max_examples=60, deadline=None, database=None)
@given(seed=SEEDS)
def test_the_quick_readers_refuse_what_the_codec_refuses(row: ApiRow, read: Any, seed: int) -> None:
    random = Random(seed)
    for version in range(row.low, row.high + 1):
        entity, _ = draw_message(random, entity_class(row, version, "request"), longest=2)
        body = changed(random, written(entity))
        quickly = refusal(read, version, memoryview(b"front" + body), 5)
        slowly = refusal(decode_request, row, version, body)
        assert (quickly is None) == (slowly is None), (version, quickly, slowly)


def refusal(read: Any, *arguments: Any) -> RemoteProtocolError | None:
    try:
        read(*arguments)
    except RemoteProtocolError as error:
        return error
    return None


def changed(random: Random, body: bytes) -> bytes:
    """Return the bytes with up to three bytes overwritten, inserted or cut."""
    out = bytearray(body)
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(out))
        match random.randrange(4):
            case 0:
                del out[at:]
            case 1:
                out[at:at] = random.randbytes(random.randint(1, 4))
            case 2:
                out[at : at + 1] = random.choice((b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"))
            case _:
                out[at : at + 4] = random.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\0\0\0\0")
                )
    return bytes(out)


def test_a_message_shows_its_fields_and_takes_no_other_for_itself() -> None:
    body = encode_request(
        METADATA, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}
    )
    message = decode_request(METADATA, 4, body)
    assert message.topics[0].name == "orders"
    assert message.get("include_topic_authorized_operations") is None
    assert not hasattr(message, "include_topic_authorized_operations")
    assert repr(message) == (
        "Message(topics=[Message(name='orders')], allow_auto_topic_creation=True)"
    )
    assert message == decode_request(METADATA, 4, body)
    assert message != Message({"topics": []})
