"""Kafka's own bytes: as Kafka 4.3 writes them, and as older ones did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    topics_of,
)
from ottla.proto.errors import RecordsError

MEMBER = MemberValue("m-1", "desk", "c", "/h", 300_000, 45_000, b"sub", b"as")
GROUP = GroupValue("consumer", 7, "range", "m-1", 1_700_000_000_000, (MEMBER,))
# By hand from OffsetCommitKey.json, GroupMetadataKey.json and their values in Kafka 4.3.
GOLDEN: dict[str, tuple[object, str]] = {
    "key of an offset": (OffsetKey("g", "t", 3), "0001 0001 67 0001 74 00000003"),
    "key of a group": (GroupKey("g"), "0002 0001 67"),
    "offset": (
        OffsetValue(42, 5, "me", 1_700_000_000_000),
        "0003 000000000000002a 00000005 0002 6d65 0000018bcfe56800",
    ),
    "offset that expires": (
        OffsetValue(42, -1, "", 1_700_000_000_000, 1_700_000_000_001),
        "0001 000000000000002a 0000 0000018bcfe56800 0000018bcfe56801",
    ),
    "group": (
        GROUP,
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0003 6d2d31 0000018bcfe56800 00000001"
        "0003 6d2d31 0004 6465736b 0001 63 0002 2f68 000493e0 0000afc8 00000003 737562"
        "00000002 6173",
    ),
    "empty group": (
        GroupValue("consumer", 8, None, None, 1_700_000_000_000),
        "0003 0008 636f6e73756d6572 00000008 ffff ffff 0000018bcfe56800 00000000",
    ),
}


def _written(value: object) -> bytes:
    match value:
        case OffsetKey() | GroupKey():
            return encode_key(value)
        case OffsetValue():
            return encode_offset(value)
        case GroupValue():
            return encode_group(value)
        case _:
            raise AssertionError


def _read(like: object, data: bytes) -> object:
    match like:
        case OffsetKey() | GroupKey():
            return decode_key(data)
        case OffsetValue():
            return decode_offset(data)
        case _:
            return decode_group(data)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_has_kafkas_bytes(name: str) -> None:
    value, text = GOLDEN[name]
    data = bytes.fromhex(text)
    assert _written(value) == data
    assert _read(value, data) == value


OLDER: dict[str, tuple[object, str]] = {
    "key of version 0": (OffsetKey("g", "t", 3), "0000 0001 67 0001 74 00000003"),
    "offset of version 0": (
        OffsetValue(42, -1, "", 9),
        "0000 000000000000002a 0000 0000000000000009",
    ),
    "offset of version 2": (
        OffsetValue(42, -1, "", 9),
        "0002 000000000000002a 0000 0000000000000009",
    ),
    "offset of version 4, with a tag": (
        OffsetValue(42, 5, "", 9),
        "0004 000000000000002a 00000005 01 0000000000000009 01 00 02 abcd",
    ),
    "group of version 0": (
        GroupValue("c", 1, "r", "m", -1, (MemberValue("m", None, "", "", 6, 6, b"", b""),)),
        "0000 0001 63 00000001 0001 72 0001 6d 00000001"
        "0001 6d 0000 0000 00000006 00000000 00000000",
    ),
    "group of version 4": (
        GroupValue("c", 1, None, None, 9, ()),
        "0004 02 63 00000001 00 00 0000000000000009 01 00",
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_what_other_versions_wrote_is_read(name: str) -> None:
    value, text = OLDER[name]
    assert _read(value, bytes.fromhex(text)) == value


def test_a_key_of_another_kind_is_passed_over() -> None:
    assert decode_key(bytes.fromhex("0003 0001 67")) is None


@given(data=st.binary(max_size=80), version=st.integers(0, 4))
def test_any_bytes_are_read_or_refused(data: bytes, version: int) -> None:
    for read in (decode_key, decode_offset, decode_group):
        for bytes_ in (data, version.to_bytes(2, "big") + data):
            try:
                read(bytes_)
            except RecordsError:
                continue
    topics_of(data)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(0, 2**31 - 1))
def test_keys_are_read_back(group: str, topic: str, partition: int) -> None:
    keys: tuple[Key, ...] = (OffsetKey(group, topic, partition), GroupKey(group))
    assert tuple(decode_key(encode_key(key)) for key in keys) == keys


def test_the_topics_of_a_subscription() -> None:
    assert topics_of(bytes.fromhex("0001 00000002 0001 61 0001 62 ffffffff")) == frozenset("ab")
    assert topics_of(b"not a subscription at all") is None
