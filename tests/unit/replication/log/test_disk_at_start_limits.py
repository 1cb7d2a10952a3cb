"""What a start does on a full disk, with a wrong clock, and with very many segments.

Rows of the list "Disk at start". A full disk is asked at every single write, sync and commit of a
recovery: the start goes on, the log says why it is offline, and once there is room everything is
there again.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.proto.records.header import STAMP_END, stamp
from ottla.replication.epochs import EpochStart
from ottla.replication.log.handles import HANDLES_MAX
from ottla.replication.log.intents import crc_of_file
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import (
    CLEAN_SHUTDOWN_KEY,
    Intent,
    PartitionState,
    Pending,
    encode_state,
    partition_key,
)
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import FaultPlan, FaultRule
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, append, batches_of, produced
from tests.portion import portion
from tests.unit.replication.log.disk_at_start import (
    BATCH,
    END,
    SETTINGS,
    Node,
    filled,
    time_of,
)
from tests.unit.replication.log.many_segments import (
    RECOVERED_MAX,
    Told,
    make_segments,
    node_at,
    trust_below,
)

REPOSITORY = Path(__file__).parents[4]


# -- a full disk -----------------------------------------------------------------------------------


def torn(root: Path) -> Node:
    """A recovery that checks, writes again, cuts, removes leftovers and moves the point."""
    node = filled(root)
    node.put(15, 2 * BATCH - 1, b"!")
    node.path(99, ".log.deleted").write_bytes(b"left")
    del node.written[16:]
    return node


def interrupted_swap(root: Path) -> Node:
    """A recovery that has to finish a swap; the cleaned segment happens to hold what was there."""
    node = filled(root, replace(SETTINGS, compact=True))
    cleaned = node.path(0, ".log.cleaned")
    cleaned.write_bytes(b"".join(node.written[:10]))
    size, crc = crc_of_file(DiskFiles(), str(cleaned))
    sources = (Offset(0), Offset(5))
    node.change_state(
        pending=Pending(intent=Intent.SWAP, offset=Offset(0), sources=sources, size=size, crc=crc)
    )
    return node


def interrupted_deletion(root: Path) -> Node:
    """A start that has to finish the removal of another partition."""
    node = filled(root)
    with node.started() as running:
        running.manager.create(TopicPartition("old", 0))
    state = encode_state(replace(node.state(), pending=Pending(intent=Intent.DELETE)))
    node.commit({partition_key("old-0"): state})
    return node


def clean(root: Path) -> Node:
    """A start that has only the marker to delete."""
    return filled(root, clean=True)


MAKERS: dict[str, Callable[[Path], Node]] = {
    "torn": torn,
    "interrupted swap": interrupted_swap,
    "interrupted deletion": interrupted_deletion,
    "clean": clean,
}


def require_survives(node: Node, plan: FaultPlan, *, refusal_allowed: bool = False) -> None:
    """A start that meets the plan's errors, and one after there is room again.

    The start itself ends, whatever the disk says; only a store that cannot commit may refuse it,
    and with a sentence.
    """
    try:
        with replace(node, plan=plan).started() as running:
            offline = [log.offline for log in running.manager.logs.values()]
            assert all(reason is None or "No space left" in reason for reason in offline)
    except StorageError as error:
        if not (refusal_allowed and "failed to commit" in str(error)):
            raise
    with node.started() as running:
        assert running.log.offline is None
        assert batches_of(running.log) == node.written
        assert running.report.damaged == {}
        assert append(running.log, (b"k", b"goes on")) == len(node.written)


@pytest.mark.parametrize("operation", ["write", "truncate", "sync", "sync_dir", "open", "rename"])
@pytest.mark.parametrize("what", MAKERS)
def test_a_disk_that_is_full_from_some_operation_on_loses_nothing(
    tmp_path: Path, what: str, operation: str
) -> None:
    for nth in range(1, 200):
        node = MAKERS[what](tmp_path / str(nth))
        rules = [FaultRule(operation, "*/t-0/*", later, errno.ENOSPC) for later in range(nth, 300)]
        # The directories of the partitions, and their parent.
        rules += [FaultRule(operation, "*-0", rule.nth, errno.ENOSPC) for rule in rules]
        require_survives(node, FaultPlan(rules))
        if max(rule.hits for rule in rules) < nth:
            return
    pytest.fail("the recovery never ended")


@pytest.mark.parametrize("operation", ["commit", "committed"])
@pytest.mark.parametrize("what", MAKERS)
def test_a_state_store_that_is_full_from_some_commit_on_loses_nothing(
    tmp_path: Path, what: str, operation: str
) -> None:
    for nth in range(1, 20):
        node = MAKERS[what](tmp_path / str(nth))
        rules = [FaultRule(operation, "*", later, errno.ENOSPC) for later in range(nth, 40)]
        require_survives(node, FaultPlan(rules), refusal_allowed=True)
        if max(rule.hits for rule in rules) < nth:
            return
    pytest.fail("the recovery never ended")


@pytest.mark.parametrize("room", [0, 1, 8, 99, 100, 101, 350, 600])
def test_a_disk_with_little_room_left_loses_nothing(tmp_path: Path, room: int) -> None:
    require_survives(torn(tmp_path), FaultPlan(room_bytes=room))


def test_a_full_disk_is_told_with_its_reason(tmp_path: Path) -> None:
    node = torn(tmp_path)
    with replace(node, plan=FaultPlan(room_bytes=0)).started() as running:
        assert running.log.offline is not None
        assert "No space left on device" in running.log.offline


# -- the clock -------------------------------------------------------------------------------------


def test_a_clock_before_all_timestamps_removes_nothing_and_rolls_nothing(tmp_path: Path) -> None:
    settings = replace(SETTINGS, retention_ms=1000, segment_ms=1000)
    node = filled(tmp_path, settings)
    with node.started(now_ms=5) as running:
        running.log.advance_high_watermark(Offset(END))
        assert running.manager.retain(now_ms=5) == 0
        assert not running.log.maybe_roll(5)
        assert batches_of(running.log) == node.written
        append(running.log, (b"k", b"early"), now_ms=5, timestamps=[5])
        assert len(running.log.segments) == 4
    # The clock is right again: old is what is old by its own timestamps.
    with node.started(now_ms=time_of(4) + 1001) as running:
        assert running.manager.retain(now_ms=time_of(4) + 1000) == 0
        assert running.manager.retain(now_ms=time_of(4) + 1001) == 1
        assert batches_of(running.log)[:12] == node.written[5:]


def test_a_clock_before_all_timestamps_keeps_producers_and_recovers_as_usual(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    with node.started() as running:
        append(running.log, (b"k", b"once"), producer_id=9, sequence=0)
    node.put(15, 2 * BATCH + 70, b"!")
    with node.started(now_ms=0) as running:
        assert batches_of(running.log) == node.written
        assert running.log.producers.get(9) is None
        running.manager.retain(now_ms=0)
    with node.started(now_ms=0) as running:
        append(running.log, (b"k", b"again"), timestamps=[0], now_ms=0, producer_id=9, sequence=0)
        running.manager.retain(now_ms=0)
        assert running.log.producers.get(9) is not None


# -- very many segments ----------------------------------------------------------------------------

_MANY = """
import resource, sys
from dataclasses import replace
from ottla.proto.ids import LeaderEpoch, Offset
from tests.builders import append, batches_of
from tests.unit.replication.log.disk_at_start import SETTINGS, VICTIM, Node

root, count, limit, is_synced = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
settings = replace(SETTINGS, segment_bytes=100, retention_bytes=99 * 100)
node = Node(root, settings)
with node.started() as running:
    log = running.manager.create(VICTIM)
    log.assign_epoch(LeaderEpoch(0))
    for number in range(count):
        append(log, (b"k", b"%030d" % number))
        if number % 10 == 0 and is_synced:
            running.manager.checkpoint()
        elif number % 10 == 0:
            log.sync()
    log.advance_high_watermark(Offset(count))
    if is_synced:
        running.manager.checkpoint()
    written = batches_of(log)
    assert len(log.segments) == count
with node.started() as running:
    assert running.log.offline is None, running.log.offline
    assert batches_of(running.log) == written
    running.log.advance_high_watermark(Offset(count))
    assert running.manager.retain(now_ms=0) == count - 100
    assert batches_of(running.log) == written[count - 100:]
with node.started() as running:
    assert batches_of(running.log) == written[count - 100:]
print("done")
"""


@pytest.mark.parametrize(
    ("count", "is_synced"),
    [
        pytest.param(3000, True, id="3000 synced", marks=pytest.mark.long),
        pytest.param(1500, False, id="1500 to recover"),
    ],
)
def test_very_many_segments_need_no_more_than_1024_descriptors(
    tmp_path: Path, count: int, is_synced: bool
) -> None:
    # What a process gets unless somebody asks for more. The files that are read last stay open,
    # 256 of them, each with its two maps.
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(tmp_path / "data"), str(count), "1024", f"{is_synced:d}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def used(root: Path, count: int) -> Told:
    """What it took another process to open and use a log of `count` segments; told to people."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.replication.log.many_segments", str(root), str(count)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(f"{count} segments: {done.stdout}", end="")
    told = Told(**json.loads(done.stdout))
    # The files that were read last, each with its two maps, and what a process has anyway.
    assert told.descriptors <= 3 * HANDLES_MAX + 64
    assert told.memory_mb < 300
    return told


@pytest.mark.long
def test_a_hundred_thousand_segments_on_disk_are_opened_and_used_with_1024_descriptors(
    tmp_path: Path,
) -> None:
    count, root = portion(100_000, least=1000), tmp_path / "data"
    try:
        began = time.monotonic()
        make_segments(str(root), count)
        print(f"\n{count} segments made in {time.monotonic() - began:.1f} s")
        assert used(root, count).checked_bytes == 0
        # The worst that is no damage: without a snapshot, all batches are asked for producers.
        trust_below(node_at(str(root)), count + 3 - RECOVERED_MAX, is_snapshot_kept=False)
        assert used(root, count + 3).checked_bytes == RECOVERED_MAX * BATCH
    finally:
        # Nobody wants to keep so many files until the third run from now.
        shutil.rmtree(root)


@pytest.mark.long
def test_thirty_thousand_segments_in_memory_are_opened_and_read() -> None:
    count = 30_000
    files, disk = MemoryFiles(), dict[bytes, bytes]()
    files.make_dir("/data")
    files.make_dir("/data/t-0")
    batch = produced(b"v")
    length = len(batch) - 12
    for number in range(count):
        head = stamp(Offset(number), length, LeaderEpoch(0))
        file = files.open(f"/data/t-0/{number:020d}.log", create=True)
        file.write_at(0, [head, batch[STAMP_END:]])
    state = PartitionState(
        recovery_point=Offset(count),
        recovery_base=Offset(count - 1),
        recovery_position=len(batch),
        start_offset=Offset(0),
        high_watermark=Offset(count),
        epochs=(EpochStart(LeaderEpoch(0), Offset(0)),),
    )
    disk[partition_key("t-0")] = encode_state(state)
    manager = LogManager(files, MemoryStateStore(disk), "/data", lambda topic: SETTINGS)
    assert manager.open(now_ms=NOW_MS).damaged == {}
    (log,) = manager.logs.values()
    assert (log.offline, len(log.segments), log.end_offset) == (None, count, count)
    for number in (0, 1, count // 2, count - 2, count - 1):
        found = log.read(Offset(number), bytes_max=1)
        assert found is not None
        assert found.first_offset == number
    assert len(manager.handles) <= HANDLES_MAX
    assert disk.get(CLEAN_SHUTDOWN_KEY) is None
