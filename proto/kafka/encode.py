"""Messages into bodies: one writer per API, version and direction, compiled from the schema.

What is given may be a mapping or a `Message`, nested at will, with plain values. Keys that the
version does not have are passed over, so that one answer serves every version. A key that is not
there takes the schema's default; where there is none, it is our mistake: `LocalProtocolError`.

Tagged fields are written only if they differ from their default, as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from ottla.proto.errors import LocalProtocolError
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.primitives import STRING_MAX, uvarint
from ottla.proto.kafka.schema import (
    FIXED,
    REQUIRED,
    Direction,
    FieldSchema,
    StructSchema,
    load_schema,
)

if TYPE_CHECKING:
    from ottla.proto.kafka.apis import ApiRow

# Value → appended to the bytes.
Writer = Callable[[Any, bytearray], None]

_pack_int16: Final = struct.Struct(">h").pack
_pack_int32: Final = struct.Struct(">i").pack


def encode_request(row: ApiRow, version: int, fields: Mapping[str, Any] | Message) -> bytes:
    return _encode(row, version, Direction.REQUEST, fields)


def encode_response(row: ApiRow, version: int, fields: Mapping[str, Any] | Message) -> bytes:
    """Return the body. It has no header: `framing.response_head` is what goes in front."""
    return _encode(row, version, Direction.RESPONSE, fields)


def prepare_response(row: ApiRow, version: int) -> None:
    """Make the writer of a response now, and not when the first one goes."""
    _writer_of(row, version, Direction.RESPONSE)


def _encode(
    row: ApiRow, version: int, direction: Direction, fields: Mapping[str, Any] | Message
) -> bytes:
    out = bytearray()
    _writer_of(row, version, direction)(fields, out)
    return bytes(out)


@cache
def _writer_of(row: ApiRow, version: int, direction: Direction) -> Writer:
    return _struct_writer(load_schema(row, version, direction))


def _struct_writer(schema: StructSchema) -> Writer:
    steps: list[Writer] = []
    untagged = [field for field in schema.fields if field.tag is None]
    for is_fixed, run in groupby(untagged, key=lambda field: field.is_fixed):
        if is_fixed:
            steps.append(_fixed_step(list(run), schema))
        else:
            steps.extend(_step(field, schema) for field in run)
    if schema.is_flexible:
        steps.append(_tags_step(schema))
    row_of_steps = tuple(steps)
    name = schema.name

    def write(value: Any, out: bytearray) -> None:
        fields = value.__dict__ if type(value) is Message else value
        if not isinstance(fields, Mapping):
            raise LocalProtocolError(f"{name}: {value!r} is no mapping and no message")
        for step in row_of_steps:
            step(fields, out)

    return write


def _fixed_step(run: list[FieldSchema], schema: StructSchema) -> Writer:
    pack = struct.Struct(">" + "".join(FIXED[field.kind] for field in run)).pack
    one_by_one = tuple(_step(field, schema) for field in run)
    names = [field.name for field in run]
    values_of = itemgetter(*names) if len(names) > 1 else None
    only = names[0]

    def step(fields: Mapping[str, Any], out: bytearray) -> None:
        try:
            packed = pack(*values_of(fields)) if values_of else pack(fields[only])
        except (KeyError, struct.error):
            packed = None
        if packed is not None:
            out += packed
            return
        # A default is needed, or a value does not fit: slower, but it knows which.
        for write in one_by_one:
            write(fields, out)

    return step


def _step(field: FieldSchema, schema: StructSchema) -> Writer:
    write = _field_writer(field, schema)
    name, default = field.name, field.default
    what = f"{schema.name}, {name}"

    def step(fields: Mapping[str, Any], out: bytearray) -> None:
        value = fields.get(name, default)
        if value is REQUIRED:
            raise LocalProtocolError(f"{what}: is missing and has no default")
        try:
            write(value, out)
        except (struct.error, TypeError, AttributeError, UnicodeError) as error:
            raise LocalProtocolError(f"{what}: cannot be written: {error}") from error

    return step


def _tags_step(schema: StructSchema) -> Writer:
    tagged = sorted(
        (field for field in schema.fields if field.tag is not None),
        key=lambda field: field.tag or 0,
    )
    rows = []
    for field in tagged:
        write = _field_writer(field, schema)
        default = bytearray()
        write(field.default, default)
        rows.append((field.name, uvarint(field.tag or 0), _step(field, schema), bytes(default)))

    def step(fields: Mapping[str, Any], out: bytearray) -> None:
        count = 0
        section = b""
        for name, tag, write, default in rows:
            if name in fields:
                value = bytearray()
                write(fields, value)
                if value != default:
                    count += 1
                    section += tag + uvarint(len(value)) + value
        out += uvarint(count)
        out += section

    return step


def _field_writer(field: FieldSchema, schema: StructSchema) -> Writer:
    what = f"{schema.name}, {field.name}"
    write = _value_writer(field, what, flexible=schema.is_flexible)
    if field.is_array:
        return _array_writer(write, field, what, flexible=schema.is_flexible)
    return write


def _value_writer(field: FieldSchema, what: str, *, flexible: bool) -> Writer:
    # Of an array, only the array can be null.
    is_nullable = field.is_nullable and not field.is_array
    if field.struct is not None:
        write = _struct_writer(field.struct)
        return _nullable_struct_writer(write) if is_nullable else write
    if field.kind in FIXED:
        return _fixed_writer(field.kind)
    if field.kind == "uuid":
        return _write_uuid
    if field.kind == "string":
        write = _write_compact_string if flexible else _write_string
        null = b"\x00" if flexible else b"\xff\xff"
    else:
        write = _write_compact_bytes if flexible else _write_bytes
        null = b"\x00" if flexible else b"\xff\xff\xff\xff"
    return _null_or(write, null, what, is_nullable=is_nullable)


def _null_or(write: Writer, null: bytes, what: str, *, is_nullable: bool) -> Writer:
    def write_value(value: Any, out: bytearray) -> None:
        if value is not None:
            write(value, out)
        elif is_nullable:
            out += null
        else:
            raise LocalProtocolError(f"{what}: null, where the protocol allows no null")

    return write_value


def _fixed_writer(kind: str) -> Writer:
    pack = struct.Struct(">" + FIXED[kind]).pack

    def write(value: Any, out: bytearray) -> None:
        out += pack(value)

    return write


def _write_uuid(value: Any, out: bytearray) -> None:
    out += value.bytes


def _text_bytes(value: str) -> bytes:
    raw = value.encode()
    if len(raw) > STRING_MAX:
        raise LocalProtocolError(f"a text of {len(raw)} bytes; {STRING_MAX} are allowed")
    return raw


def _write_string(value: Any, out: bytearray) -> None:
    raw = _text_bytes(value)
    out += _pack_int16(len(raw))
    out += raw


def _write_compact_string(value: Any, out: bytearray) -> None:
    raw = _text_bytes(value)
    out += uvarint(len(raw) + 1)
    out += raw


def _write_bytes(value: Any, out: bytearray) -> None:
    out += _pack_int32(len(value))
    out += value


def _write_compact_bytes(value: Any, out: bytearray) -> None:
    out += uvarint(len(value) + 1)
    out += value


def _nullable_struct_writer(write_struct: Writer) -> Writer:
    def write(value: Any, out: bytearray) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            write_struct(value, out)

    return write


def _array_writer(write: Writer, field: FieldSchema, what: str, *, flexible: bool) -> Writer:
    code = FIXED.get(field.kind)
    null = b"\x00" if flexible else b"\xff\xff\xff\xff"

    def write_array(values: Any, out: bytearray) -> None:
        count = len(values)
        out += uvarint(count + 1) if flexible else _pack_int32(count)
        if code is not None:
            out += struct.pack(f">{count}{code}", *values)
        else:
            for value in values:
                write(value, out)

    return _null_or(write_array, null, what, is_nullable=field.is_nullable)
