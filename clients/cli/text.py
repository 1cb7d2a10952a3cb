"""Lines that become records, and records that become lines.

    orders:42 → key "orders", value "42" with the separator ":"
    {partition} {offset} {key}={value} → what a record looks like when it is printed

Keys and values are bytes and stay so: they are neither decoded nor escaped, except for JSON, where
what is not UTF-8 is given in base64 under another name.

Not here: reading and writing, of files or of brokers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ottla.proto.errors import ConfigError, OttlaError
from ottla.proto.ids import INT64_MAX
from ottla.proto.options.option import shown

NULL_TEXT: Final = "null"
DEFAULT_FORMAT: Final = "{value}"
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\(.)|[{}\\]|[^{}\\]+", re.DOTALL)

_JSON_NAMES: Final = frozenset(
    {
        "topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64",
        "headers",
    }
)  # fmt: skip


class BadLineError(OttlaError):
    """A line of the input that cannot become a record."""


class Printed(NamedTuple):
    """A record as it was read, with where it was read."""

    topic: str
    partition: int
    offset: int
    # None if the record carries no time.
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Parsed(NamedTuple):
    """What a line becomes."""

    key: bytes | None
    value: bytes | None
    # None: what the command was told holds for every record.
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineRule:
    """How a line is cut into a key and a value."""

    # None: the whole line is the value, and there is no key.
    key_separator: bytes | None
    # A key or value that equals it is sent as null. None: nothing is.
    null_marker: bytes | None

    def parse(self, line: bytes, number: int) -> Parsed:
        """Return key and value, or raise `BadLineError` that names the line."""
        text = line.removesuffix(b"\n")
        if self.key_separator is None:
            return Parsed(None, self._unless_null(text))
        key, separator, value = text.partition(self.key_separator)
        if not separator:
            wanted = shown(self.key_separator.decode(errors="replace"))
            raise BadLineError(f"line {number} has no {wanted} between a key and a value.")
        return Parsed(self._unless_null(key), self._unless_null(value))

    def _unless_null(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


def parse_separator(text: str) -> bytes:
    r"""Return a separator as bytes; \t and \0 are what they look like."""
    if not text:
        raise ConfigError("--key-separator must have at least one character.")
    return re.sub(r"\\([ntr0\\])", lambda found: _ESCAPES[found[1]].decode(), text).encode()


@dataclass(frozen=True, slots=True)
class Template:
    """What is printed of each record."""

    _pieces: tuple[bytes | Callable[[Printed], bytes], ...]

    def render(self, record: Printed) -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else piece(record) for piece in self._pieces
        )


def parse_template(text: str, *, null: str = NULL_TEXT) -> Template:
    r"""Return the template, or raise `ConfigError`.

    {name} is a field of the record, {{ and }} are braces, \n \t \r \0 \\ what they look like.
    """
    fields = _fields(null.encode())
    pieces = list[bytes | Callable[[Printed], bytes]]()
    for found in _PIECE.finditer(text):
        whole, name, escape = found[0], found[1], found[2]
        if whole in ("{{", "}}"):
            pieces.append(whole[0].encode())
        elif name is not None:
            if name not in fields:
                known = ", ".join(f"{{{one}}}" for one in fields)
                raise ConfigError(f"--format has no field {shown(name)}; there are {known}.")
            pieces.append(fields[name])
        elif escape is not None:
            if escape not in _ESCAPES:
                raise ConfigError(
                    f"--format: {shown(whole)} means nothing; a backslash is written \\\\."
                )
            pieces.append(_ESCAPES[escape])
        elif whole in "{}\\":
            raise ConfigError(f"--format: a single {whole} means nothing; write it twice.")
        else:
            pieces.append(whole.encode())
    return Template(tuple(pieces))


def _fields(null: bytes) -> dict[str, Callable[[Printed], bytes]]:
    def headers(record: Printed) -> bytes:
        return b",".join(
            name.encode() + b"=" + (null if value is None else value)
            for name, value in record.headers
        )

    return {
        "topic": lambda record: record.topic.encode(),
        "partition": lambda record: b"%d" % record.partition,
        "offset": lambda record: b"%d" % record.offset,
        "timestamp": lambda record: (
            null if record.timestamp_ms is None else b"%d" % record.timestamp_ms
        ),
        "time": lambda record: (
            null if record.timestamp_ms is None else time_text(record.timestamp_ms).encode()
        ),
        "key": lambda record: null if record.key is None else record.key,
        "value": lambda record: null if record.value is None else record.value,
        "headers": headers,
        "size": lambda record: b"%d" % len(record.value or b""),
    }


def as_json(record: Printed) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"name": name, **_named("value", value)} for name, value in record.headers],
    }


def _named(name: str, raw: bytes | None) -> dict[str, str | None]:
    if raw is None:
        return {name: None}
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}


class JsonRule:
    """Lines as `ottla consume --json` prints them; where they were read does not matter."""

    def parse(self, line: bytes, number: int) -> Parsed:
        """Return what the line holds, or raise `BadLineError` that names the line."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise BadLineError(f"line {number} is not JSON.") from None
        if not isinstance(found, dict):
            raise BadLineError(f"line {number} is not a JSON object.")
        strange = next((name for name in found if name not in _JSON_NAMES), None)
        if strange is not None:
            raise BadLineError(f"line {number} has a {shown(strange)}, which no record has.")
        if not {"value", "value_base64"} & found.keys():
            raise BadLineError(f"line {number} has no value; one that is null is written so.")
        time_ms = found.get("timestamp")
        if not (time_ms is None or (type(time_ms) is int and 0 <= time_ms <= INT64_MAX)):
            raise BadLineError(f"line {number}: a timestamp is milliseconds since 1970.")
        headers = _json_headers(found["headers"], number) if "headers" in found else None
        key, value = _unnamed("key", found, number), _unnamed("value", found, number)
        return Parsed(key, value, headers, time_ms)


def _json_headers(told: object, number: int) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(told, list):
        raise BadLineError(f"line {number}: headers are a list of objects.")
    headers = list[tuple[str, bytes | None]]()
    for one in told:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise BadLineError(f"line {number}: a header is an object with a name and a value.")
        headers.append((one["name"], _unnamed("value", one, number)))
    return tuple(headers)


def _unnamed(name: str, found: Mapping[str, object], number: int) -> bytes | None:
    """Return what `_named` was given."""
    raw, text = found.get(f"{name}_base64"), found.get(name)
    if raw is not None:
        try:
            return base64.b64decode(str(raw), validate=True)
        except ValueError:
            raise BadLineError(f"line {number}: {name}_base64 is not base64.") from None
    if text is None:
        return None
    if not isinstance(text, str):
        raise BadLineError(f"line {number}: a {name} is text or null; put other JSON in quotes.")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLineError(f"line {number}: the {name} is no text that can be encoded.") from None


def time_text(timestamp_ms: int) -> str:
    """Return a time in UTC; one that no calendar has is given as the number it is."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Return milliseconds since 1970 for a number of them, or for a date and time."""
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"a time is milliseconds since 1970, or like 2026-11-16T09:00:00Z; {shown(text)} is "
            "neither."
        ) from None
    if moment.tzinfo is None:
        # The machines of a cluster, and their users, may be in different places.
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
