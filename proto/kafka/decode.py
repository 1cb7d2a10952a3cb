"""Bodies into messages: one reader per API, version and direction, compiled from the schema.

A reader is a row of steps. A step reads one field, or a run of fields of fixed width at once, and
returns the place after it. The bounds of `primitives.py` hold: what is read is checked before it is
believed, and whatever the bytes, a message or `RemoteProtocolError` comes out.

Texts and bytes are copied; `records` is a view into the body that was given.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from copy import copy
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.primitives import (
    ELEMENTS_MAX,
    RESPONSE_ELEMENTS_MAX,
    UUID_SIZE,
    Budget,
    Buffer,
    ends_early,
    is_null,
    read_compact_count,
    read_compact_size,
    read_compact_string,
    read_count,
    read_nullable_compact_string,
    read_nullable_string,
    read_size,
    read_string,
    read_tags,
    read_uuid,
)
from ottla.proto.kafka.schema import FIXED, Direction, FieldSchema, StructSchema, load_schema

if TYPE_CHECKING:
    from ottla.proto.kafka.apis import ApiRow

# Bytes, place, budget → value, place after it.
Reader = Callable[[memoryview, int, Budget], tuple[Any, int]]
# Bytes, place, budget, fields read so far (it adds its own) → place after it.
Step = Callable[[memoryview, int, Budget, dict[str, Any]], int]
Text = Callable[[Buffer, int, str], tuple[str | None, int]]


def decode_request(row: ApiRow, version: int, body: memoryview | bytes) -> Message:
    """Return the request, or raise `RemoteProtocolError`. The version is one that the row has.

    Bytes after the end are passed over, as Kafka 4.3.1 passes over them.
    """
    read = _reader_of(row, version, Direction.REQUEST)
    message, _ = read(memoryview(body), 0, Budget(ELEMENTS_MAX))
    return cast(Message, message)


def decode_response(row: ApiRow, version: int, body: memoryview | bytes) -> Message:
    """Return the response, or raise `RemoteProtocolError`, also for bytes after its end."""
    read = _reader_of(row, version, Direction.RESPONSE)
    message, end = read(memoryview(body), 0, Budget(RESPONSE_ELEMENTS_MAX))
    if end != len(body):
        raise RemoteProtocolError(
            f"{row.name} v{version} response: {len(body) - end} bytes after its end"
        )
    return cast(Message, message)


def prepare_request(row: ApiRow, version: int) -> None:
    """Make the reader of a request now, and not when the first one comes."""
    _reader_of(row, version, Direction.REQUEST)


@cache
def _reader_of(row: ApiRow, version: int, direction: Direction) -> Reader:
    return _struct_reader(load_schema(row, version, direction))


def _struct_reader(schema: StructSchema) -> Reader:
    steps: list[Step] = []
    untagged = [field for field in schema.fields if field.tag is None]
    for is_fixed, run in groupby(untagged, key=lambda field: field.is_fixed):
        if is_fixed:
            steps.append(_fixed_step(list(run), schema))
        else:
            steps.extend(_step(field, schema) for field in run)
    if schema.is_flexible:
        steps.append(_tags_step(schema))
    row_of_steps = tuple(steps)

    def read(data: memoryview, at: int, budget: Budget) -> tuple[Message, int]:
        fields: dict[str, Any] = {}
        for step in row_of_steps:
            at = step(data, at, budget, fields)
        return Message(fields), at

    return read


def _fixed_step(run: list[FieldSchema], schema: StructSchema) -> Step:
    layout = struct.Struct(">" + "".join(FIXED[field.kind] for field in run))
    unpack, size = layout.unpack_from, layout.size
    names = tuple(field.name for field in run)
    what = f"{schema.name}, {' and '.join(names)}"

    def step(data: memoryview, at: int, _: Budget, fields: dict[str, Any]) -> int:
        try:
            fields.update(zip(names, unpack(data, at), strict=True))
        except struct.error:
            ends_early(what)
        return at + size

    return step


def _step(field: FieldSchema, schema: StructSchema) -> Step:
    read = _field_reader(field, schema)
    name = field.name

    def step(data: memoryview, at: int, budget: Budget, fields: dict[str, Any]) -> int:
        fields[name], at = read(data, at, budget)
        return at

    return step


def _tags_step(schema: StructSchema) -> Step:
    tagged = [field for field in schema.fields if field.tag is not None]
    readers = {field.tag: (field.name, _field_reader(field, schema)) for field in tagged}
    defaults = tuple((field.name, default_maker(field)) for field in tagged)
    what = f"{schema.name}, tagged fields"

    def step(data: memoryview, at: int, budget: Budget, fields: dict[str, Any]) -> int:
        for name, make in defaults:
            fields[name] = make()
        # Nearly always there are none.
        if at < len(data) and data[at] == 0:
            return at + 1
        places, after = read_tags(data, at, what)
        for tag, start, end in places:
            if tag in readers:
                name, read = readers[tag]
                # The field sees its own bytes only, and has to use them all.
                fields[name], used = read(data[:end], start, budget)
                if used != end:
                    raise RemoteProtocolError(f"{what}: {name} is shorter than its size says")
        return after

    return step


def default_maker(field: FieldSchema) -> Callable[[], Any]:
    """Return what makes the field's default, a new one each time if it could be changed."""
    default = field.default
    if field.is_array and default is not None:
        return lambda: list(default)
    if field.struct is not None and default is not None:
        return lambda: Message(copy(default))
    return lambda: default


def _field_reader(field: FieldSchema, schema: StructSchema) -> Reader:
    what = f"{schema.name}, {field.name}"
    if field.is_array:
        return _array_reader(field, schema, what)
    return _value_reader(field, what, flexible=schema.is_flexible)


def _value_reader(field: FieldSchema, what: str, *, flexible: bool) -> Reader:
    if field.struct is not None:
        read = _struct_reader(field.struct)
        return _nullable_struct_reader(read, what) if field.is_nullable else read
    if field.kind in FIXED:
        return _fixed_reader(field.kind, what)
    if field.kind == "uuid":
        return _uuid_reader(what)
    if field.kind == "string":
        return _string_reader(_TEXTS[flexible, field.is_nullable], what)
    return _bytes_reader(field, what, flexible=flexible)


_TEXTS: Final[dict[tuple[bool, bool], Text]] = {
    (False, False): read_string,
    (False, True): read_nullable_string,
    (True, False): read_compact_string,
    (True, True): read_nullable_compact_string,
}


def _string_reader(read_text: Text, what: str) -> Reader:
    def read(data: memoryview, at: int, _: Budget) -> tuple[str | None, int]:
        return read_text(data, at, what)

    return read


def _fixed_reader(kind: str, what: str) -> Reader:
    layout = struct.Struct(">" + FIXED[kind])
    unpack, size = layout.unpack_from, layout.size

    def read(data: memoryview, at: int, _: Budget) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            ends_early(what)

    return read


def _uuid_reader(what: str) -> Reader:
    def read(data: memoryview, at: int, _: Budget) -> tuple[Any, int]:
        return read_uuid(data, at, what)

    return read


def _bytes_reader(field: FieldSchema, what: str, *, flexible: bool) -> Reader:
    size_of = read_compact_size if flexible else read_size
    is_nullable = field.is_nullable
    is_copied = field.kind == "bytes"

    def read(data: memoryview, at: int, _: Budget) -> tuple[bytes | memoryview | None, int]:
        size, at = size_of(data, at, what)
        if size < 0:
            return (None, at) if is_nullable else is_null(what)
        end = at + size
        return (bytes(data[at:end]) if is_copied else data[at:end]), end

    return read


def _nullable_struct_reader(read_struct: Reader, what: str) -> Reader:
    def read(data: memoryview, at: int, budget: Budget) -> tuple[Message | None, int]:
        # KIP-893: one signed byte in front, below zero for null.
        if at >= len(data):
            ends_early(what)
        if data[at] >= 0x80:
            return None, at + 1
        return read_struct(data, at + 1, budget)

    return read


def _array_reader(field: FieldSchema, schema: StructSchema, what: str) -> Reader:
    count_of = read_compact_count if schema.is_flexible else read_count
    least = _least_size(field, flexible=schema.is_flexible)
    is_nullable = field.is_nullable
    read_all = _elements_reader(field, what, flexible=schema.is_flexible)

    def read(data: memoryview, at: int, budget: Budget) -> tuple[list[Any] | None, int]:
        count, at = count_of(data, at, least, budget, what)
        if count < 0:
            return (None, at) if is_nullable else is_null(what)
        return read_all(data, at, budget, count)

    return read


def _elements_reader(
    field: FieldSchema, what: str, *, flexible: bool
) -> Callable[[memoryview, int, Budget, int], tuple[list[Any], int]]:
    if field.kind in FIXED:
        code, size = FIXED[field.kind], struct.calcsize(">" + FIXED[field.kind])

        def read_numbers(data: memoryview, at: int, _: Budget, count: int) -> tuple[list[Any], int]:
            # The count was compared with the bytes that are left.
            return list(struct.unpack_from(f">{count}{code}", data, at)), at + count * size

        return read_numbers

    read = _value_reader(_element_of(field), what, flexible=flexible)

    def read_values(data: memoryview, at: int, budget: Budget, count: int) -> tuple[list[Any], int]:
        values = []
        for _ in range(count):
            value, at = read(data, at, budget)
            values.append(value)
        return values, at

    return read_values


def _element_of(field: FieldSchema) -> FieldSchema:
    return FieldSchema(
        name=field.name,
        kind=field.kind,
        is_array=False,
        is_nullable=False,
        tag=None,
        struct=field.struct,
        default=None,
    )


def _least_size(field: FieldSchema, *, flexible: bool) -> int:
    """Return the fewest bytes that one element can take, and one at least."""
    if field.struct is None:
        return _least_value(field.kind, flexible=flexible)
    return max(1, _least_struct(field.struct))


def _least_struct(schema: StructSchema) -> int:
    total = 1 if schema.is_flexible else 0
    for field in schema.fields:
        if field.tag is not None:
            continue
        if field.is_array:
            total += 1 if schema.is_flexible else 4
        elif field.struct is not None:
            total += 1 if field.is_nullable else _least_struct(field.struct)
        else:
            total += _least_value(field.kind, flexible=schema.is_flexible)
    return total


def _least_value(kind: str, *, flexible: bool) -> int:
    if kind in FIXED:
        return struct.calcsize(">" + FIXED[kind])
    if kind == "uuid":
        return UUID_SIZE
    if flexible:
        return 1
    return 2 if kind == "string" else 4
