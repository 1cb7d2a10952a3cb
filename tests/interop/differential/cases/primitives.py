"""Lengths that lie, nulls where none may be, and other bytes that no client writes.

Bodies are written by hand. Metadata 8 and 12 stand for all that is read by the same code: lengths
before and after flexible versions.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    ApiRow,
)
from tests.interop.differential.case import Ask, Case, Send, Talk

PLAIN: Final = 8
COMPACT: Final = 12
# Three flags of Metadata 8, then the two of Metadata 12 and its tagged fields.
PLAIN_END: Final = b"\x00\x00\x00"
COMPACT_END: Final = b"\x00\x00\x00"


# Lengths that Kafka takes for null, and null means all topics.
_ALL_TOPICS: Final = frozenset(
    {"array length -1", "array length -2", "compact array of 4294967294"}
)


def _raw(name: str, row: ApiRow, version: int, body: bytes) -> Case:
    def talk(_: Ask) -> Talk:
        yield Send(row, version, body=body)

    return Case(f"Primitives: {name}", row, talk, (version,), about_all_topics=name in _ALL_TOPICS)


def _i16(value: int) -> bytes:
    return struct.pack(">h", value)


def _i32(value: int) -> bytes:
    return struct.pack(">i", value)


_VARINT_MAX: Final = b"\xff\xff\xff\xff\x0f"
_TOPIC_ID: Final = bytes(16)

_METADATA_PLAIN: Final = (
    _raw("array length -2", METADATA, PLAIN, _i32(-2) + PLAIN_END),
    _raw("array length -1", METADATA, 1, _i32(-1)),
    _raw("array length -1 where null is not allowed", METADATA, 0, _i32(-1)),
    _raw("array length 2147483647", METADATA, PLAIN, _i32(2**31 - 1) + PLAIN_END),
    _raw("array longer than its bytes", METADATA, PLAIN, _i32(2) + _i16(1) + b"a" + PLAIN_END),
    _raw("string length -2", METADATA, PLAIN, _i32(1) + _i16(-2) + PLAIN_END),
    _raw(
        "string length -1 where null is not allowed",
        METADATA,
        PLAIN,
        _i32(1) + _i16(-1) + PLAIN_END,
    ),
    _raw("string longer than the frame", METADATA, PLAIN, _i32(1) + _i16(32767) + PLAIN_END),
    _raw("string of length 0", METADATA, PLAIN, _i32(1) + _i16(0) + PLAIN_END),
    _raw("string that is not UTF-8", METADATA, PLAIN, _i32(1) + _i16(2) + b"\xff\xfe" + PLAIN_END),
    _raw(
        "string with an overlong encoding",
        METADATA,
        PLAIN,
        _i32(1) + _i16(2) + b"\xc0\x80" + PLAIN_END,
    ),
    _raw("bool 7", METADATA, PLAIN, _i32(0) + b"\x07\x07\x07"),
    _raw("bool -1", METADATA, PLAIN, _i32(0) + b"\xff\xff\xff"),
)

_METADATA_COMPACT: Final = (
    _raw("compact array of none", METADATA, COMPACT, b"\x01" + COMPACT_END),
    _raw("compact array of 2147483646", METADATA, COMPACT, b"\xff\xff\xff\xff\x07" + COMPACT_END),
    _raw("compact array of 4294967294", METADATA, COMPACT, _VARINT_MAX + COMPACT_END),
    _raw(
        "compact array longer than its bytes",
        METADATA,
        COMPACT,
        b"\x03" + _TOPIC_ID + b"\x02a\x00" + COMPACT_END,
    ),
    _raw(
        "compact length in six bytes", METADATA, COMPACT, b"\x81\x80\x80\x80\x80\x00" + COMPACT_END
    ),
    _raw(
        "compact length in two bytes where one does", METADATA, COMPACT, b"\x81\x00" + COMPACT_END
    ),
    _raw(
        "compact string longer than the frame",
        METADATA,
        COMPACT,
        b"\x02" + _TOPIC_ID + b"\xff\x7f" + COMPACT_END,
    ),
    _raw(
        "compact string of 4294967294",
        METADATA,
        COMPACT,
        b"\x02" + _TOPIC_ID + _VARINT_MAX + COMPACT_END,
    ),
    _raw(
        "compact string null where it is not allowed",
        METADATA,
        9,
        b"\x02" + b"\x00\x00" + b"\x00\x00\x00\x00",
    ),
    _raw(
        "compact string that is not UTF-8",
        METADATA,
        COMPACT,
        b"\x02" + _TOPIC_ID + b"\x03\xff\xfe\x00" + COMPACT_END,
    ),
    _raw("an unknown tag in the body", METADATA, COMPACT, b"\x01\x00\x00\x01\x07\x03abc"),
    _raw(
        "an unknown tag in a nested structure",
        METADATA,
        COMPACT,
        b"\x02" + _TOPIC_ID + b"\x02a\x01\x07\x03abc" + COMPACT_END,
    ),
    _raw(
        "65 unknown tags in the body",
        METADATA,
        COMPACT,
        b"\x01\x00\x00\x41" + b"".join(bytes((i, 0)) for i in range(65)),
    ),
    _raw("a tag twice in the body", METADATA, COMPACT, b"\x01\x00\x00\x02\x07\x00\x07\x00"),
    _raw("tags out of order in the body", METADATA, COMPACT, b"\x01\x00\x00\x02\x07\x00\x06\x00"),
    _raw("a tag longer than the body", METADATA, COMPACT, b"\x01\x00\x00\x01\x07\x7f"),
    _raw("20000000 tags in the body", METADATA, COMPACT, b"\x01\x00\x00\x80\xda\xc4\x09"),
)

_OTHERS: Final = (
    _raw(
        "Produce with a null array of topics",
        PRODUCE,
        8,
        _i16(-1) + _i16(1) + _i32(1000) + _i32(-1),
    ),
    _raw(
        "Produce with 2147483647 topics",
        PRODUCE,
        8,
        _i16(-1) + _i16(1) + _i32(1000) + _i32(2**31 - 1),
    ),
    _raw(
        "Produce with records of length -2",
        PRODUCE,
        8,
        _i16(-1) + _i16(1) + _i32(1000) + _i32(1) + _i16(1) + b"a" + _i32(1) + _i32(0) + _i32(-2),
    ),
    _raw(
        "Produce with records longer than the frame",
        PRODUCE,
        8,
        _i16(-1)
        + _i16(1)
        + _i32(1000)
        + _i32(1)
        + _i16(1)
        + b"a"
        + _i32(1)
        + _i32(0)
        + _i32(2**31 - 1),
    ),
    _raw(
        "Produce 9 with a compact length of 0 topics",
        PRODUCE,
        9,
        b"\x00" + _i16(1) + _i32(1000) + b"\x00\x00",
    ),
    _raw(
        "Produce 9 with records longer than the frame",
        PRODUCE,
        9,
        b"\x00" + _i16(1) + _i32(1000) + b"\x02\x02a\x02" + _i32(0) + _VARINT_MAX + b"\x00\x00\x00",
    ),
    _raw(
        "Fetch with 2147483647 topics",
        FETCH,
        11,
        _i32(-1) + _i32(0) + _i32(0) + _i32(1) + b"\x00" + _i32(0) + _i32(-1) + _i32(2**31 - 1),
    ),
    _raw(
        "Fetch with a null array of topics",
        FETCH,
        11,
        _i32(-1)
        + _i32(0)
        + _i32(0)
        + _i32(1)
        + b"\x00"
        + _i32(0)
        + _i32(-1)
        + _i32(-1)
        + _i32(0)
        + _i16(0),
    ),
    _raw(
        "Fetch 12 with a null array of topics",
        FETCH,
        12,
        _i32(-1) + _i32(0) + _i32(0) + _i32(1) + b"\x00" + _i32(0) + _i32(-1) + b"\x00\x01\x01\x00",
    ),
    _raw("ListOffsets with a null array", LIST_OFFSETS, 2, _i32(-1) + b"\x00" + _i32(-1)),
    _raw(
        "ListOffsets with 2147483647 topics", LIST_OFFSETS, 2, _i32(-1) + b"\x00" + _i32(2**31 - 1)
    ),
    _raw("InitProducerId with a string of length -2", INIT_PRODUCER_ID, 0, _i16(-2) + _i32(1000)),
    _raw("InitProducerId with an int cut short", INIT_PRODUCER_ID, 0, _i16(-1) + b"\x00\x00"),
    _raw("CreateTopics with a null array", CREATE_TOPICS, 4, _i32(-1) + _i32(1000) + b"\x00"),
    _raw(
        "CreateTopics with a null name",
        CREATE_TOPICS,
        4,
        _i32(1) + _i16(-1) + _i32(1) + _i16(1) + _i32(0) + _i32(0) + _i32(1000) + b"\x00",
    ),
    _raw("DeleteTopics with a null array", DELETE_TOPICS, 3, _i32(-1) + _i32(1000)),
    _raw("DeleteTopics with a null name", DELETE_TOPICS, 3, _i32(1) + _i16(-1) + _i32(1000)),
    _raw("DescribeConfigs with a null array", DESCRIBE_CONFIGS, 1, _i32(-1) + b"\x00"),
    _raw(
        "CreatePartitions with a null array", CREATE_PARTITIONS, 0, _i32(-1) + _i32(1000) + b"\x00"
    ),
    _raw(
        "arrays of empty arrays",
        DESCRIBE_CONFIGS,
        1,
        _i32(20) + (b"\x02" + _i16(0) + _i32(0)) * 20 + b"\x00",
    ),
)

PRIMITIVE_CASES: Final[tuple[Case, ...]] = (*_METADATA_PLAIN, *_METADATA_COMPACT, *_OTHERS)
