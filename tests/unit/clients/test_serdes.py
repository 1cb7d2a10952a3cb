"""Keys and values as Java's serializers write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.errors import DeserializationError, SerdeError
from ottla.clients.serdes import SERDES, Serde, deserialize

# Value, and the bytes of Java's serializer of that type.
GOLDEN: list[tuple[str, Any, bytes]] = [
    ("string", "ä€", b"\xc3\xa4\xe2\x82\xac"),
    ("int32", -2, b"\xff\xff\xff\xfe"),
    ("int64", 258, b"\0\0\0\0\0\0\x01\x02"),
    ("float64", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
    ("bytes", b"\0\xff", b"\0\xff"),
    ("json", {"a": [1, "ä"]}, b'{"a":[1,"\xc3\xa4"]}'),
]


@pytest.mark.parametrize(("name", "value", "data"), GOLDEN)
def test_bytes_are_those_of_java_both_ways(name: str, value: Any, data: bytes) -> None:
    assert SERDES[name].serialize("t", value) == data
    assert SERDES[name].deserialize("t", data) == value


@pytest.mark.parametrize("name", SERDES)
def test_nothing_stays_nothing(name: str) -> None:
    assert SERDES[name].serialize("t", None) is None
    assert SERDES[name].deserialize("t", None) is None


@pytest.mark.parametrize("name", SERDES)
def test_each_is_a_serde(name: str) -> None:
    assert isinstance(SERDES[name], Serde)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_come_back(number: int) -> None:
    assert SERDES["int64"].deserialize("t", SERDES["int64"].serialize("t", number)) == number


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("string", 5),
        ("int32", "5"),
        ("int32", True),
        ("int32", 1 << 31),
        ("int64", 1 << 63),
        ("int64", 1.5),
        ("float64", "x"),
        ("bytes", "text"),
        ("json", {1, 2}),
    ],
)
def test_what_does_not_fit_is_told_with_the_topic(name: str, value: object) -> None:
    with pytest.raises(SerdeError, match=r"^orders: "):
        SERDES[name].serialize("orders", value)


@pytest.mark.parametrize(
    ("name", "data"), [("int32", b"\0"), ("string", b"\xff"), ("json", b"{"), ("float64", b"")]
)
def test_bytes_that_cannot_be_read_are_told_with_their_place(name: str, data: bytes) -> None:
    with pytest.raises(DeserializationError) as told:
        deserialize(SERDES[name], data, topic="orders", partition=3, offset=42, part="key")
    assert str(told.value).startswith(
        "the key of the record at offset 42 of orders-3 cannot be read: "
    )
    assert (told.value.topic, told.value.partition, told.value.offset) == ("orders", 3, 42)
