"""A driver process with librdkafka, for every peer that speaks the Kafka protocol.

    python -m bench.versus.drive_kafka produce '{"to": …}'    as fast as it goes
    … consume    from the start, or from the end (`from_end`), so many records; `ahead`: when all
                 of them were fetched before, so that only the driver itself is measured
    … pace       one record due every 1/rate s, each a request of its own
    … follow     reads at the tail what `pace` writes, and takes the time of each
    … outage     one record every 10 ms until some came through after a node was killed

How it talks to who started it: `driving.py`. `pace` is an open loop: the time of a record counts
from when it was due, so that a peer that stalls is charged for all that should have been written
meanwhile. `follow` knows when a record was due from its first eight bytes.

V1  a pace that is not kept is not waited for: as soon as that is certain (`figures.allowed_s`) the
    writer ends, and the reader a second later. What is left then counts as long as it has waited,
    which is less than it would have taken: figures of such a turn are lower bounds
V2  what writes as fast as it goes hands over for `seconds` at most, and then waits for what it
    handed over: who is slow is measured as long as others, not with as many records

Not here: settings of a peer.
"""

from __future__ import annotations

import gc
import json
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from math import inf
from pathlib import Path
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

from bench.drive import FULL_S, Failures
from bench.versus.figures import allowed_s
from bench.versus.payloads import payloads

Options = dict[str, Any]

_PER_CALL: Final = 1000
_QUEUE_BYTES_MAX: Final = 32 << 20
_QUEUE_RECORDS_MAX: Final = 100_000
_QUIET_S_MAX: Final = 60.0
_POLL_S: Final = 0.1
# Who asks all the time, and has got nothing for so long, has all there is.
_STILL_S: Final = 0.5
_LATE_S: Final = 0.002
_DUE: Final = struct.Struct(">d")
_WARM_S: Final = 0.5
_WARM_RECORDS_MAX: Final = 1000
# What was acknowledged last may be read so much later.
_READ_S: Final = 1.0
_OUTAGE_STEP_S: Final = 0.01
_OUTAGE_S_MAX: Final = 60.0
_OUTAGE_ACKS: Final = 100
# What a client that cares about outages sets: it looks again soon, and asks soon who leads.
SHORT_PATIENCE: Final = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


def _complain(error: KafkaError) -> None:
    print(f"librdkafka: {error}", file=sys.stderr)


def ready_and_go() -> None:
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        raise SystemExit("nobody said go")


def _producer(options: Options, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": options["to"],
            "acks": options.get("acks", "all"),
            "compression.type": options.get("codec", "none"),
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "message.timeout.ms": int(_QUIET_S_MAX * 1000),
            "error_cb": _complain,
            **more,
        }
    )


def _flush(producer: Producer, failures: Failures) -> None:
    left = producer.flush(_QUIET_S_MAX)
    if left:
        raise SystemExit(f"{left} records were not acknowledged in {_QUIET_S_MAX:.0f} s")
    if failures.count:
        raise SystemExit(f"{failures.count} records failed; the first: {failures.first}")


def produce(options: Options) -> Options:
    """Write `count` records, or for `seconds`; each call fills a part of a partition's batch.

    Drivers that are `clients` warm up together what one would alone.
    """
    failures = Failures()
    # Only failures are reported: a call into Python for each record would measure Python.
    producer = _producer(options, **{"delivery.report.only.error": True})
    size, partitions = options["size"], options["partitions"]
    records = [{"value": value} for value in payloads(size, _PER_CALL)]
    queue_max = min(_QUEUE_RECORDS_MAX, max(2 * _PER_CALL, _QUEUE_BYTES_MAX // size))
    clients = options.get("clients", 1)

    def produce_some(calls: int, seconds: float) -> int:
        """Return how many calls were made."""
        end = time.perf_counter() + seconds
        made = 0
        while made < calls and time.perf_counter() < end:
            while len(producer) > queue_max:
                producer.poll(FULL_S)
            index = (options.get("first", 0) + made) % partitions
            queued = producer.produce_batch(
                options["topic"], records, partition=index, on_delivery=failures
            )
            if queued != len(records):
                raise SystemExit(f"librdkafka took {queued} of {len(records)} records")
            made += 1
        _flush(producer, failures)
        return made

    warm = min(queue_max, options["count"])
    produce_some(warm_calls(warm, partitions, clients), inf)
    _touch(warm * size)
    ready_and_go()
    began, cpu = time.perf_counter(), time.process_time()
    calls = produce_some(options["count"] // _PER_CALL, options.get("seconds", inf))
    return {
        "began": began,
        "ended": time.perf_counter(),
        "cpu_s": time.process_time() - cpu,
        "count": calls * _PER_CALL,
    }


def warm_calls(queued: int, partitions: int, clients: int) -> int:
    """Return with how many calls each of the clients warms up.

    Together they queue as much as one will, and give each partition a large batch at least.
    """
    return -(-max(partitions, queued // _PER_CALL) // clients)


def _touch(size_bytes: int) -> None:
    """Touch memory and give it back: where it was touched by nobody before, it is dearer once."""
    # Zeros would be given without being touched.
    _ = b"x" * size_bytes


def _consumer(options: Options, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": options["to"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": _QUEUE_BYTES_MAX >> 10,
            "fetch.queue.backoff.ms": 1,
            # A fetch for some of its partitions that waits at a broker keeps librdkafka from asking
            # for the others, or for what was assigned since: half a second, by chance.
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 1 << 20,
            "error_cb": _complain,
            **more,
        }
    )


def _ends(consumer: Consumer, options: Options) -> list[TopicPartition]:
    """Return where each partition ends now."""
    places = list[TopicPartition]()
    for index in range(options["partitions"]):
        place = TopicPartition(options["topic"], index)
        _, end = consumer.get_watermark_offsets(place, timeout=_QUIET_S_MAX)
        places.append(TopicPartition(options["topic"], index, end))
    return places


def _read(consumer: Consumer, count: int, take: Callable[[Message], None] | None = None) -> None:
    while count > 0:
        records = consumer.consume(num_messages=min(count, _PER_CALL), timeout=_QUIET_S_MAX)
        if not records:
            raise SystemExit(f"{count} records did not come in {_QUIET_S_MAX:.0f} s")
        if records[-1].error() is not None:
            raise KafkaException(records[-1].error())
        if take is not None:
            for record in records:
                take(record)
        count -= len(records)


def _wait_fetched(size_bytes: int) -> None:
    """Wait until this process has grown by that, and grows no more: librdkafka has all of it."""
    before = largest = _resident()
    grew_at = began = time.monotonic()
    while largest - before < size_bytes or time.monotonic() - grew_at < _STILL_S:
        now = time.monotonic()
        if now - began > _QUIET_S_MAX:
            raise SystemExit(f"{size_bytes} bytes were not fetched in {_QUIET_S_MAX:.0f} s")
        if (resident := _resident()) > largest:
            largest, grew_at = resident, now
        time.sleep(_POLL_S)


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def consume(options: Options) -> Options:
    """Read `count` records: from the start, or those that come after the beginning."""
    count = options["count"]
    ahead_bytes = count * options["size"] if options.get("ahead") else 0
    # Half as much again for what it keeps of each record beside its bytes.
    queue = {"queued.max.messages.kbytes": ahead_bytes * 3 // 2 >> 10} if ahead_bytes else {}
    consumer = _consumer(options, **queue)
    starts = [
        TopicPartition(options["topic"], index, OFFSET_BEGINNING)
        for index in range(options["partitions"])
    ]
    if options.get("from_end"):
        starts = _ends(consumer, options)
        consumer.assign(starts)
    elif warm := options.get("warm_count", 0):
        consumer.assign(starts)
        _read(consumer, warm)
        consumer.unassign()
    if ahead_bytes:
        consumer.assign(starts)
        _wait_fetched(ahead_bytes)
    ready_and_go()
    began, cpu = time.perf_counter(), time.process_time()
    if not options.get("from_end") and not ahead_bytes:
        consumer.assign(starts)
    _read(consumer, count)
    told = {
        "began": began,
        "ended": time.perf_counter(),
        "cpu_s": time.process_time() - cpu,
        "count": count,
    }
    consumer.close()
    return told


def follow(options: Options) -> Options:
    """Read at the tail what is paced, and tell how long each record took since it was due."""
    consumer = _consumer(options, **{"fetch.wait.max.ms": 500, "fetch.min.bytes": 1})
    consumer.assign(_ends(consumer, options))
    times_us = list[int]()
    count, step_s = options["count"], 1 / options["rate"]
    ready_and_go()
    began, cpu = time.perf_counter(), time.process_time()
    first_due, end = began, began + allowed_s(count * step_s) + _READ_S
    while len(times_us) < count and (left_s := end - time.perf_counter()) > 0:
        record = consumer.poll(left_s)
        if record is None:
            continue
        if record.error() is not None:
            raise KafkaException(record.error())
        (due,) = _DUE.unpack_from(record.value() or b"")
        # Those of the writer's warm-up are read, and not counted.
        if due > 0:
            first_due = due if not times_us else first_due
            times_us.append(round((time.perf_counter() - due) * 1e6))
    ended = time.perf_counter()
    # One partition keeps its order: those that were due last are left (V1).
    left = range(len(times_us), count)
    told = {
        "began": began,
        "ended": ended,
        "cpu_s": time.process_time() - cpu,
        "left": len(left),
        "times_us": sorted(times_us + waited_us(left, first_due, step_s, ended)),
    }
    consumer.close()
    return told


def waited_us(numbers: Iterable[int], first_due: float, step_s: float, now: float) -> list[int]:
    """Return for how long each of these records has been due."""
    return [round((now - first_due - number * step_s) * 1e6) for number in numbers]


class Paced:
    """Records that are due one after another, and what became of them."""

    def __init__(self, producer: Producer, options: Options) -> None:
        self._producer: Final = producer
        self._options: Final = options
        self._step_s: Final = 1 / options["rate"]
        self._rest: Final = payloads(options["size"] - _DUE.size, 1)[0]
        self.failures: Final = Failures()
        self.times_us = list[int]()
        self.late_count = 0
        # Those that were not acknowledged yet, or not even sent.
        self._left = set[int]()

    def warm_up(self, count: int) -> None:
        self._send_all(count, inf, is_warm_up=True)
        _flush(self._producer, self.failures)

    def run(self, count: int) -> tuple[float, float]:
        """Send `count` records, each at its time; return when it began, and when it ended (V1)."""
        patience_s = allowed_s(count * self._step_s)
        start = self._send_all(count, patience_s)
        self._producer.flush(max(0.0, start + patience_s - time.perf_counter()))
        return start, time.perf_counter()

    def _send_all(self, count: int, patience_s: float, *, is_warm_up: bool = False) -> float:
        self.times_us, self.late_count, self._left = [], 0, set(range(count))
        start = time.perf_counter()
        for number in range(count):
            due = start + number * self._step_s
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            elif wait < -_LATE_S:
                self.late_count += 1
                if time.perf_counter() > start + patience_s:
                    break
            self._send(number, due, 0.0 if is_warm_up else due)
        return start

    def take_left(self, began: float, ended: float) -> int:
        """Count what is left as having waited until the end, and return how many there are.

        Called when nobody listens any more.
        """
        self.times_us += waited_us(self._left, began, self._step_s, ended)
        return len(self._left)

    def _send(self, number: int, due: float, told_due: float) -> None:
        def told(error: KafkaError | None, record: Message) -> None:
            self._left.discard(number)
            self.times_us.append(round((time.perf_counter() - due) * 1e6))
            self.failures(error, record)

        index = number % self._options["partitions"]
        value = _DUE.pack(told_due) + self._rest
        self._producer.produce(self._options["topic"], value, partition=index, on_delivery=told)


def pace(options: Options) -> Options:
    producer = _producer(options, **{"linger.ms": 0, "socket.nagle.disable": True})
    paced = Paced(producer, options)
    over = threading.Event()
    # Acknowledgements are taken when they come, not when the next record is due.
    listener = threading.Thread(target=_poll_until, args=(producer, over), daemon=True)
    listener.start()
    # Fast enough that this path was gone, and so few that no backlog is waited for.
    paced.warm_up(min(int(options["rate"] * _WARM_S) + 1, _WARM_RECORDS_MAX))
    gc.collect()
    gc.disable()
    ready_and_go()
    cpu = time.process_time()
    began, ended = paced.run(options["count"])
    cpu_s = time.process_time() - cpu
    over.set()
    listener.join()
    left = paced.take_left(began, ended)
    if paced.failures.count:
        raise SystemExit(f"{paced.failures.count} records failed: {paced.failures.first}")
    # What is left in the queue is wanted by nobody.
    producer.purge()
    return {
        "began": began,
        "ended": ended,
        "cpu_s": cpu_s,
        "count": options["count"],
        "left": left,
        "late": paced.late_count,
        "times_us": sorted(paced.times_us),
    }


def _poll_until(producer: Producer, over: threading.Event) -> None:
    while not over.is_set():
        producer.poll(_POLL_S)


def outage(options: Options) -> Options:
    """Write small records all the time, and tell when each was sent and acknowledged."""
    producer = _producer(options, **{"linger.ms": 0, **SHORT_PATIENCE})
    pairs = list[tuple[float, float]]()
    failures = Failures()
    killed_at = list[float]()

    def send() -> None:
        sent = time.perf_counter()

        def told(error: KafkaError | None, record: Message) -> None:
            failures(error, record)
            if error is None:
                pairs.append((sent, time.perf_counter()))

        producer.produce(options["topic"], b"x" * options["size"], partition=0, on_delivery=told)
        producer.poll(_OUTAGE_STEP_S)

    def hear() -> None:
        killed_at.append(float(sys.stdin.readline().split()[1]))

    while len(pairs) < _OUTAGE_ACKS:
        send()
    ready_and_go()
    threading.Thread(target=hear, daemon=True).start()
    end = time.perf_counter() + _OUTAGE_S_MAX
    while time.perf_counter() < end:
        send()
        if killed_at and sum(sent > killed_at[0] for sent, _ in pairs[-_OUTAGE_ACKS:]) >= (
            _OUTAGE_ACKS
        ):
            break
    return {"pairs": pairs, "failed": failures.count, "first_failure": failures.first}


COMMANDS: Final = {
    "produce": produce,
    "consume": consume,
    "follow": follow,
    "pace": pace,
    "outage": outage,
}


def main() -> None:
    command, options = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(COMMANDS[command](options)), flush=True)


if __name__ == "__main__":
    main()
