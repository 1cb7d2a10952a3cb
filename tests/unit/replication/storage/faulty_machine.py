"""A machine with a faulty disk, and a file on it that has been synced."""

from __future__ import annotations

from ottla.replication.storage.faults import FaultPlan, FaultyFile, FaultyFiles, Power
from ottla.replication.storage.memory import MemoryFiles


def machine(plan: FaultPlan | None = None) -> tuple[FaultyFiles, Power]:
    power = Power()
    return FaultyFiles(MemoryFiles(), power, plan), power


def durable(files: FaultyFiles, path: str, content: bytes) -> FaultyFile:
    file = files.open(path, create=True)
    file.write_at(0, [content])
    file.sync()
    files.sync_dir("/")
    return file


def content_of(files: FaultyFiles, path: str) -> bytes:
    return files.open(path, writable=False).read_at(0, 1 << 20)
