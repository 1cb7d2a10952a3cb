"""What the fields of a message are, in each version: kio's classes, read into four small facts.

kio is generated from Kafka's own message files, so the names, types, versions and defaults are
Kafka's. We use it as a dictionary only. Its reader reserves memory for whatever count a frame
claims, which lets six bytes end the process; so `decode.py` and `encode.py` do the work, from these
facts.

Names are kio's: it leaves `_ms` out where a field is a duration (`timeout`, `throttle_time`).
Values are plain: milliseconds and error codes are int, ids are UUID, with zero for none.

A schema is loaded when it is first asked for: all of kio would take most of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum, IntEnum
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from ottla.proto.errors import LocalProtocolError
from ottla.proto.kafka.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.proto.kafka.apis import ApiRow

# Kinds of one fixed width, as `struct` names them. Whatever has a unit is a plain number here.
FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
STRUCT: Final = "struct"
_MILLISECOND: Final = timedelta(milliseconds=1)


class Direction(Enum):
    """Which half of an API a message is."""

    REQUEST = "request"
    RESPONSE = "response"


class Required(Enum):
    """The default of a field that has none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """One field of a message in one version."""

    name: str
    # A key of FIXED, or "string", "bytes", "records", "uuid", "struct".
    kind: str
    is_array: bool
    # Of the array, if it is one. Elements are never null.
    is_nullable: bool
    tag: int | None
    struct: StructSchema | None
    # A plain value (a mapping for a struct), or REQUIRED.
    default: Any

    @property
    def is_fixed(self) -> bool:
        return self.kind in FIXED and not self.is_array and self.tag is None


@dataclass(frozen=True, slots=True)
class StructSchema:
    """A message in one version, or a part of one that repeats."""

    name: str
    is_flexible: bool
    fields: tuple[FieldSchema, ...]


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Keep kio from loading a test library that happens to be installed: it takes longer than we.

    Where a test has loaded it already, nothing is kept from anybody.
    """
    if "hypothesis" in sys.modules:
        yield
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # means: not to be found
    try:
        yield
    finally:
        del sys.modules["hypothesis"]


@cache
def load_schema(row: ApiRow, version: int, direction: Direction) -> StructSchema:
    """Return what a body is made of. A version that the row has not is our mistake."""
    if not row.speaks(version):
        raise LocalProtocolError(f"{row!r} has no version {version}")
    with _without_hypothesis():
        module = import_module(f"kio.schema.{row.schema}.v{version}.{direction.value}")
    (entity,) = (
        found
        for found in vars(module).values()
        if is_dataclass(found)
        and isinstance(found, type)
        and found.__module__ == module.__name__
        and _role(found) == direction.value
    )
    return _struct(entity, f"{row.name} v{version} {direction.value}")


def _role(entity: Any) -> str:
    name: str = entity.__type__.name
    return name


def _struct(entity: Any, name: str) -> StructSchema:
    hints = get_type_hints(entity)
    return StructSchema(
        name=name,
        is_flexible=entity.__flexible__,
        fields=tuple(_field(found, hints[found.name], name) for found in fields(entity)),
    )


def _field(found: Field[Any], hint: Any, owner: str) -> FieldSchema:
    hint, is_nullable = _without_none(hint)
    is_array = get_origin(hint) is tuple
    if is_array:
        hint, _ = _without_none(get_args(hint)[0])
    kind = found.metadata.get("kafka_type", STRUCT)
    struct = _struct(hint, f"{owner}, {found.name}") if kind == STRUCT else None
    tag = found.metadata.get("tag")
    return FieldSchema(
        name=found.name,
        kind=kind,
        is_array=is_array,
        # kio has None where the wire has zero or -1: in ids and in times.
        is_nullable=is_nullable and (is_array or kind in ("string", "bytes", "records", STRUCT)),
        tag=None if tag is None else int(tag),
        struct=struct,
        default=_default(found.default, kind, struct, is_array=is_array, is_tagged=tag is not None),
    )


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is not UnionType:
        return hint, False
    (inner,) = (member for member in get_args(hint) if member is not NoneType)
    return inner, True


def _default(
    value: Any, kind: str, struct: StructSchema | None, *, is_array: bool, is_tagged: bool
) -> Any:
    if value is not MISSING:
        return plain_value(value, "" if is_array else kind)
    if not is_tagged:
        return REQUIRED
    # A tagged field may always be left out, and then is what Kafka calls its implicit default.
    if struct is not None:
        return {
            field.name: 0 if field.default is REQUIRED else field.default for field in struct.fields
        }
    return {"string": "", "bytes": b"", "uuid": ZERO_UUID}.get(kind, 0)


def plain_value(value: Any, kind: str = "") -> Any:
    """Return what kio holds in its own types, as plain numbers, texts, lists and mappings."""
    if value is None:
        return {"uuid": ZERO_UUID, "datetime_i64": -1}.get(kind)
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, timedelta):
        return round(value / _MILLISECOND)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, tuple):
        return [plain_value(element, kind) for element in value]
    if is_dataclass(value):
        return {
            found.name: plain_value(
                getattr(value, found.name), found.metadata.get("kafka_type", STRUCT)
            )
            for found in fields(value)
        }
    return value
