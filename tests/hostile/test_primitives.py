"""hostile-input.md, "Primitives": lengths that lie, nulls where none may be, numbers too large.

Bodies are written by hand. Metadata 8 and 12 stand for all that is read by the same code, before
and after flexible versions; every API and version is fuzzed in `test_fuzz.py` and, in process, in
`tests/unit/proto/kafka`. The codes are those of Kafka 4.3.1 unless a row says why ours is stricter.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import pytest

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_TOPIC_PARTITIONS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    ApiRow,
)
from ottla.proto.kafka.primitives import uvarint
from tests.hostile.stage import (
    CLOSED,
    EMPTY,
    FILLED,
    Closed,
    Target,
    codes_of,
    framed,
    head_of,
    metadata_fields,
)

pytestmark = pytest.mark.integration

PLAIN: Final = 8
COMPACT: Final = 12
PLAIN_END: Final = b"\x00\x00\x00"
COMPACT_END: Final = b"\x00\x00\x00"
VARINT_MAX: Final = b"\xff\xff\xff\xff\x0f"
ZERO_ID: Final = bytes(16)
NOT_NULL: Final = "a length below −1 is no length; Kafka takes it for null"
NOT_TEXT: Final = "a topic has an ASCII name; Kafka puts replacement characters in"
STRANGE_TAGS: Final = "no client writes this, and a bound on tags is a bound on work"


class Row(NamedTuple):
    """A body, and what comes back: all codes of the answer, or CLOSED."""

    row: ApiRow
    version: int
    body: bytes
    expected: tuple[int, ...] | Closed
    # Why we are stricter than Kafka, which answers.
    stricter: str = ""


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def plain(body: bytes, expected: tuple[int, ...] | Closed, stricter: str = "") -> Row:
    return Row(METADATA, PLAIN, body + PLAIN_END, expected, stricter)


def compact(body: bytes, expected: tuple[int, ...] | Closed, stricter: str = "") -> Row:
    return Row(METADATA, COMPACT, body + COMPACT_END, expected, stricter)


ONE_TEXT: Final = i32(1)
ONE_COMPACT: Final = b"\x02" + ZERO_ID
# acks 1, a second, and then the topics.
PRODUCE_8: Final = i16(-1) + i16(1) + i32(1000)
FETCH_11: Final = i32(-1) + i32(0) + i32(0) + i32(1) + b"\x00" + i32(0) + i32(-1)

ROWS: Final[dict[str, Row]] = {
    "array length −2": plain(i32(-2), CLOSED, NOT_NULL),
    "array null where null is not allowed": Row(METADATA, 0, i32(-1), CLOSED),
    "array length 2³¹−1": plain(i32(2**31 - 1), CLOSED),
    "array longer than its bytes": plain(i32(2) + i16(1) + b"a", CLOSED),
    "array empty, which is not null": plain(i32(0), ()),
    "string length −2": plain(ONE_TEXT + i16(-2), CLOSED),
    "string null where null is not allowed": plain(ONE_TEXT + i16(-1), CLOSED),
    "string longer than the frame": plain(ONE_TEXT + i16(32767), CLOSED),
    "string of length 0": plain(ONE_TEXT + i16(0), (17,)),
    "string that is not UTF-8": plain(ONE_TEXT + i16(2) + b"\xff\xfe", CLOSED, NOT_TEXT),
    "string with an overlong NUL": plain(ONE_TEXT + i16(2) + b"\xc0\x80", CLOSED, NOT_TEXT),
    "bool 7": Row(METADATA, PLAIN, i32(0) + b"\x07\x07\x07", ()),
    "bool −1": Row(METADATA, PLAIN, i32(0) + b"\xff\xff\xff", ()),
    "compact array empty, which is not null": compact(b"\x01", ()),
    "compact array of 2³¹−2": compact(b"\xff\xff\xff\xff\x07", CLOSED),
    "compact array of 2³²−2": compact(VARINT_MAX, CLOSED, NOT_NULL),
    "compact array longer than its bytes": compact(b"\x03" + ZERO_ID + b"\x02a\x00", CLOSED),
    "compact length in six bytes": compact(b"\x81\x80\x80\x80\x80\x00", CLOSED),
    "compact length in two bytes where one does": compact(b"\x81\x00", ()),
    "compact length of more than 32 bits": compact(b"\xff\xff\xff\xff\x7f", CLOSED),
    "compact string longer than the frame": compact(ONE_COMPACT + b"\xff\x7f", CLOSED),
    "compact string of 2³²−2": compact(ONE_COMPACT + VARINT_MAX, CLOSED),
    "compact length 0 where non-null": Row(METADATA, 9, b"\x02\x00\x00" + bytes(4), CLOSED),
    "compact string that is not UTF-8": compact(
        ONE_COMPACT + b"\x03\xff\xfe\x00", CLOSED, NOT_TEXT
    ),
    "zero id and no name": compact(
        ONE_COMPACT + b"\x00\x00", (42,), "a request that says nothing; Kafka fails with code −1"
    ),
    "an unknown tag in the body": Row(METADATA, COMPACT, b"\x01\x00\x00\x01\x07\x03abc", ()),
    "an unknown tag in a nested structure": compact(ONE_COMPACT + b"\x02a\x01\x07\x03abc", (3,)),
    "65 unknown tags in the body": Row(
        METADATA,
        COMPACT,
        b"\x01\x00\x00\x41" + b"".join(bytes((i, 0)) for i in range(65)),
        CLOSED,
        STRANGE_TAGS,
    ),
    "a tag twice in the body": Row(
        METADATA, COMPACT, b"\x01\x00\x00\x02\x07\x00\x07\x00", CLOSED, STRANGE_TAGS
    ),
    "tags out of order in the body": Row(
        METADATA, COMPACT, b"\x01\x00\x00\x02\x07\x00\x06\x00", CLOSED, STRANGE_TAGS
    ),
    "a tag longer than the body": Row(METADATA, COMPACT, b"\x01\x00\x00\x01\x07\x7f", CLOSED),
    "20,000,000 tags in the body": Row(
        METADATA, COMPACT, b"\x01\x00\x00" + uvarint(20_000_000), CLOSED
    ),
    "Produce, topics null": Row(PRODUCE, 8, PRODUCE_8 + i32(-1), CLOSED),
    "Produce, 2³¹−1 topics": Row(PRODUCE, 8, PRODUCE_8 + i32(2**31 - 1), CLOSED),
    "Produce, records of length −2": Row(
        PRODUCE,
        8,
        PRODUCE_8 + i32(1) + i16(1) + b"a" + i32(1) + i32(0) + i32(-2),
        CLOSED,
        NOT_NULL,
    ),
    "Produce, records longer than the frame": Row(
        PRODUCE,
        8,
        PRODUCE_8 + i32(1) + i16(1) + b"a" + i32(1) + i32(0) + i32(2**31 - 1),
        CLOSED,
    ),
    "Produce 9, compact length of 0 topics": Row(
        PRODUCE, 9, b"\x00" + i16(1) + i32(1000) + b"\x00\x00", CLOSED
    ),
    "Produce 9, records of 2³²−2 bytes": Row(
        PRODUCE,
        9,
        b"\x00" + i16(1) + i32(1000) + b"\x02\x02a\x02" + i32(0) + VARINT_MAX + b"\x00\x00\x00",
        CLOSED,
        NOT_NULL,
    ),
    "Fetch, topics null": Row(FETCH, 11, FETCH_11 + i32(-1) + i32(0) + i16(0), CLOSED),
    "Fetch, 2³¹−1 topics": Row(FETCH, 11, FETCH_11 + i32(2**31 - 1), CLOSED),
    "Fetch 12, topics null": Row(
        FETCH, 12, FETCH_11 + b"\x00\x01\x01\x00", CLOSED
    ),
    "ListOffsets, topics null": Row(LIST_OFFSETS, 2, i32(-1) + b"\x00" + i32(-1), CLOSED),
    "ListOffsets, 2³¹−1 topics": Row(
        LIST_OFFSETS, 2, i32(-1) + b"\x00" + i32(2**31 - 1), CLOSED
    ),
    "InitProducerId, string of length −2": Row(
        INIT_PRODUCER_ID, 0, i16(-2) + i32(1000), CLOSED, NOT_NULL
    ),
    "InitProducerId, an int cut short": Row(INIT_PRODUCER_ID, 0, i16(-1) + b"\x00\x00", CLOSED),
    "CreateTopics, topics null": Row(CREATE_TOPICS, 4, i32(-1) + i32(1000) + b"\x00", CLOSED),
    "CreateTopics, name null": Row(
        CREATE_TOPICS,
        4,
        i32(1) + i16(-1) + i32(1) + i16(1) + i32(0) + i32(0) + i32(1000) + b"\x00",
        CLOSED,
    ),
    "DeleteTopics, names null": Row(DELETE_TOPICS, 3, i32(-1) + i32(1000), CLOSED),
    "DeleteTopics, a name null": Row(DELETE_TOPICS, 3, i32(1) + i16(-1) + i32(1000), CLOSED),
    "DescribeConfigs, resources null": Row(DESCRIBE_CONFIGS, 1, i32(-1) + b"\x00", CLOSED),
    "CreatePartitions, topics null": Row(
        CREATE_PARTITIONS, 0, i32(-1) + i32(1000) + b"\x00", CLOSED
    ),
    "a nullable structure that is neither null nor there": Row(
        DESCRIBE_TOPIC_PARTITIONS, 0, b"\x01" + i32(10) + b"\x07\x00", CLOSED
    ),
    "20 empty arrays in an array": Row(
        DESCRIBE_CONFIGS, 1, i32(20) + (b"\x02" + i16(0) + i32(0)) * 20 + b"\x00", (17,),
        "named twenty times and answered once: an answer is longer than its question",
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_body_is_read_or_the_connection_is_closed(attacked: Target, row: Row) -> None:
    frame = framed(head_of(row.row, row.version) + row.body)
    assert codes_of(attacked.ask_raw(row.row, row.version, frame)) == row.expected


def test_a_null_array_means_all_topics_and_an_empty_one_none(attacked: Target) -> None:
    everything = attacked.answer(METADATA, 12, {**metadata_fields(), "topics": None})
    assert {FILLED, EMPTY} <= {topic.name for topic in everything.topics}
    nothing = attacked.answer(METADATA, 12, metadata_fields())
    assert nothing.topics == []


# Arrays of arrays: few bytes, many objects. (count of elements, bytes of one of them, the end)
AMPLIFIERS: Final = {
    # A topic with an empty name and no partitions: 6 bytes before, 3 after flexible versions.
    "ListOffsets 2": (LIST_OFFSETS, 2, i32(-1) + b"\x00", i16(0) + i32(0), b""),
    "ListOffsets 7": (LIST_OFFSETS, 7, i32(-1) + b"\x00", b"\x01\x01\x00", b"\x00"),
    "Produce 8": (PRODUCE, 8, PRODUCE_8, i16(0) + i32(0), b""),
    "Produce 9": (PRODUCE, 9, b"\x00" + i16(1) + i32(1000), b"\x01\x01\x00", b"\x00"),
    "Fetch 11": (FETCH, 11, FETCH_11, i16(0) + i32(0), i32(0) + i16(0)),
    "Fetch 12": (FETCH, 12, FETCH_11, b"\x01\x01\x00", b"\x01\x01\x00"),
    "CreateTopics 4": (
        CREATE_TOPICS, 4, b"", i16(0) + i32(1) + i16(1) + i32(0) + i32(0), i32(1000) + b"\x00"
    ),
    "DescribeConfigs 1": (DESCRIBE_CONFIGS, 1, b"", b"\x02" + i16(0) + i32(0), b"\x00"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("row", "version", "before", "element", "after"), AMPLIFIERS.values(), ids=AMPLIFIERS
)
def test_nested_arrays_do_not_multiply_a_frame_into_a_heap(
    attacked: Target, row: ApiRow, version: int, before: bytes, element: bytes, after: bytes
) -> None:
    """More than 100,000 elements close the connection (B2); Kafka reads them all."""
    count = 4_000_000
    told = uvarint(count + 1) if row.is_flexible(version) else i32(count)
    body = before + told + element * count + after
    memory = attacked.memory
    with attacked.wire() as wire:
        assert wire.exchange(framed(head_of(row, version) + body)) is CLOSED
    attacked.settles(24 << 20, since=memory)
