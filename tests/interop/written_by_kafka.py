"""A data directory that a Kafka broker wrote, and what was produced into it.

Two compressors write here: the broker's own (topics `java-*`, whose `compression.type` makes it
compress what came plain) and librdkafka's (topics `rd-*`), because their framings differ.

Payloads are words without spaces: DumpLogSegments prints them as they are. One topic has bytes
that are no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.interop.broker import Broker, start_broker, wait_until
from tests.interop.wire import Connection

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
# Any time in the past: a broker refuses times in the future.
START_MS: Final = 1_700_000_000_000
FLUSH_DEADLINE_S: Final = 30.0
CLEAN_DEADLINE_S: Final = 60.0
# The smallest that Kafka 4 accepts.
SEGMENT_SIZE_MIN: Final = 1 << 20
COMPACTION: Final = {
    "cleanup.policy": "compact",
    # Segments roll by the records' own times, so no test has to wait for it.
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """A record as it was given to the producer."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """The data directory after a clean stop, and the records by topic in the order of producing."""

    log_dir: Path
    produced: dict[str, list[Produced]]

    def directory(self, topic: str) -> Path:
        return self.log_dir / f"{topic}-0"

    def segments(self, topic: str, suffix: str = "log") -> list[Path]:
        return sorted(self.directory(topic).glob(f"*.{suffix}"))


def write_with_kafka(folder: Path) -> KafkaLog:
    """Run a broker, fill it with every kind of batch there is, and stop it."""
    produced: dict[str, list[Produced]] = {}
    with start_broker(folder) as broker, Connection(broker.port) as connection:

        def write(
            topic: str, records: list[Produced], settings: dict[str, str], producer: str = "none"
        ) -> None:
            connection.create_topic(topic, settings=settings)
            _send(_producer(broker, **{"compression.type": producer}), topic, records)
            produced[topic] = records

        write("java-none", _mixed(), {"compression.type": "uncompressed"})
        write("binary", _binary(), {})
        write("append-time", _mixed(), {"message.timestamp.type": "LogAppendTime"})
        for codec in CODECS:
            write(f"java-{codec}", _mixed(), {"compression.type": codec})
            write(f"rd-{codec}", _mixed(), {}, producer=codec)
        write("rolled", _many(), {"segment.bytes": str(SEGMENT_SIZE_MIN)})
        produced["idempotent"] = _write_idempotent(broker, connection)
        produced["transactional"] = _write_transactions(broker, connection)
        for codec in ("uncompressed", "zstd"):
            topic = f"compacted-{codec}"
            produced[topic] = _write_compacted(broker, connection, topic, codec)
        produced["silent-producer"] = _write_silent_producer(broker, connection)
        for topic in ("compacted-uncompressed", "compacted-zstd", "silent-producer"):
            wait_until(_cleaned(broker, topic), CLEAN_DEADLINE_S, f"{topic} is cleaned")
        log_dir = broker.log_dir
    return KafkaLog(log_dir, produced)


def _mixed() -> list[Produced]:
    """Keys, no keys, tombstones, empty values, headers of all kinds, times out of order."""
    records = []
    for i in range(200):
        headers: Headers = ()
        if i % 3 == 1:
            headers = (("trace", f"t{i}".encode()), ("empty", b""))
        elif i % 3 == 2:
            headers = (("none", None), ("twice", b"1"), ("twice", b"2"))
        key = None if i % 5 == 0 else f"key-{i % 17}".encode()
        value = None if i % 11 == 10 else b"" if i % 13 == 12 else f"value-{i}-".encode() * (i % 7)
        records.append(Produced(key, value, START_MS + (i * 7919) % 1000, headers))
    return records


def _binary() -> list[Produced]:
    everything = bytes(range(256))
    return [
        Produced(everything[i:], everything[:i], START_MS + i, (("bytes", everything),))
        for i in range(256)
    ]


def _many() -> list[Produced]:
    """More than two segments, with enough batches between for many index entries."""
    return [
        Produced(f"key-{i}".encode(), f"{i:08d}".encode() * 128, START_MS + i * 10 + i * 7919 % 500)
        for i in range(3000)
    ]


def _write_idempotent(broker: Broker, connection: Connection) -> list[Produced]:
    connection.create_topic("idempotent")
    producer = _producer(broker, **{"enable.idempotence": "true"})
    records = _mixed()
    for start in range(0, len(records), 40):
        _send(producer, "idempotent", records[start : start + 40])
    return records


def _write_transactions(broker: Broker, connection: Connection) -> list[Produced]:
    """Commit, abort, commit. The aborted records stay in the log, in front of their marker."""
    connection.create_topic("transactional")
    producer = _producer(broker, **{"transactional.id": "interop"})
    producer.init_transactions(FLUSH_DEADLINE_S)
    records = _mixed()[:60]
    endings: Sequence[Callable[[float], object]] = (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
    )
    for turn, end in enumerate(endings):
        producer.begin_transaction()
        # Flushed before the end, so that an abort finds its records already in the log.
        _send(producer, "transactional", records[turn * 20 : turn * 20 + 20])
        end(FLUSH_DEADLINE_S)
    return records


def _write_compacted(
    broker: Broker, connection: Connection, topic: str, codec: str
) -> list[Produced]:
    """Three segments of which two can be cleaned: every fifth key ends in a tombstone."""
    connection.create_topic(topic, settings={**COMPACTION, "compression.type": codec})
    producer = _producer(broker)
    records: list[Produced] = []
    for generation in range(4):
        start_ms = START_MS + generation * 5000
        batch = [
            Produced(
                f"key-{i}".encode(),
                None if generation == 1 and i % 5 == 0 else f"value-{generation}-{i}".encode(),
                start_ms + i,
            )
            for i in range(100)
            # Later generations leave some keys alone, so that older values survive.
            if generation < 2 or i % 5 > generation
        ]
        _send(producer, topic, batch)
        records += batch
    return records


def _write_silent_producer(broker: Broker, connection: Connection) -> list[Produced]:
    """All that the first producer wrote is replaced: of its last batch only the header stays.

    That batch has the highest time of its segment, too.
    """
    connection.create_topic("silent-producer", settings=COMPACTION)
    records: list[Produced] = []
    for start_ms in (START_MS + 900, START_MS, START_MS + 5000):
        batch = [
            Produced(f"key-{i}".encode(), f"at-{start_ms}".encode(), start_ms) for i in range(10)
        ]
        _send(_producer(broker, **{"enable.idempotence": "true"}), "silent-producer", batch)
        records += batch
    return records


def _cleaned(broker: Broker, topic: str) -> Callable[[], bool]:
    """Return whether the cleaner has reached the active segment, by Kafka's own checkpoint."""

    def cleaned() -> bool:
        active = max((broker.log_dir / f"{topic}-0").glob("*.log"))
        lines = (broker.log_dir / "cleaner-offset-checkpoint").read_text().splitlines()
        return f"{topic} 0 {int(active.stem)}" in lines and int(active.stem) > 0

    return cleaned


def _producer(broker: Broker, **settings: str) -> Producer:
    # Lingering makes batches of many records; one request in flight keeps their order.
    return Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": "20",
            "batch.size": "16384",
            "acks": "all",
            # Errors come back by themselves; what librdkafka prints would only disturb.
            "log_level": "2",
            "max.in.flight.requests.per.connection": "1",
            **settings,
        }
    )


def _send(producer: Producer, topic: str, records: Sequence[Produced]) -> None:
    failures: list[object] = []

    def delivered(error: object, _record: object) -> None:
        if error is not None:
            failures.append(error)

    for one in records:
        producer.produce(
            topic,
            value=one.value,
            key=one.key,
            partition=0,
            timestamp=one.timestamp,
            headers=list(one.headers),
            on_delivery=delivered,
        )
    left = producer.flush(FLUSH_DEADLINE_S)
    if left or failures:
        raise TimeoutError(f"{topic}: {left} records not delivered, failures: {failures[:3]}")
