"""A driver process with nats-py, for NATS JetStream: `pace` and `outage` as in `drive_kafka.py`.

Not here: throughput. The client is written in Python and is the limit long before the servers are:
such a figure would be the client's.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any, Final

import nats
from nats.js import JetStreamContext

from bench.versus.drive_kafka import Options, waited_us
from bench.versus.figures import allowed_s
from bench.versus.payloads import payloads

_LATE_S: Final = 0.002
_WARM_S: Final = 0.5
_WARM_RECORDS_MAX: Final = 1000
_ANSWER_S: Final = 60.0
_OUTAGE_STEP_S: Final = 0.01
_OUTAGE_S_MAX: Final = 60.0
_OUTAGE_ACKS: Final = 100
_TRY_S: Final = 0.5
_PAUSE_S: Final = 0.02


async def _word() -> str:
    return str(await asyncio.to_thread(sys.stdin.readline)).strip()


async def _ready_and_go() -> None:
    print("ready", flush=True)
    if await _word() != "go":
        raise SystemExit("nobody said go")


async def _connected(options: Options) -> Any:
    async def complain(error: Exception) -> None:
        print(f"nats: {error!r}", file=sys.stderr)

    return await nats.connect(
        options["to"].split(","),
        reconnect_time_wait=0.05,
        max_reconnect_attempts=-1,
        error_cb=complain,
    )


class Paced:
    """Records that are due one after another, and what became of them."""

    def __init__(self, jetstream: JetStreamContext, options: Options) -> None:
        self._jetstream: Final = jetstream
        self._subject: Final = str(options["topic"])
        self._step_s: Final = 1 / options["rate"]
        self._value: Final = payloads(options["size"], 1)[0]
        self.times_us = list[int]()
        self.late_count = 0
        # Those that were not acknowledged yet, or not even sent.
        self.left = set[int]()
        self._failures: Final = list[BaseException]()

    async def run(self, count: int) -> tuple[float, float]:
        """As in `drive_kafka.py`: a pace that is not kept is not waited for (V1)."""
        self.times_us, self.late_count, self.left = [], 0, set(range(count))
        tasks = set[asyncio.Task[None]]()
        start = time.perf_counter()
        end = start + allowed_s(count * self._step_s)
        for number in range(count):
            due = start + number * self._step_s
            wait = due - time.perf_counter()
            if wait < -_LATE_S:
                self.late_count += 1
                if time.perf_counter() > end:
                    break
            await asyncio.sleep(max(wait, 0.0))
            task = asyncio.create_task(self._send(number, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(self._hear)
        await self._settle(tasks, end)
        ended = time.perf_counter()
        self.times_us += waited_us(self.left, start, self._step_s, ended)
        return start, ended

    async def _settle(self, tasks: set[asyncio.Task[None]], end: float) -> None:
        """Wait for what was sent, until then; what failed, now or long before, is raised."""
        if tasks:
            left_s = max(0.0, end - time.perf_counter())
            _, left = await asyncio.wait(set(tasks), timeout=left_s)
            for task in left:
                task.cancel()
        if self._failures:
            raise self._failures[0]

    def _hear(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)

    async def _send(self, number: int, due: float) -> None:
        await self._jetstream.publish(self._subject, self._value, timeout=_ANSWER_S)
        self.left.discard(number)
        self.times_us.append(round((time.perf_counter() - due) * 1e6))


async def pace(options: Options) -> Options:
    connection = await _connected(options)
    paced = Paced(connection.jetstream(), options)
    await paced.run(min(int(options["rate"] * _WARM_S) + 1, _WARM_RECORDS_MAX))
    gc.collect()
    gc.disable()
    await _ready_and_go()
    cpu = time.process_time()
    began, ended = await paced.run(options["count"])
    await connection.close()
    return {
        "began": began,
        "ended": ended,
        "cpu_s": time.process_time() - cpu,
        "count": options["count"],
        "left": len(paced.left),
        "late": paced.late_count,
        "times_us": sorted(paced.times_us),
    }


class Writer:
    """Writes small records all the time; each is tried again until it is acknowledged."""

    def __init__(self, jetstream: JetStreamContext, options: Options) -> None:
        self._jetstream: Final = jetstream
        self._options: Final = options
        self._end: Final = time.perf_counter() + _OUTAGE_S_MAX
        self._tasks: Final = set[asyncio.Task[None]]()
        # When each was sent, and when it was acknowledged.
        self.pairs: Final = list[tuple[float, float]]()

    @property
    def is_over(self) -> bool:
        return time.perf_counter() > self._end

    async def step(self) -> None:
        task = asyncio.create_task(self._send())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(_OUTAGE_STEP_S)

    async def _send(self) -> None:
        sent, value = time.perf_counter(), b"x" * self._options["size"]
        while not self.is_over:
            try:
                await self._jetstream.publish(self._options["topic"], value, timeout=_TRY_S)
            except (nats.errors.Error, OSError, TimeoutError):
                await asyncio.sleep(_PAUSE_S)
            else:
                self.pairs.append((sent, time.perf_counter()))
                return

    def sent_since(self, moment: float) -> int:
        return sum(sent > moment for sent, _ in self.pairs)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def outage(options: Options) -> Options:
    connection = await _connected(options)
    writer = Writer(connection.jetstream(), options)
    while len(writer.pairs) < _OUTAGE_ACKS and not writer.is_over:
        await writer.step()
    await _ready_and_go()
    hearing = asyncio.create_task(_word())
    while not writer.is_over:
        await writer.step()
        if hearing.done() and writer.sent_since(float(hearing.result().split()[1])) > _OUTAGE_ACKS:
            break
    writer.close()
    return {"pairs": writer.pairs, "failed": 0, "first_failure": ""}


COMMANDS: Final = {"pace": pace, "outage": outage}


def main() -> None:
    command, options = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(asyncio.run(COMMANDS[command](options))), flush=True)


if __name__ == "__main__":
    main()
