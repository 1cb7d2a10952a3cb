"""A process that drives a cluster with librdkafka: acks=all, as fast as it goes or at a fixed rate.

    python -m bench.replication_drive produce --to HOST:PORT --topic t --size 1024 --count 100000
    python -m bench.replication_drive consume --to HOST:PORT --topic t --size 1024 --count 100000
    python -m bench.replication_drive pace --to HOST:PORT --topic t --rate 1000 --count 6000

It prints one line of JSON, with the same fields as `drive.py`; `pace` adds the times.

`pace` is an open loop: a record is due every 1/rate s whether or not those before it were
acknowledged, and its time counts from when it was due. So a broker that stalls is charged for all
that should have been written meanwhile. Each record is a request of its own (linger 0) unless the
broker is so late that some have queued up. A thread waits for acknowledgements: their time is taken
when they come, not when the next record is due.

Not here: a driver for acks=1 (`drive.py`), whose pieces this one uses.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from bench.drive import FULL_S, Failures, consume, producer_to

_PER_CALL: Final = 1000
_QUEUE_BYTES_MAX: Final = 32 << 20
_QUEUE_RECORDS_MAX: Final = 100_000
_FLUSH_S_MAX: Final = 30.0
_WARM_S: Final = 0.5
_POLL_S: Final = 0.1
# A record that was sent later than this after its time was held up by the driver's own machine.
_LATE_S: Final = 0.002


def produce(options: argparse.Namespace) -> dict[str, object]:
    """Produce `count` records; each call fills a part of a batch of the next partition."""
    failures = Failures()
    more = {"acks": "all", "delivery.report.only.error": True}
    producer = producer_to(options.to, **more)
    records = [{"value": bytes(options.size)} for _ in range(_PER_CALL)]
    queue_max = min(_QUEUE_RECORDS_MAX, max(2 * _PER_CALL, _QUEUE_BYTES_MAX // options.size))

    def produce_some(calls: int) -> None:
        for number in range(calls):
            while len(producer) > queue_max:
                producer.poll(FULL_S)
            index = number % options.partitions
            queued = producer.produce_batch(
                options.topic, records, partition=index, on_delivery=failures
            )
            if queued != _PER_CALL:
                raise SystemExit(f"librdkafka took {queued} of {_PER_CALL} records")
        _flush(producer)

    # At least one batch for each partition, so that every connection and file is there.
    warm_calls = max(options.partitions, min(queue_max, options.count) // _PER_CALL)
    produce_some(warm_calls)
    start, cpu_start = time.perf_counter(), time.process_time()
    produce_some(calls := options.count // _PER_CALL)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    failures_told(failures)
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "count": calls * _PER_CALL,
        "all_count": (warm_calls + calls) * _PER_CALL,
    }


def _flush(producer: Producer) -> None:
    left = producer.flush(_FLUSH_S_MAX)
    if left:
        raise SystemExit(f"{left} records were not acknowledged in {_FLUSH_S_MAX:.0f} s")


def failures_told(failures: Failures) -> None:
    if failures.count:
        raise SystemExit(f"{failures.count} records failed; the first: {failures.first}")


class Paced:
    """Records that are due one after another, and what became of them."""

    def __init__(self, producer: Producer, options: argparse.Namespace) -> None:
        self._producer: Final = producer
        self._topic: Final = str(options.topic)
        self._partitions: Final = int(options.partitions)
        self._step_s: Final = 1 / float(options.rate)
        self._value: Final = bytes(options.size)
        self._failures: Final = Failures()
        self.times_s: list[float] = []
        self.late_count = 0

    def run(self, count: int) -> float:
        """Send `count` records, each at its time; return the seconds until all were answered."""
        self.times_s, self.late_count = [], 0
        start = time.perf_counter()
        for number in range(count):
            due = start + number * self._step_s
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            elif wait < -_LATE_S:
                self.late_count += 1
            self._send(number, due)
        _flush(self._producer)
        failures_told(self._failures)
        return time.perf_counter() - start

    def _send(self, number: int, due: float) -> None:
        def told(error: KafkaError | None, record: Message) -> None:
            self.times_s.append(time.perf_counter() - due)
            self._failures(error, record)

        index = number % self._partitions
        self._producer.produce(self._topic, self._value, partition=index, on_delivery=told)


def pace(options: argparse.Namespace) -> dict[str, object]:
    more = {"acks": "all", "linger.ms": 0, "socket.nagle.disable": True}
    producer = producer_to(options.to, **more)
    paced = Paced(producer, options)
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            producer.poll(_POLL_S)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    warm_count = int(options.rate * _WARM_S)
    paced.run(warm_count)
    gc.collect()
    gc.disable()
    cpu_start = time.process_time()
    seconds = paced.run(options.count)
    cpu_s = time.process_time() - cpu_start
    over.set()
    listener.join()
    return {
        "seconds": seconds,
        "cpu_s": cpu_s,
        "count": options.count,
        "all_count": warm_count + options.count,
        "late": paced.late_count,
        "times_us": sorted(round(taken * 1e6) for taken in paced.times_s),
    }


COMMANDS: Final = {"produce": produce, "consume": consume, "pace": pace}


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.replication_drive", description=summary)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--rate", type=float, default=1000.0, help="records/s, for pace")
    options = parser.parse_args()
    print(json.dumps(COMMANDS[options.command](options)))


if __name__ == "__main__":
    main()
