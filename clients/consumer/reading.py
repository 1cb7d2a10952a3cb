"""Deserializes what is given out, and survives what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.clients import options as rows
from ottla.clients.consumer.record import Record
from ottla.clients.errors import DeserializationError
from ottla.clients.metrics import Metrics
from ottla.clients.options import ClientOptions
from ottla.clients.serdes import BYTES, SERDES, Deserializer, deserialize
from ottla.proto.errors import OttlaError

LOG: Final = logging.getLogger("ottla.clients.consumer")


class Reading:
    """The deserializers of one consumer, and what to do when they fail."""

    def __init__(
        self,
        options: ClientOptions,
        metrics: Metrics,
        *,
        on_error: Callable[[OttlaError], object] | None,
        strict: bool,
    ) -> None:
        self._key: Final = _serde(options.value_of(rows.KEY_DESERIALIZER))
        self._value: Final = _serde(options.value_of(rows.VALUE_DESERIALIZER))
        # Bytes stay bytes: nothing to do.
        self.is_plain: Final = self._key is BYTES and self._value is BYTES
        self._metrics: Final = metrics
        self._on_error: Final = on_error
        self.is_strict: Final = strict and not self.is_plain

    def read(self, records: list[Record]) -> list[Record]:
        """Return the records that can be read."""
        if self.is_plain:
            return records
        readable = []
        for record in records:
            try:
                readable.append(self.read_one(record))
            except DeserializationError as error:
                self._unreadable(error)
        return readable

    def read_one(self, record: Record) -> Record:
        """Return the record deserialized; raises `DeserializationError`."""
        topic, partition, offset = record.topic, record.partition, record.offset

        def read(serde: Deserializer, data: bytes | None, part: str) -> Any:
            return deserialize(
                serde, data, topic=topic, partition=partition, offset=offset, part=part
            )

        return record._replace(
            key=read(self._key, record.key, "key"), value=read(self._value, record.value, "value")
        )

    def _unreadable(self, error: DeserializationError) -> None:
        self._metrics.count("records.unreadable")
        if self.is_strict:
            raise error
        LOG.warning("passed over: %s", error)
        if self._on_error is not None:
            self._on_error(error)


def _serde(named: Any) -> Any:
    return SERDES[named] if isinstance(named, str) else named
