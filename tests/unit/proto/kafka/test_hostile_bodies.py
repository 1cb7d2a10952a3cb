"""The list "Primitives" of bad input: each attack on a body with its exact outcome.

What Kafka 4.3.1 does with the same bytes was looked up by feeding them to its own parser
(`RequestContext.parseRequest`); where it is more lenient, a comment says so.
"""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.apis import (
    CREATE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    JOIN_GROUP,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.decode import decode_request, decode_response
from ottla.proto.kafka.encode import encode_request
from ottla.proto.kafka.fetch import decode_fetch
from ottla.proto.kafka.primitives import ELEMENTS_MAX, TAGS_MAX, uvarint
from ottla.proto.kafka.produce import decode_produce
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

INT32_MAX = 2**31 - 1


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def refused(read: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        read()


# Metadata 8: topics (nullable array of names), three booleans.
# Metadata 12: topics (nullable array of id, nullable name, tags), two booleans, tags.
ONE_TOPIC = b"\x02" + bytes(16) + b"\x04foo\x00"


@pytest.mark.parametrize(
    ("version", "body", "sentence"),
    [
        # Kafka takes any length below zero for null.
        (8, int32(-2) + bytes(3), "topics: -2 elements, where 3 bytes are left"),
        (8, int32(-(2**31)) + bytes(3), "topics: -2147483648 elements"),
        (8, int32(2) + bytes(3), "topics: 2 elements, where 3 bytes are left"),
        (8, int32(INT32_MAX) + bytes(6), "topics: 2147483647 elements, where 6 bytes are left"),
        (8, b"\x00\x00", "topics: the frame ends before it does"),
        (8, int32(1) + int16(-1) + bytes(3), "name: null, where the protocol allows no null"),
        (8, int32(1) + int16(-2) + bytes(3), "name: a text of -2 bytes"),
        (8, int32(1) + int16(9) + bytes(3), "name: a text of 9 bytes, where 3 are left"),
        (8, int32(1) + int16(0x7FFF) + bytes(3), "name: a text of 32767 bytes"),
        # Kafka puts a replacement character for what is not UTF-8.
        (8, int32(1) + int16(2) + b"\xc3\x28" + bytes(3), "name: a text that is not UTF-8"),
        (8, int32(0), "allow_auto_topic_creation and .*: the frame ends before it does"),
        (12, b"", "topics: the frame ends before it does"),
        (12, b"\x03" + bytes(20), "topics: 2 elements, where 20 bytes are left"),
        (12, b"\xff\xff\xff\xff\x07" + bytes(9), "topics: 2147483646 elements, where 9 bytes"),
        # Kafka takes this for -1, and so for null.
        (12, b"\xff\xff\xff\xff\x0f" + bytes(9), "topics: 4294967294 elements, where 9 bytes"),
        (12, b"\x82\x80\x80\x80\x7f" + ONE_TOPIC[1:], "more than 32 bits"),
        (12, b"\x82\x80\x80\x80\x80\x00" + ONE_TOPIC[1:], "more than 32 bits"),
        (12, b"\x02" + bytes(19), "topics, tagged fields: the frame ends|ends before it does"),
        (12, b"\x02" + bytes(16) + b"\x80\x80\x02" + bytes(4), "name: a text of 32767 bytes"),
        (
            12,
            b"\x02" + bytes(16) + b"\x81\x80\x02" + b"x" * 0x8000 + bytes(4),
            "name: a text of 32768 bytes, where 32772 are left and 32767 are allowed",
        ),
        (12, ONE_TOPIC + b"\x01\x01", "tagged fields: the frame ends before it does"),
        (12, ONE_TOPIC + b"\x01\x01\x41" + bytes(200), "65 tagged fields; 64 are allowed"),
        (12, ONE_TOPIC + b"\x01\x01\x80\xda\xc4\x09" + bytes(99), "20000000 tagged fields"),
        # Kafka does not look at the order of tags.
        (12, ONE_TOPIC + b"\x01\x01\x02\x05\x00\x05\x00", "tagged field 5 comes after 5"),
        (12, ONE_TOPIC + b"\x01\x01\x01\x05\x07", "tagged field 5 of 7 bytes, where 0 are left"),
    ],
)
def test_bad_lengths_and_texts_are_refused(version: int, body: bytes, sentence: str) -> None:
    refused(lambda: decode_request(METADATA, version, body), sentence)


def test_null_and_empty_arrays_are_not_the_same() -> None:
    assert decode_request(METADATA, 8, int32(-1) + bytes(3)).topics is None
    assert decode_request(METADATA, 8, int32(0) + bytes(3)).topics == []
    assert decode_request(METADATA, 12, b"\x00" + bytes(3)).topics is None
    assert decode_request(METADATA, 12, b"\x01" + bytes(3)).topics == []


def test_null_where_an_array_must_be_is_refused() -> None:
    refused(lambda: decode_request(METADATA, 0, int32(-1)), "topics: null")
    refused(lambda: decode_request(CREATE_TOPICS, 7, b"\x00" + bytes(6)), "topics: null")


def test_any_byte_but_zero_is_true() -> None:
    message = decode_request(METADATA, 8, int32(0) + b"\x07\x00\xff")
    assert message.allow_auto_topic_creation is True
    assert message.include_cluster_authorized_operations is False
    assert message.include_topic_authorized_operations is True


def test_the_zero_id_is_an_id_and_not_none() -> None:
    message = decode_request(METADATA, 12, ONE_TOPIC + b"\x01\x01\x00")
    assert message.topics[0].topic_id == ZERO_UUID == UUID(int=0)
    assert message.topics[0].name == "foo"


def test_bytes_after_a_request_are_passed_over_as_kafka_does() -> None:
    assert decode_request(METADATA, 12, ONE_TOPIC + b"\x01\x01\x00zzz").topics[0].name == "foo"
    assert decode_produce(3, memoryview(int16(-1) + int16(1) + int32(5) + int32(0) + b"z"), 0)


def test_bytes_after_a_response_are_refused() -> None:
    body = bytes(4) + b"\x01\x00" + bytes(4) + b"\x01\x00"
    assert decode_response(METADATA, 12, body).cluster_id is None
    refused(lambda: decode_response(METADATA, 12, body + b"\x00"), "1 bytes after its end")


def test_unknown_tags_are_stepped_over_and_not_kept() -> None:
    tags = bytes([TAGS_MAX]) + b"".join(bytes((tag, 1, 0xAA)) for tag in range(TAGS_MAX))
    message = decode_request(METADATA, 12, ONE_TOPIC + b"\x01\x01" + tags)
    assert message == decode_request(METADATA, 12, ONE_TOPIC + b"\x01\x01\x00")


# Fetch 18 with a replica state (tag 1, 13 bytes: int32, int64, tags).
FETCH_START = struct.pack(">iiibii", 1, 1, 1, 0, 0, -1) + b"\x01\x01\x01"


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        (b"\x01\x01\x0c" + bytes(13), "ends before it does"),
        (b"\x01\x01\x0e" + bytes(14), "replica_state is shorter than its size says"),
        (b"\x01\x01\x00", "ends before it does"),
        (b"\x01\x00\x04\x05a\x00\x00", "cluster_id: a text of 4 bytes, where 3 are left"),
        (b"\x02\x00\x02\x02a\x00\x02\x02a", "tagged field 0 comes after 0"),
    ],
)
def test_a_tagged_field_must_use_its_own_bytes_and_no_others(tag: bytes, sentence: str) -> None:
    body = FETCH_START + tag
    refused(lambda: decode_request(FETCH, 18, body), sentence)
    refused(lambda: decode_fetch(18, memoryview(body), 0), sentence)


def test_a_struct_that_may_be_null_has_a_sign_in_front() -> None:
    # topics, limit, cursor, tags
    def body(cursor: bytes) -> bytes:
        return b"\x01" + int32(1) + cursor + b"\x00"

    def cursor(raw: bytes) -> Any:
        return decode_request(DESCRIBE_TOPIC_PARTITIONS, 0, body(raw)).cursor

    assert cursor(b"\xff") is None
    assert cursor(b"\x80") is None
    for sign in (b"\x00", b"\x01", b"\x07", b"\x7f"):
        assert cursor(sign + b"\x02a" + int32(3) + b"\x00").partition_index == 3
    refused(lambda: decode_request(DESCRIBE_TOPIC_PARTITIONS, 0, body(b"")[:-1]), "ends before")


def peak_bytes(read: Callable[[], Any]) -> int:
    """Return how much memory a refused read took at its worst."""
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("row", "version", "front"),
    [
        (METADATA, 8, b""),
        (CREATE_TOPICS, 2, b""),
        (CREATE_TOPICS, 2, int32(1) + int16(1) + b"t" + int32(1) + int16(1)),
        (PRODUCE, 3, int16(-1) + int16(1) + int32(1)),
        (PRODUCE, 3, int16(-1) + int16(1) + int32(1) + int32(1) + int16(1) + b"t"),
        (FETCH, 4, bytes(17)),
    ],
    ids=repr,
)
def test_a_count_is_not_believed_before_it_is_compared(
    row: ApiRow, version: int, front: bytes
) -> None:
    body = front + int32(INT32_MAX) + bytes(6)
    decode_request(METADATA, 8, int32(0) + bytes(3))
    refused(lambda: decode_request(row, version, body), "2147483647 elements, where 6 bytes")
    assert peak_bytes(lambda: decode_request(row, version, body)) < 20_000
    hot = {PRODUCE: decode_produce, FETCH: decode_fetch}.get(row)
    if hot is not None:
        refused(lambda: hot(version, memoryview(body), 0), "2147483647 elements, where 6 bytes")


def test_bytes_of_a_claimed_size_are_not_reserved() -> None:
    front = int16(-1) + int16(1) + int32(1) + int32(1) + int16(1) + b"t" + int32(1) + int32(0)
    for size in (INT32_MAX, 1, -2, -(2**31)):
        body = front + int32(size)
        refused(lambda body=body: decode_request(PRODUCE, 3, body), "records: a size of")  # type: ignore[misc]
        refused(lambda body=body: decode_produce(3, memoryview(body), 0), "records: a size of")  # type: ignore[misc]
    group = encode_request(
        JOIN_GROUP,
        0,
        {
            "group_id": "g",
            "session_timeout": 1,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"xyz"}],
        },
    )
    assert decode_request(JOIN_GROUP, 0, group).protocols[0].metadata == b"xyz"
    refused(
        lambda: decode_request(JOIN_GROUP, 0, group[:-7] + int32(-1) + b"xyz"), "metadata: null"
    )


def test_nested_arrays_do_not_multiply() -> None:
    # 400 topics with 400 partitions of a few bytes each: all the bytes are there.
    partitions = uvarint(401) + (int32(0) + b"\x00\x00") * 400
    topics = uvarint(401) + (b"\x02t" + partitions + b"\x00") * 400
    body = b"\x00" + int16(1) + int32(1) + topics + b"\x00"
    refused(lambda: decode_request(PRODUCE, 9, body), "too many array elements in all")
    refused(lambda: decode_produce(9, memoryview(body), 0), "too many array elements in all")


def test_arrays_of_empty_arrays_are_counted() -> None:
    def fetch(count: int) -> bytes:
        topics = uvarint(count + 1) + b"\x01\x01\x00" * count
        return struct.pack(">iiiibii", -1, 1, 1, 1, 0, 0, -1) + topics + b"\x01\x01\x00"

    assert len(decode_fetch(12, memoryview(fetch(ELEMENTS_MAX)), 0).topics) == ELEMENTS_MAX
    over = fetch(ELEMENTS_MAX + 1)
    refused(lambda: decode_fetch(12, memoryview(over), 0), "too many array elements in all")
    refused(lambda: decode_request(FETCH, 12, over), "too many array elements in all")
    assert peak_bytes(lambda: decode_request(FETCH, 12, over)) < 20_000


@pytest.mark.parametrize("version", range(PRODUCE.low, PRODUCE.high + 1))
def test_a_produce_request_that_is_cut_anywhere_is_refused(version: int) -> None:
    body = encode_request(
        PRODUCE,
        version,
        {
            "acks": 1,
            "timeout": 5,
            "topic_data": [
                {
                    "name": "orders",
                    "topic_id": UUID(int=5),
                    "partition_data": [{"index": 1, "records": b"batch"}],
                }
            ],
        },
    )
    for size in range(len(body)):
        cut = body[:size]
        refused(lambda cut=cut: decode_request(PRODUCE, version, cut), ".")  # type: ignore[misc]
        refused(lambda cut=cut: decode_produce(version, memoryview(b"0" + cut), 1), ".")  # type: ignore[misc]


@pytest.mark.parametrize("version", range(FETCH.low, FETCH.high + 1))
def test_a_fetch_request_that_is_cut_anywhere_is_refused(version: int) -> None:
    topic = {"topic": "orders", "topic_id": UUID(int=5)}
    partition = {"partition": 1, "fetch_offset": 7, "partition_max_bytes": 9}
    body = encode_request(
        FETCH,
        version,
        {
            "max_wait": 5,
            "min_bytes": 1,
            "topics": [{**topic, "partitions": [partition]}],
            "forgotten_topics_data": [{**topic, "partitions": [1, 2]}],
        },
    )
    for size in range(len(body)):
        cut = body[:size]
        refused(lambda cut=cut: decode_request(FETCH, version, cut), ".")  # type: ignore[misc]
        refused(lambda cut=cut: decode_fetch(version, memoryview(b"0" + cut), 1), ".")  # type: ignore[misc]


def test_null_where_produce_and_fetch_need_arrays_is_refused() -> None:
    front = int16(-1) + int16(1) + int32(1)
    compact = b"\x00" + int16(1) + int32(1)
    produce = [
        (3, front + int32(-1)),
        (3, front + int32(1) + int16(1) + b"t" + int32(-1)),
        (9, compact + b"\x00\x00"),
        (9, compact + b"\x02\x02t\x00\x00\x00"),
    ]
    for version, body in produce:
        refused(lambda v=version, b=body: decode_produce(v, memoryview(b), 0), "_data: null")  # type: ignore[misc]
        refused(lambda v=version, b=body: decode_request(PRODUCE, v, b), "_data: null")  # type: ignore[misc]
    fetch = [
        (4, bytes(17) + int32(-1)),
        (4, bytes(17) + int32(1) + int16(1) + b"t" + int32(-1)),
        (12, bytes(25) + b"\x00" + bytes(3)),
        (12, bytes(25) + b"\x02\x02t\x00\x00" + bytes(3)),
        (12, bytes(25) + b"\x01\x00" + bytes(3)),
        (12, bytes(25) + b"\x01\x02\x02t\x00\x00" + bytes(3)),
    ]
    for version, body in fetch:
        refused(lambda v=version, b=body: decode_fetch(v, memoryview(b), 0), ": null")  # type: ignore[misc]
        refused(lambda v=version, b=body: decode_request(FETCH, v, b), ": null")  # type: ignore[misc]
