"""Messages in kio's own classes, drawn from a seed, each beside the plain values we should read.

kio's writer is the measure: it is generated from Kafka's schemas and tested against Java by its
makers. Nothing here uses `ottla.proto.kafka.schema`, so that a mistake there shows.
"""

from __future__ import annotations

import io
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from ottla.proto.kafka.apis import KNOWN_APIS, ApiRow

HALVES = ("request", "response")
# Every API and version that we know.
VERSIONS = [(row, version) for row in KNOWN_APIS for version in range(row.low, row.high + 1)]

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# The long one needs two bytes for its compact length.
TEXTS = ("", "a", "orders", "größe-ß-日本", "x" * 200, "nul\0inside")
ZERO = UUID(int=0)


@cache
def entity_class(row: ApiRow, version: int, half: str) -> Any:
    module = import_module(f"kio.schema.{row.schema}.v{version}.{half}")
    (found,) = (
        value
        for value in vars(module).values()
        if is_dataclass(value)
        and value.__module__ == module.__name__
        and value.__type__.name == half  # type: ignore[union-attr]
    )
    return found


def written(entity: Any) -> bytes:
    """Return what kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def draw_message(random: Random, entity: Any, longest: int = 3) -> tuple[Any, dict[str, Any]]:
    """Return an entity of kio's, and the same as plain values."""
    theirs: dict[str, Any] = {}
    ours: dict[str, Any] = {}
    for field in fields(entity):
        hint, is_nullable = _without_none(field.type)
        if is_nullable and random.random() < 0.2:
            # A tagged field is null by not being there, and kio has no other way to say it.
            theirs[field.name], ours[field.name] = None, _plain_null(field, hint)
        elif "tag" in field.metadata and random.random() < 0.4:
            continue
        else:
            theirs[field.name], ours[field.name] = _value(random, field, hint, longest)
    built = entity(**theirs)
    for field in fields(entity):
        if field.name not in ours:
            ours[field.name] = plain(getattr(built, field.name), field)
    return built, ours


def _value(random: Random, field: Any, hint: Any, longest: int) -> tuple[Any, Any]:
    if get_origin(hint) is not tuple:
        return _scalar(random, field, hint, longest)
    inner, _ = _without_none(get_args(hint)[0])
    pairs = [_scalar(random, field, inner, longest) for _ in range(random.randint(0, longest))]
    return tuple(theirs for theirs, _ in pairs), [ours for _, ours in pairs]


def _scalar(random: Random, field: Any, hint: Any, longest: int) -> tuple[Any, Any]:
    kind = field.metadata.get("kafka_type")
    if kind is None:
        return draw_message(random, hint, longest)
    if kind in ("timedelta_i32", "timedelta_i64"):
        duration = random.choice((0, -1, 1, 30_000, 2**31 - 1, -(2**31)))
        return timedelta(milliseconds=duration), duration
    if kind == "datetime_i64":
        time = random.choice((0, 1, 1_700_000_000_123, 10**13 + 999))
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time), time
    if kind == "error_code":
        code = random.choice(list(ErrorCode))
        return code, int(code)
    value = _plain_scalar(random, kind)
    # kio has None for the zero id.
    return (None if value == ZERO else value), value


def _plain_scalar(random: Random, kind: str) -> Any:
    match kind:
        case "string":
            return random.choice(TEXTS)
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 5, 130)))
        case "uuid":
            return random.choice((ZERO, UUID(int=random.getrandbits(128))))
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.choice((0.0, -1.5, 1e300))
        case "uint16":
            return random.choice((0, 1, 9092, 2**16 - 1))
        case _:
            top = 2 ** (BITS[kind] - 1)
            return random.choice((0, 1, -1, -top, top - 1, random.randint(-top, top - 1)))


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is not UnionType:
        return hint, False
    (inner,) = (member for member in get_args(hint) if member is not NoneType)
    return inner, True


def _plain_null(field: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return None
    return {"uuid": ZERO, "datetime_i64": -1}.get(field.metadata.get("kafka_type", ""))


def plain(value: Any, field: Any) -> Any:
    """Return a default of kio's as we have it."""
    if value is None:
        return _plain_null(field, field.type)
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, ErrorCode):
        return int(value)
    if isinstance(value, tuple):
        return list(value)
    if is_dataclass(value):
        return {inner.name: plain(getattr(value, inner.name), inner) for inner in fields(value)}
    return value
