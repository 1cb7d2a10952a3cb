"""Avro's binary form: what is read, and that wrong bytes end in a sentence and nothing else."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.pipeline.avro import ITEMS_MAX, AvroError, compile_schema
from ottla.proto.errors import ConfigError


def _long(number: int) -> bytes:
    folded = (number << 1) ^ (number >> 63)
    out = bytearray()
    while folded >= 0x80:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    out.append(folded)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode()
    return _long(len(data)) + data


def _schema(*fields: tuple[str, Any]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "r", "fields": listed})


WHOLE = _schema(
    ("id", "string"),
    ("count", "long"),
    ("ratio", "double"),
    ("yes", "boolean"),
    ("maybe", ["null", "int"]),
    ("kind", {"type": "enum", "name": "kind", "symbols": ["red", "blue"]}),
    ("tags", {"type": "array", "items": "string"}),
    ("sizes", {"type": "map", "values": "int"}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("four", {"type": "fixed", "name": "four", "size": 4}),
    ("inner", {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}]}),
)
BYTES = (
    _text("é")
    + _long(-5)
    + struct.pack("<d", 0.5)
    + b"\x01"
    + _long(1)
    + _long(7)
    + _long(1)
    + (_long(-2) + _long(99) + _text("a") + _text("b") + _long(0))
    + (_long(1) + _text("m") + _long(3) + _long(0))
    + _long(1_700_000_000_123)
    + _long(1)
    + b"abcd"
    + _long(9)
)


def test_every_type_is_read() -> None:
    schema = compile_schema(WHOLE)
    assert schema.read(BYTES) == {
        "id": "é",
        "count": -5,
        "ratio": 0.5,
        "yes": True,
        "maybe": 7,
        "kind": "blue",
        "tags": ["a", "b"],
        "sizes": {"m": 3},
        "at": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "day": date(1970, 1, 2),
        "four": b"abcd",
        "inner": {"x": 9},
    }
    assert schema.ddl.startswith("`id` string, `count` bigint, `ratio` double, `yes` boolean")
    assert schema.ddl.endswith("`four` binary, `inner` struct<`x`:int>")


def test_the_id_of_a_schema_registry_is_passed_over_where_it_is_announced() -> None:
    schema = compile_schema(_schema(("n", "int")))
    assert schema.read(b"\0\0\0\0\7" + _long(3), framed=True) == {"n": 3}
    with pytest.raises(AvroError, match="does not begin with the id of a schema"):
        schema.read(_long(3), framed=True)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_is_read_as_it_was_written(number: int) -> None:
    assert compile_schema(_schema(("n", "long"))).read(_long(number)) == {"n": number}


@given(st.integers(0, len(BYTES) - 1))
def test_a_value_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(AvroError):
        compile_schema(WHOLE).read(BYTES[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(AvroError):
        assert compile_schema(WHOLE).read(data).keys() >= {"id", "inner"}


@pytest.mark.parametrize(
    ("fields", "data", "sentence"),
    [
        ([("n", "int")], _long(1) + b"x", "1 bytes are left after the value."),
        ([("n", "int")], _long(1 << 40), "1099511627776 is no int."),
        ([("s", "string")], _long(1 << 40), "1099511627776 bytes are announced"),
        ([("s", "bytes")], _long(-1), "-1 bytes are announced"),
        ([("n", "long")], b"\xff" * 11, "more than 64 bits"),
        ([("n", ["null", "int"])], _long(2), "a union of two types has no number 2"),
        ([("a", {"type": "array", "items": "null"})], _long(ITEMS_MAX + 1), "more than 100000"),
        ([("a", {"type": "map", "values": "null"})], _long(-(1 << 62)) + b"\0", "more than 100000"),
    ],
)
def test_bytes_that_promise_too_much_are_refused(
    fields: list[tuple[str, Any]], data: bytes, sentence: str
) -> None:
    with pytest.raises(AvroError, match=sentence):
        compile_schema(_schema(*fields)).read(data)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "the Avro schema is no JSON"),
        ('"int"', "the Avro schema must be a record"),
        ('{"type": "record", "fields": []}', "needs fields"),
        (_schema(("n", "integer")), "has the type 'integer', which is not read"),
        (_schema(("n", ["int", "string"])), "a union of the Avro schema must be of null and one"),
        (_schema(("n", {"type": "bytes", "logicalType": "decimal"})), "the type decimal of bytes"),
        (_schema(("a b", "int")), "a field of the Avro schema has no good name: 'a b'"),
        (_schema(("r", "r")), "has the type 'r', which is not read"),
    ],
)
def test_a_schema_that_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        compile_schema(text)
