"""Shapes: what is written is read back, and nothing reads further than there is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.shapes import (
    BYTES,
    FLAG,
    ID,
    INDEXES,
    NUMBER,
    TEXT,
    Reader,
    Shape,
    chosen,
    listed,
    mapped,
    optional,
    paired,
)
from ottla.proto.errors import CorruptionError
from ottla.proto.kafka.uuids import UUID

_texts = st.text(st.characters(exclude_categories=["Cs"]))
_ROWS: list[tuple[str, Shape[Any], st.SearchStrategy[Any]]] = [
    ("number", NUMBER, st.integers(-(2**68), 2**68)),
    ("flag", FLAG, st.booleans()),
    ("bytes", BYTES, st.binary()),
    ("text", TEXT, _texts),
    ("id", ID, st.integers(0, 2**128 - 1).map(lambda number: UUID(int=number))),
    ("optional", optional(NUMBER), st.none() | st.integers(-5, 5)),
    ("listed", listed(TEXT), st.lists(_texts).map(tuple)),
    ("paired", paired(NUMBER, TEXT), st.tuples(st.integers(-5, 5), _texts)),
    ("mapped", mapped(TEXT, NUMBER), st.dictionaries(_texts, st.integers(-5, 5))),
    ("chosen", chosen("a", "b"), st.sampled_from(["a", "b"])),
    ("indexes", INDEXES, st.sets(st.integers(0, 300)).map(sorted).map(tuple)),
]
shapes = pytest.mark.parametrize(
    ("shape", "values"), [row[1:] for row in _ROWS], ids=[row[0] for row in _ROWS]
)


def _written(shape: Shape[Any], value: object) -> bytes:
    out = bytearray()
    shape.write(out, value)
    return bytes(out)


@shapes
@given(data=st.data())
def test_what_is_written_is_read_back_and_nothing_is_left(
    shape: Shape[Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    value = data.draw(values)
    reader = Reader(_written(shape, value), "It")
    assert shape.read(reader) == value
    reader.require_end()


@shapes
@given(data=st.data())
def test_what_is_cut_short_is_refused(
    shape: Shape[Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    written = _written(shape, data.draw(values))
    size = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(CorruptionError, match=r"^It cannot be read: .*\.$"):
        shape.read(Reader(written[:size], "It"))


@shapes
@given(data=st.data())
def test_garbage_raises_one_kind_of_error(
    shape: Shape[Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    with suppress(CorruptionError):
        shape.read(Reader(data.draw(st.binary()), "It"))


def test_equal_maps_have_equal_bytes_in_whatever_order_they_were_made() -> None:
    shape = mapped(TEXT, NUMBER)
    assert _written(shape, {"a": 1, "b": 2}) == _written(shape, {"b": 2, "a": 1})


def test_a_key_that_stands_twice_is_refused() -> None:
    twice = _written(listed(paired(NUMBER, NUMBER)), ((1, 2), (1, 3)))
    with pytest.raises(CorruptionError, match="twice"):
        mapped(NUMBER, NUMBER).read(Reader(twice, "It"))


def test_a_number_of_more_than_69_bits_is_not_written() -> None:
    with pytest.raises(ValueError, match="too large"):
        _written(NUMBER, 2**70)
