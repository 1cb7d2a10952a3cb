"""Values in Avro's binary form, read by a schema: pure, bounded, one sentence for what is wrong.

Spark's own `from_avro` is a jar of its own that must fit Spark's version; this needs none. A schema
is compiled once into small functions, one for each type; a value is then read by calling the
outermost.

A1  every length and count is compared with the bytes that are left before anything is made of it
A2  all bytes of a value belong to it: what is left over is an error
A3  a record of a schema registry begins with a zero byte and four bytes of an id, and `framing`
    says whether they are there; the id is not looked up: the schema is the file's

Types: null, boolean, int, long, float, double, bytes, string, record, enum, fixed, array, map, and
unions of null and one other type. Logical: date, timestamp-millis, timestamp-micros. What else a
schema has is refused when it is compiled.

Not here: Spark (`parsing.py`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from ottla.proto.errors import ConfigError, OttlaError

DEPTH_MAX: Final = 32
ITEMS_MAX: Final = 100_000
FRAMING_BYTES: Final = 5
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1)

# Bytes and a place in them → a value and the place after it.
Decoder = Callable[[bytes, int], tuple[Any, int]]


class AvroError(OttlaError):
    """Bytes that are no value of their schema."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A compiled schema: how its values are read, and what Spark calls their type."""

    decode: Decoder
    # Columns as Spark's DDL names them: "id string, at timestamp".
    ddl: str
    names: tuple[str, ...]

    def read(self, data: bytes | None, *, framed: bool = False) -> dict[str, Any]:
        """Return the record in the bytes, or raise `AvroError`."""
        if data is None:
            raise AvroError("the value is null.")
        at = 0
        if framed:
            if len(data) < FRAMING_BYTES or data[0] != 0:
                raise AvroError("the value does not begin with the id of a schema.")
            at = FRAMING_BYTES
        value, end = self.decode(data, at)
        if end != len(data):
            raise AvroError(f"{len(data) - end} bytes are left after the value.")
        found: dict[str, Any] = value
        return found


def compile_schema(text: str) -> AvroSchema:
    """Return the schema of a JSON text, whose outermost type is a record."""
    try:
        told = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"the Avro schema is no JSON: {error}.") from None
    if not isinstance(told, dict) or told.get("type") != "record":
        raise ConfigError("the Avro schema must be a record.")
    compiler = _Compiler()
    decode, kind = compiler.record(told, 0)
    fields = tuple(field["name"] for field in told["fields"])
    return AvroSchema(decode, kind.removeprefix("struct<").removesuffix(">"), fields)


class _Compiler:
    """Makes decoders; knows the names that a schema has given so far."""

    def __init__(self) -> None:
        self._named: Final = dict[str, tuple[Decoder, str]]()

    def any(self, told: Any, depth: int) -> tuple[Decoder, str]:
        if depth > DEPTH_MAX:
            raise ConfigError(f"the Avro schema is more than {DEPTH_MAX} types deep.")
        if isinstance(told, list):
            return self._union(told, depth)
        if isinstance(told, str):
            found = _PRIMITIVES.get(told) or self._named.get(told)
            if found is None:
                raise ConfigError(f"the Avro schema has the type {told[:64]!r}, which is not read.")
            return found
        if not isinstance(told, dict):
            raise ConfigError(f"the Avro schema has {str(told)[:64]!r} where a type should be.")
        return self._table(told, depth)

    def _table(self, told: Mapping[str, Any], depth: int) -> tuple[Decoder, str]:
        kind, logical = told.get("type"), told.get("logicalType")
        if logical is not None:
            return _logical(kind, logical)
        match kind:
            case "record":
                return self.record(told, depth)
            case "array":
                inner, name = self.any(told.get("items"), depth + 1)
                return _array(inner), f"array<{name}>"
            case "map":
                inner, name = self.any(told.get("values"), depth + 1)
                return _map(inner), f"map<string,{name}>"
            case "enum":
                return self._remember(told, _enum(_symbols(told)), "string")
            case "fixed":
                size = told.get("size")
                if not isinstance(size, int) or not 0 <= size <= ITEMS_MAX:
                    raise ConfigError(f"the Avro schema has a fixed type of size {size!r}.")
                return self._remember(told, _fixed(size), "binary")
            case _:
                return self.any(kind, depth + 1)

    def record(self, told: Mapping[str, Any], depth: int) -> tuple[Decoder, str]:
        fields = told.get("fields")
        if not isinstance(fields, list) or not fields:
            raise ConfigError("a record of the Avro schema needs fields.")
        parts, columns = list[tuple[str, Decoder]](), list[str]()
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not name.isidentifier():
                raise ConfigError(f"a field of the Avro schema has no good name: {name!r}.")
            decode, kind = self.any(field.get("type"), depth + 1)
            parts.append((name, decode))
            separator = " " if depth == 0 else ":"
            columns.append(f"`{name}`{separator}{kind}")
        return self._remember(told, _record(tuple(parts)), f"struct<{', '.join(columns)}>")

    def _union(self, told: list[Any], depth: int) -> tuple[Decoder, str]:
        others = [one for one in told if one != "null"]
        if len(told) != 2 or len(others) != 1:
            raise ConfigError("a union of the Avro schema must be of null and one other type.")
        inner, kind = self.any(others[0], depth + 1)
        return _nullable(inner, told.index("null")), kind

    def _remember(self, told: Mapping[str, Any], decode: Decoder, kind: str) -> tuple[Decoder, str]:
        name = told.get("name")
        if isinstance(name, str):
            self._named[name] = (decode, kind)
        return decode, kind


def _symbols(told: Mapping[str, Any]) -> tuple[str, ...]:
    symbols = told.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise ConfigError("an enum of the Avro schema needs symbols.")
    return tuple(symbols)


def _logical(kind: Any, logical: Any) -> tuple[Decoder, str]:
    match kind, logical:
        case "int", "date":
            return _date, "date"
        case "long", "timestamp-millis":
            return _timestamp(1000), "timestamp"
        case "long", "timestamp-micros":
            return _timestamp(1), "timestamp"
        case _:
            raise ConfigError(f"the Avro schema has the type {logical} of {kind}, not read here.")


# --- decoders -------------------------------------------------------------------------------------


def _long(data: bytes, at: int) -> tuple[int, int]:
    folded, shift = 0, 0
    while True:
        if at >= len(data):
            raise AvroError("the value ends inside a number.")
        byte = data[at]
        at += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise AvroError("a number has more than 64 bits.")
    if folded >= 1 << 64:
        raise AvroError("a number has more than 64 bits.")
    return (folded >> 1) ^ -(folded & 1), at


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _long(data, at)
    if not -(1 << 31) <= number < 1 << 31:
        raise AvroError(f"{number} is no int.")
    return number, at


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if at >= len(data) or data[at] > 1:
        raise AvroError("a boolean is neither 0 nor 1.")
    return data[at] == 1, at + 1


def _number(form: str) -> Decoder:
    # No Struct of its own: decoders are sent to tasks, and that cannot be.
    size = struct.calcsize(form)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if at + size > len(data):
            raise AvroError("the value ends inside a number.")
        return struct.unpack_from(form, data, at)[0], at + size

    return decode


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise AvroError(f"{size} bytes are announced, and {len(data) - at} are left.")
    return data[at : at + size], at + size


def _string(data: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes(data, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        raise AvroError("a string is no UTF-8.") from None


def _fixed(size: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise AvroError("the value ends inside a fixed type.")
        return data[at : at + size], at + size

    return decode


def _enum(symbols: tuple[str, ...]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(symbols):
            raise AvroError(f"an enum of {len(symbols)} symbols has no number {number}.")
        return symbols[number], at

    return decode


def _record(fields: tuple[tuple[str, Decoder], ...]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found = dict[str, Any]()
        for name, inner in fields:
            found[name], at = inner(data, at)
        return found, at

    return decode


def _nullable(inner: Decoder, null_at: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long(data, at)
        if branch not in (0, 1):
            raise AvroError(f"a union of two types has no number {branch}.")
        return (None, at) if branch == null_at else inner(data, at)

    return decode


def _block(data: bytes, at: int, sofar: int) -> tuple[int, int]:
    """Return how many items come next, and where they begin."""
    count, at = _long(data, at)
    if count < 0:
        # Then the size of the block in bytes follows, for whoever wants to skip it.
        count, (_, at) = -count, _long(data, at)
    if count > ITEMS_MAX - sofar:
        raise AvroError(f"an array or map has more than {ITEMS_MAX} items.")
    return count, at


def _array(inner: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[list[Any], int]:
        found = list[Any]()
        while True:
            count, at = _block(data, at, len(found))
            if not count:
                return found, at
            for _ in range(count):
                one, at = inner(data, at)
                found.append(one)

    return decode


def _map(inner: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        found, read = dict[str, Any](), 0
        while True:
            count, at = _block(data, at, read)
            if not count:
                return found, at
            read += count
            for _ in range(count):
                key, at = _string(data, at)
                found[key], at = inner(data, at)

    return decode


def _date(data: bytes, at: int) -> tuple[date, int]:
    days, at = _int(data, at)
    try:
        return _EPOCH_DAY + timedelta(days=days), at
    except OverflowError:
        raise AvroError(f"{days} days from 1970 are no date.") from None


def _timestamp(factor: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[datetime, int]:
        number, at = _long(data, at)
        try:
            return _EPOCH + timedelta(microseconds=number * factor), at
        except OverflowError:
            raise AvroError(f"{number} is no time.") from None

    return decode


_PRIMITIVES: Final[Mapping[str, tuple[Decoder, str]]] = {
    "null": (_null, "void"),
    "boolean": (_boolean, "boolean"),
    "int": (_int, "int"),
    "long": (_long, "bigint"),
    "float": (_number("<f"), "float"),
    "double": (_number("<d"), "double"),
    "bytes": (_bytes, "binary"),
    "string": (_string, "string"),
}
