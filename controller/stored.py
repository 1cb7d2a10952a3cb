"""An image in the node's state store: how it is found there, and what a change writes.

One key per topic and per set of broker options, so that the cost of a change does not grow with
what else there is. The counters are written with every change, in the same commit.

Not here: the values (`encoding.py`), and when to commit (`solo.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from ottla.controller.commands import Command
from ottla.controller.encoding import (
    Counters,
    decode_configs,
    decode_counters,
    decode_topic,
    encode_configs,
    encode_counters,
    encode_topic,
)
from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.controller.state import Outcome, apply
from ottla.proto.errors import CorruptionError

_TOPIC_PREFIX: Final = b"metadata/topic/"
_CONFIGS_PREFIX: Final = b"metadata/configs/"
_COUNTERS_KEY: Final = b"metadata/counters"


class StateStore(Protocol):
    """What is needed of the node's state store: durable, checksummed, one atomic commit."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None: ...


class Draft:
    """The image as it will be, and what of it is new."""

    __slots__ = ("_broker_configs", "_broker_epoch", "_topics", "image")

    def __init__(self, image: MetadataImage, broker_epoch: int) -> None:
        self.image = image
        self._broker_epoch = broker_epoch
        self._topics: set[str] = set()
        self._broker_configs: set[str] = set()

    def apply(self, command: Command) -> Outcome:
        image, outcome = apply(self.image, command)
        self.keep(image, outcome)
        return outcome

    def keep(self, image: MetadataImage, outcome: Outcome) -> None:
        self.image = image
        self._topics.update(outcome.topics)
        self._broker_configs.update(outcome.broker_configs)

    def changes(self) -> dict[bytes, bytes | None]:
        """Return what to commit; None for what is to be forgotten."""
        image = self.image
        found: dict[bytes, bytes | None] = {}
        for name in self._topics:
            topic = image.topics.get(name)
            found[_TOPIC_PREFIX + name.encode()] = None if topic is None else encode_topic(topic)
        for name in self._broker_configs:
            configs = image.broker_configs.get(name)
            key = _CONFIGS_PREFIX + name.encode()
            found[key] = None if configs is None else encode_configs(configs)
        counters = Counters(image.version, image.next_producer_id, self._broker_epoch)
        found[_COUNTERS_KEY] = encode_counters(counters)
        return found


def load_image(store: StateStore, cluster_id: str, broker: BrokerInfo) -> tuple[MetadataImage, int]:
    """Return the image as it was committed last, and the broker epoch of that time."""
    empty = MetadataImage(
        version=0,
        cluster_id=cluster_id,
        controller_id=broker.broker_id,
        brokers={broker.broker_id: broker},
    )
    stored = store.get(_COUNTERS_KEY)
    counters = Counters(0, empty.next_producer_id, 0) if stored is None else decode_counters(stored)
    topics = {name: decode_topic(name, value) for name, value in _named(store.scan(_TOPIC_PREFIX))}
    configs = {
        name: decode_configs(name, value) for name, value in _named(store.scan(_CONFIGS_PREFIX))
    }
    names = {topic.topic_id: name for name, topic in topics.items()}
    if len(names) < len(topics):
        raise CorruptionError("Two stored topics have the same id.")
    if stored is None and (topics or configs):
        raise CorruptionError("The stored metadata has lost its counters.")
    image = replace(
        empty,
        version=counters.version,
        topics=topics,
        topic_names=names,
        broker_configs=configs,
        next_producer_id=counters.next_producer_id,
    )
    return image, counters.broker_epoch


def _named(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, bytes]]:
    for key, value in pairs:
        try:
            yield key.split(b"/", 2)[2].decode(), value
        except UnicodeDecodeError:
            raise CorruptionError(f"The key {key!r} of the stored metadata is no text.") from None
