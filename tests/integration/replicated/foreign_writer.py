"""librdkafka as a writer: idempotent, acks=all, with retries; every delivery report is noted.

Not here: what must hold of what it wrote (`judge.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.proto.ids import TopicPartition
from tests.integration.replicated.background import Background
from tests.integration.replicated.history import Attempt, Fate, History

FOREIGN: Final = "librdkafka"
# Longer than any outage here: then nothing may be given up.
DELIVERY_S: Final = 120.0
_EVERY_S: Final = 0.02
_FLUSH_S: Final = 60.0
# How librdkafka says that it begins a new producer epoch; the reason follows it.
_NEW_EPOCH: Final = "epoch bump"


class _Epochs(logging.Handler):
    """Notes why librdkafka began new producer epochs, and nothing else that it tells."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        told = record.getMessage()
        if _NEW_EPOCH in told:
            self.reasons.append(told)


class ForeignWriter(Background):
    """Writes to all partitions of a topic in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        history: History,
        *,
        per_s: int,
        name: str = FOREIGN,
    ) -> None:
        super().__init__()
        self.name: Final = name
        self.fatal: list[str] = []
        # What it gave up, retries and all, and what was said of it.
        self.undelivered: list[str] = []
        self._epochs: Final = _Epochs()
        self._per_s: Final = per_s
        self._history: Final = history
        self._places: Final = [TopicPartition(topic, index) for index in range(partitions)]
        self._producer: Final = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._on_error,
                "debug": "eos",
            },
            logger=self._logger(),
        )

    @property
    def new_epochs(self) -> list[str]:
        """Why it began new producer epochs; what had no answer was sent again, also if kept."""
        return self._epochs.reasons

    def _logger(self) -> logging.Logger:
        logger = logging.getLogger(f"{__name__}.{id(self)}")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(self._epochs)
        return logger

    async def _live(self) -> None:
        sent, began_s = 0, time.monotonic()
        while not self.is_over:
            # As many as are due by now: a slow machine must not make it a slow writer.
            due = int((time.monotonic() - began_s) * self._per_s)
            for number in range(sent, due):
                self._send(self._places[number % len(self._places)])
            sent = due
            self._producer.poll(0)
            await asyncio.sleep(_EVERY_S)
        left = self._producer.flush(_FLUSH_S)
        assert left == 0, f"{left} records were not delivered {_FLUSH_S:.0f} s after the last fault"

    def _send(self, place: TopicPartition) -> None:
        attempt = self._history.begin(self.name, place)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self._take(attempt, error, message)

        try:
            self._producer.produce(
                place.topic, attempt.value, partition=place.partition, on_delivery=on_delivery
            )
        except (BufferError, KafkaException) as error:
            self.undelivered.append(f"{place}: not queued: {error}")
            self._history.refuse(attempt, Fate.FAILED, f"not queued: {error}")

    def _take(self, attempt: Attempt, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        if error is not None:
            self.undelivered.append(f"{attempt.place}: {error.name()}")
            self._history.refuse(attempt, Fate.UNKNOWN, error.name())
            return
        # A batch may count as kept because a later one was: then nobody says where it is.
        self._history.acknowledge(attempt, -1 if offset is None or offset < 0 else offset)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal.append(str(error))
