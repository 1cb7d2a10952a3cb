"""A data directory in memory, to be started as often as a test likes."""

from __future__ import annotations

from ottla.proto.ids import LeaderEpoch, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultyFiles, FaultyStore, Power
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, append, small_settings

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Node:
    """A data directory, to be started as often as a test likes."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.power = Power()
        self.disk = MemoryFiles()
        self.disk.make_dir("/data")
        self.files = FaultyFiles(self.disk, self.power)
        self.records: dict[bytes, bytes] = {}
        self.settings = settings or small_settings()
        self.report = StartReport(None, {}, {}, [])

    def start(self) -> LogManager:
        self.store = FaultyStore(MemoryStateStore(self.records), self.power)
        manager = LogManager(self.files, self.store, "/data", lambda topic: self.settings)
        self.report = manager.open(now_ms=NOW_MS)
        return manager


def lead(manager: LogManager, partition: TopicPartition, *values: bytes) -> Log:
    log = manager.create(partition)
    log.assign_epoch(LeaderEpoch(0))
    for value in values:
        append(log, value)
    return log
