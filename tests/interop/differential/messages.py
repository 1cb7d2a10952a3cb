"""Kafka's messages as plain dictionaries, read and written by kio.

By kio and not by our own codec: a mistake that our encoder and our decoder share would otherwise
look the same on both sides of the comparison.

Durations are milliseconds, error codes are texts such as "3 unknown_topic_or_partition", ids are
texts, and bytes stay bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import typing
import uuid
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.proto.kafka.apis import ApiRow

Fields = Mapping[str, Any]
Plain = dict[str, Any]

_MS: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def write_request(row: ApiRow, version: int, fields: Fields) -> bytes:
    """Return the body of a request. Fields that the version does not have are left out."""
    schema = _schema(row.schema, version, "request")
    body = io.BytesIO()
    entity_writer(schema)(body, _entity(schema, fields))
    return body.getvalue()


def read_response(row: ApiRow, version: int, body: bytes) -> Plain:
    """Return all fields of a response. Raises `ValueError` if bytes are left over."""
    schema = _schema(row.schema, version, "response")
    entity, size = entity_reader(schema)(body, 0)
    if size != len(body):
        raise ValueError(f"{len(body) - size} bytes too many after {row.name} {version}")
    return typing.cast("Plain", _plain(entity))


@functools.cache
def _schema(name: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    return next(
        one
        for one in vars(module).values()
        if dataclasses.is_dataclass(one)
        and isinstance(one, type)
        and one.__module__ == module.__name__
        and vars(one)["__type__"].name == kind
    )


def _entity(schema: Any, fields: Fields) -> Any:
    known = [one for one in dataclasses.fields(schema) if one.name in fields]
    return schema(**{one.name: _value(one, fields[one.name]) for one in known})


def _value(field: dataclasses.Field[Any], value: Any) -> Any:
    nested = _nested(field.type)
    if value is None:
        return None
    if nested is not None:
        many = isinstance(value, list | tuple)
        return tuple(_entity(nested, one) for one in value) if many else _entity(nested, value)
    if isinstance(value, list | tuple):
        return tuple(value)
    if field.metadata["kafka_type"].startswith("timedelta"):
        return value * _MS
    if isinstance(value, uuid.UUID):
        return value if value.int else None
    return value


def _nested(told: Any) -> Any:
    """Return the message type inside a field's type, if there is one."""
    if dataclasses.is_dataclass(told):
        return told
    inside = (_nested(one) for one in typing.get_args(told))
    return next((one for one in inside if one is not None), None)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, ErrorCode):
        return f"{value.value} {value.name}"
    if isinstance(value, datetime.timedelta):
        return value // _MS
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MS
    if isinstance(value, uuid.UUID):
        return str(value)
    return bytes(value) if isinstance(value, memoryview | bytearray) else value
