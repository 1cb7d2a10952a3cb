"""Drives a broker with librdkafka, in a process of its own, and prints what it saw as JSON.

    python -m bench.drive produce --to HOST:PORT --topic t --partitions 4 --size 1024 --count 200000
    python -m bench.drive consume --to HOST:PORT --topic t --partitions 4 --count 200000
    python -m bench.drive write   --to HOST:PORT --topic t --count 1000

produce   as fast as it goes, acks=1, in batches of up to 1 MB, until all are acknowledged
consume   from the start, until `count` records have come
write     one record of `size` bytes after another, each when the one before is acknowledged

The clock starts when the connection is made and the driver has touched the memory that it will use
again and again: before it, so many records are produced or consumed as `all_count` is larger than
`count`. What the driver itself costs is in `cpu_s`: with small records Python makes an object for
each, so that a fast broker waits for its driver. Against the limit broker one sees what is left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import quantiles
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

_PER_CALL: Final = 1000
_QUEUE_BYTES_MAX: Final = 32 << 20
_QUEUE_RECORDS_MAX: Final = 100_000
_TIMEOUT_S: Final = 20.0
_WARM_WRITES: Final = 100


def _on_error(error: KafkaError) -> None:
    print(f"librdkafka: {error}", file=sys.stderr)


def producer_to(address: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.timeout.ms": int(_TIMEOUT_S * 1000),
            "error_cb": _on_error,
            **more,
        }
    )


# How long to wait while the queue is full. librdkafka counts in whole milliseconds: with less it
# would not wait at all, and take a core from those who are measured.
FULL_S: Final = 0.001


class Failures:
    """Counts the records that were not written, with the first reason."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.count += 1
            self.first = self.first or str(error)


def produce(options: argparse.Namespace) -> dict[str, object]:
    """Produce `count` records; each call fills a part of a batch of the next partition."""
    failures = Failures()
    # Only failures are reported: a call into Python for each record would measure Python.
    producer = producer_to(options.to, **{"delivery.report.only.error": True})
    records = [{"value": bytes(options.size)} for _ in range(_PER_CALL)]
    queue_max = _queue_max(options)

    def produce_some(calls: int) -> None:
        for number in range(calls):
            while len(producer) > queue_max:
                producer.poll(FULL_S)
            _offer(producer, options.topic, records, number % options.partitions, failures)
        left = producer.flush(_TIMEOUT_S)
        if left:
            raise SystemExit(f"{left} records were not acknowledged in {_TIMEOUT_S:.0f} s")

    warm_calls = min(queue_max, options.count) // _PER_CALL
    produce_some(warm_calls)
    start, cpu_start = time.perf_counter(), time.process_time()
    produce_some(calls := options.count // _PER_CALL)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    if failures.count:
        raise SystemExit(f"{failures.count} records failed; the first: {failures.first}")
    return _result(seconds, cpu_s, calls * _PER_CALL, (warm_calls + calls) * _PER_CALL)


def _queue_max(options: argparse.Namespace) -> int:
    """Return how many records wait in the driver at most: as much memory as is touched first."""
    return min(_QUEUE_RECORDS_MAX, max(2 * _PER_CALL, _QUEUE_BYTES_MAX // int(options.size)))


def _result(seconds: float, cpu_s: float, count: int, all_count: int) -> dict[str, object]:
    return {"seconds": seconds, "cpu_s": cpu_s, "count": count, "all_count": all_count}


def _offer(
    producer: Producer, topic: str, records: list[dict[str, bytes]], index: int, failures: Failures
) -> None:
    queued = producer.produce_batch(topic, records, partition=index, on_delivery=failures)
    if queued != len(records):
        raise SystemExit(f"librdkafka took {queued} of {len(records)} records")


def consume(options: argparse.Namespace) -> dict[str, object]:
    """Read every partition from its start, in lists of many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": options.to,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": _QUEUE_BYTES_MAX >> 10,
            "fetch.queue.backoff.ms": 1,
            "fetch.message.max.bytes": 1 << 20,
            "error_cb": _on_error,
        }
    )

    def consume_some(count: int) -> None:
        starts = (
            TopicPartition(options.topic, index, OFFSET_BEGINNING)
            for index in range(options.partitions)
        )
        consumer.assign(list(starts))
        while count > 0:
            records = consumer.consume(num_messages=min(count, _PER_CALL), timeout=_TIMEOUT_S)
            if not records:
                raise SystemExit(f"{count} records did not come in {_TIMEOUT_S:.0f} s")
            if records[-1].error() is not None:
                raise KafkaException(records[-1].error())
            count -= len(records)
        consumer.unassign()

    warm_count = min(_queue_max(options), options.count)
    consume_some(warm_count)
    start, cpu_start = time.perf_counter(), time.process_time()
    consume_some(options.count)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    consumer.close()
    return _result(seconds, cpu_s, options.count, warm_count + options.count)


def write(options: argparse.Namespace) -> dict[str, object]:
    """Time single writes, one at a time."""
    producer = producer_to(options.to, **{"linger.ms": 0, "socket.nagle.disable": True})
    failures = Failures()
    value = bytes(options.size)
    times: list[float] = []
    cpu_start = time.process_time()
    for _ in range(_WARM_WRITES + options.count):
        start = time.perf_counter()
        producer.produce(options.topic, value, partition=0, on_delivery=failures)
        while len(producer):
            producer.poll(1)
        times.append(time.perf_counter() - start)
    if failures.count:
        raise SystemExit(f"{failures.count} records failed; the first: {failures.first}")
    measured = times[_WARM_WRITES:]
    cuts = quantiles(measured, n=100)
    return {
        "seconds": sum(measured),
        "count": options.count,
        "all_count": len(times),
        "cpu_s": time.process_time() - cpu_start,
        "p50_us": cuts[49] * 1e6,
        "p99_us": cuts[98] * 1e6,
    }


COMMANDS: Final = {"produce": produce, "consume": consume, "write": write}


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.drive", description=summary)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(COMMANDS[options.command](options)))


if __name__ == "__main__":
    main()
