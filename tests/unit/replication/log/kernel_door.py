"""A kernel that ends a sync when the test says so, and logs on the real disk for it."""

from __future__ import annotations

import os
from pathlib import Path

from ottla.replication.log.log import Log
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from tests.builders import OneLog, append

WAIT_S = 60.0
# The door tells of so many at a time.
AT_ONCE = 2


class FakeDoor:
    """A kernel that ends an order when the test says so, or when somebody waits for it."""

    def __init__(self) -> None:
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        self.is_open = True
        self.orders: list[tuple[int, int]] = []
        self.ended: list[tuple[int, int]] = []
        # What an order ends with that somebody waits for.
        self.waited_code = 0

    def fileno(self) -> int:
        return self.eventfd

    def begin(self, fd: int, number: int) -> bool:
        if self.is_open:
            self.orders.append((fd, number))
        return self.is_open

    def end(self, code: int = 0) -> None:
        _, number = self.orders.pop(0)
        self.ended.append((number, code))
        os.eventfd_write(self.eventfd, 1)

    def clear(self) -> None:
        os.eventfd_read(self.eventfd)

    def reap(self, *, waits: bool = False) -> list[tuple[int, int]]:
        if waits and not self.ended and self.orders:
            self.end(self.waited_code)
        told, self.ended = self.ended[:AT_ONCE], self.ended[AT_ONCE:]
        return told

    def close(self) -> None:
        os.close(self.eventfd)


def real_log(directory: Path) -> Log:
    """Return a log on the real disk, whose names are durable: one file is all there is to sync."""
    log = OneLog(LogSettings(), DiskFiles(), root=str(directory)).create()
    append(log, b"first")
    log.sync()
    return log


def many_logs(directory: Path, count: int) -> list[Log]:
    logs = list[Log]()
    for number in range(count):
        place = directory / str(number)
        place.mkdir()
        logs.append(real_log(place))
    return logs
