"""Keys and values as bytes, and back: the same bytes as Java's serializers write.

A serde is any object with `serialize(topic, value)` and `deserialize(topic, data)`; None stays None
both ways, because in Kafka a missing value means something. These come with us:

    bytes     as it is                       ByteArraySerializer
    string    UTF-8                          StringSerializer
    int32     4 bytes, big-endian            IntegerSerializer
    int64     8 bytes, big-endian            LongSerializer
    float64   8 bytes, IEEE 754, big-endian  DoubleSerializer
    json      UTF-8 JSON without blanks      (Kafka has none)

Not here: schemas, and a registry of them. Whoever needs one writes a serde.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, Protocol, runtime_checkable

from ottla.clients.errors import DeserializationError, SerdeError


@runtime_checkable
class Serializer(Protocol):
    """Turns a value into bytes. What it raises is told to whoever called `send`."""

    def serialize(self, topic: str, value: Any, /) -> bytes | None: ...


@runtime_checkable
class Deserializer(Protocol):
    """Turns bytes into a value. What it raises becomes a `DeserializationError`."""

    def deserialize(self, topic: str, data: bytes | None, /) -> Any: ...


@runtime_checkable
class Serde(Serializer, Deserializer, Protocol):
    """Both directions."""


class BytesSerde:
    """Bytes stay bytes."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        hint = ' or set value.serializer to "string"' if isinstance(value, str) else ""
        raise SerdeError(
            f"{topic}: bytes are needed, not {type(value).__name__}; encode it first{hint}."
        )

    def deserialize(self, topic: str, data: bytes | None) -> bytes | None:
        return data


class StringSerde:
    """Text as UTF-8."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise SerdeError(f"{topic}: text is needed, not {type(value).__name__}.")
        return value.encode()

    def deserialize(self, topic: str, data: bytes | None) -> str | None:
        return None if data is None else data.decode()


class _NumberSerde:
    """A number of fixed width, big-endian."""

    def __init__(self, form: str, kind: type, word: str) -> None:
        self._form: Final = struct.Struct(form)
        self._kind: Final = kind
        self._word: Final = word

    def serialize(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        # True is an int in Python, and nobody means it as one.
        if isinstance(value, bool) or not isinstance(value, (int, self._kind)):
            raise SerdeError(f"{topic}: {self._word} is needed, not {type(value).__name__}.")
        try:
            return self._form.pack(value)
        except (struct.error, OverflowError):
            raise SerdeError(f"{topic}: {value} does not fit into {self._word}.") from None

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        if data is None:
            return None
        if len(data) != self._form.size:
            raise SerdeError(f"{self._word} has {self._form.size} bytes, and there are {len(data)}")
        return self._form.unpack(data)[0]


class JsonSerde:
    """JSON, with the shortest separators."""

    def serialize(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise SerdeError(f"{topic}: the value cannot be written as JSON: {error}.") from None

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)


BYTES: Final = BytesSerde()
STRING: Final = StringSerde()
INT32: Final = _NumberSerde(">i", int, "an int32")
INT64: Final = _NumberSerde(">q", int, "an int64")
FLOAT64: Final = _NumberSerde(">d", float, "a float64")
JSON: Final = JsonSerde()

# By the names that the options take.
SERDES: Final[dict[str, Serde]] = {
    "bytes": BYTES,
    "string": STRING,
    "int32": INT32,
    "int64": INT64,
    "float64": FLOAT64,
    "json": JSON,
}


def deserialize(
    serde: Deserializer, data: bytes | None, *, topic: str, partition: int, offset: int, part: str
) -> Any:
    """Return the value, or raise `DeserializationError` with the place of the record."""
    try:
        return serde.deserialize(topic, data)
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise DeserializationError(topic, partition, offset, part, reason) from error
