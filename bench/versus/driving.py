"""Drivers as child processes: they get ready, wait for the word, and say what they saw.

    driver → us    "ready"            it is connected, and has touched the memory it will use
    us → driver    "go"               the clock runs
    us → driver    "killed SECONDS"   only to the writer of an outage
    driver → us    {...}              one line of JSON

So drivers that begin together begin at the same time, and what they prepare is not in the figure.
Their clocks are one: `perf_counter` is the machine's, and the same in all processes.

D1  a driver that is not done in time is killed, and its turn fails

Not here: what drivers do (`drive_kafka.py`, `drive_nats.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from bench.node_servers import TOP

Told = dict[str, Any]


class DriverError(Exception):
    """A driver failed or was too slow; its turn does not count."""


class Driver:
    """One driver process; begun once, asked once."""

    def __init__(self, module: str, command: str, options: Mapping[str, Any], max_s: float) -> None:
        self._what: Final = f"{module} {command}"
        self._process: Final = subprocess.Popen(
            [sys.executable, "-m", module, command, json.dumps(options)],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._watchdog: Final = threading.Timer(max_s, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        # Read all the time: a driver that complains a lot must not wait for us.
        self._complaints: Final = list[str]()
        self._listener: Final = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._complaints.append(line.rstrip())

    def wait_ready(self) -> None:
        if self._read() != "ready":
            raise self._failure()

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def result(self) -> Told:
        line = self._read()
        try:
            told: Told = json.loads(line)
        except ValueError:
            raise self._failure() from None
        return told

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _failure(self) -> DriverError:
        self._process.kill()
        self._process.wait()
        self._listener.join(1.0)
        return DriverError(f"{self._what} failed or was too slow: {self._complaints[-3:]}")

    def close(self) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        self._listener.join(1.0)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class Drivers:
    """Some drivers that begin together; closed with the block."""

    def __init__(self, max_s: float) -> None:
        self._max_s: Final = max_s
        self._all: Final = list[Driver]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for driver in self._all:
            driver.close()

    def add(self, module: str, command: str, options: Mapping[str, Any]) -> Driver:
        driver = Driver(module, command, options, self._max_s)
        self._all.append(driver)
        return driver

    def wait_ready(self) -> None:
        for driver in self._all:
            driver.wait_ready()

    def go(self) -> None:
        for driver in self._all:
            driver.say("go")

    def results(self) -> list[Told]:
        return [driver.result() for driver in self._all]


def seconds_of(told: Sequence[Told]) -> float:
    """Return the time from the first beginning to the last end."""
    return float(max(one["ended"] for one in told) - min(one["began"] for one in told))
