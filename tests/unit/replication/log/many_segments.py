"""A log of very many segments on a real disk, and a process that opens it with few descriptors.

`python -m tests.unit.replication.log.many_segments <root> <count>` opens such a log, reads, looks a
time up, appends, and tells in one line of JSON what that took.

Each segment holds one batch of one record, so a segment's number is its base offset. The files are
written directly: to append and roll so often would take an hour.

Not here: what it may take (`test_disk_at_start_limits.py`).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.header import LENGTH_END, STAMP_END, stamp
from ottla.replication.log.lookup import first_at_or_after
from ottla.replication.log.state import (
    NOTHING_TRUSTED,
    encode_producers,
    producers_key,
    producers_prefix,
)
from ottla.replication.producers import ProducerStates
from tests.builders import NOW_MS, append, produced
from tests.unit.replication.log.disk_at_start import BATCH, SETTINGS, VICTIM, Node, Running

DESCRIPTORS_MAX: Final = 1024
# So many of the newest segments may be left to recover.
RECOVERED_MAX: Final = 300
# Of one file; ext4 takes 65,000.
_NAMES_MAX: Final = 30_000
_BODY: Final = produced((b"k", b"%031d" % 0))
# Whoever asks for a descriptor says so first.
_ASKING: Final = frozenset({"open", "mmap.__new__", "os.listdir", "os.scandir"})


@dataclass(frozen=True, slots=True)
class Told:
    """What it took to open and use the log."""

    open_s: float
    read_s: float
    look_up_s: float
    append_s: float
    # The most that were open at once.
    descriptors: int
    # What the process grew by at its largest.
    memory_mb: float
    checked_bytes: int


def node_at(root: str) -> Node:
    return Node(root, replace(SETTINGS, segment_bytes=BATCH))


def batch_at(number: int) -> bytes:
    return stamp(Offset(number), BATCH - LENGTH_END, LeaderEpoch(0)) + _BODY[STAMP_END:]


def make_segments(root: str, count: int) -> None:
    """Leave what a node leaves that has written and checkpointed `count` segments and died."""
    node = node_at(root)
    with node.started() as running:
        running.manager.create(VICTIM).assign_epoch(LeaderEpoch(0))
        append(running.log, (b"k", b"%031d" % 0))
        running.log.roll()
        running.log.active.remove()
    directory = os.open(node.path(0).parent, os.O_RDONLY)
    try:
        for number in range(1, count):
            _write(directory, f"{number:020d}.log", batch_at(number))
        for suffix in (".index", ".timeindex"):
            _write_indexes(directory, suffix, node.path(0, suffix).read_bytes(), count)
    finally:
        os.close(directory)
    trust_below(node, count)


def _write(directory: int, name: str, content: bytes) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640, dir_fd=directory)
    os.write(file, content)
    os.close(file)


def _write_indexes(directory: int, suffix: str, content: bytes, count: int) -> None:
    """Make one file with many names, as all have the same entries; new files are what takes time.

    But not for the newest segments: a recovery writes to their indexes.
    """
    first = f"{0:020d}{suffix}"
    for number in range(1, count):
        name = f"{number:020d}{suffix}"
        if number % _NAMES_MAX == 0 or number >= count - RECOVERED_MAX:
            _write(directory, name, content)
            first = name
        else:
            os.link(first, name, src_dir_fd=directory, dst_dir_fd=directory)


def trust_below(node: Node, offset: int, *, is_snapshot_kept: bool = True) -> None:
    """Put the recovery point here, with or without a snapshot of the producers beside it."""
    with node.opened_store() as store:
        snapshots: dict[bytes, bytes | None] = {
            key: None for key, _ in store.scan(producers_prefix("t-0"))
        }
    if is_snapshot_kept:
        snapshots[producers_key("t-0", Offset(offset))] = encode_producers(ProducerStates())
    node.commit(snapshots)
    node.change_state(
        recovery_point=Offset(offset),
        recovery_base=Offset(offset - 1),
        recovery_position=BATCH,
        trusted=NOTHING_TRUSTED._replace(max_timestamp=NOW_MS, max_timestamp_offset=offset - 1),
        high_watermark=Offset(offset),
    )


class _Descriptors:
    """Knows the most descriptors that were ever open.

    The kernel gives out the lowest number that is free. So whoever gets number n has n others
    beside it.
    """

    def __init__(self) -> None:
        self.most = 0
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _given: tuple[object, ...]) -> None:
        if event in _ASKING:
            free = os.dup(0)
            os.close(free)
            self.most = max(self.most, free + 1)


def _memory_mb() -> float:
    """Return the most memory that was resident in this process, and not in the one before exec."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("the kernel does not tell VmHWM")


def use(root: str, count: int) -> Told:
    """Open the log, which has `count` segments; read, look up, and append three batches to it."""
    descriptors, memory_mb = _Descriptors(), _memory_mb()
    times = [time.monotonic()]
    with node_at(root).started() as running:
        times.append(time.monotonic())
        log, found = running.log, running.report.recovered.get(VICTIM)
        assert (log.offline, len(log.segments), log.end_offset) == (None, count, count)
        assert running.report.damaged == {}
        for step in (_read, _look_up, _append):
            step(running, count)
            times.append(time.monotonic())
    open_s, read_s, look_up_s, append_s = (round(end - start, 3) for start, end in pairwise(times))
    return Told(
        open_s=open_s,
        read_s=read_s,
        look_up_s=look_up_s,
        append_s=append_s,
        descriptors=descriptors.most,
        memory_mb=round(_memory_mb() - memory_mb, 1),
        checked_bytes=found.checked_bytes if found else 0,
    )


def _read(running: Running, count: int) -> None:
    for number in (0, 1, count // 2, count - 2, count - 1):
        found = running.log.read(Offset(number), bytes_max=1)
        assert found is not None
        assert found.read() == batch_at(number)


def _look_up(running: Running, _count: int) -> None:
    # Later than all of them, so that each segment is asked.
    assert first_at_or_after(running.log, NOW_MS + 1) is None


def _append(running: Running, count: int) -> None:
    end, log = count + 3, running.log
    for number in range(count, end):
        assert append(log, (b"k", b"%031d" % 0)) == number
    running.manager.checkpoint()
    assert (log.state.recovery_point, len(log.segments)) == (end, end)
    _read(running, end)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, DESCRIPTORS_MAX))
    print(json.dumps(asdict(use(sys.argv[1], int(sys.argv[2])))))
