"""Room that a segment asks for before it needs it: how much, when, and that it is given back."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset, TopicPartition
from ottla.replication.log.ahead import AHEAD_FROM, AHEAD_MAX, RoomAhead
from ottla.replication.log.log import Log
from ottla.replication.log.manager import _OPEN_FREELY, LogManager
from ottla.replication.log.resting import give_back_room
from ottla.replication.log.scan import walk
from ottla.replication.log.segment import note_of
from ottla.replication.log.surgery import truncate
from ottla.replication.storage.disk import DiskFile, DiskFiles
from ottla.replication.storage.memory import MemoryFile, MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, OneLog, append, small_settings, values_of
from tests.unit.replication.log.one_directory import FIRST, lead
from tests.unit.replication.log.scarce import ScarceFiles

MIB = 1024**2
# A page, of which a file has only a part, and what a file system keeps of a file besides.
_CRUMBS_BYTES = 16 * 1024


class AskedFile(MemoryFile):
    """Remembers what it was asked for."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        inner = MemoryFiles().open("/a", create=True)
        super().__init__(inner._open_inode(), writable=True)
        self.asked: list[int] = []

    def reserve(self, size: int) -> None:
        self.asked.append(size)

    def give_back(self) -> bool:
        self.asked.append(0)
        return True


@pytest.mark.parametrize(
    ("size", "segment_bytes", "asked"),
    [
        (AHEAD_FROM, 1024 * MIB, [MIB]),
        (3 * MIB, 1024 * MIB, [3 * MIB]),
        (500 * MIB, 1024 * MIB, [AHEAD_MAX]),
        (60 * MIB, 64 * MIB, [4 * MIB]),
        (64 * MIB, 64 * MIB, []),
        # One batch larger than a segment may be.
        (65 * MIB, 64 * MIB, []),
    ],
)
def test_as_much_as_there_is_but_no_more_than_the_segment_takes(
    size: int, segment_bytes: int, asked: list[int]
) -> None:
    file, room = AskedFile(), RoomAhead(0)
    room.ask(file, size, segment_bytes)
    assert file.asked == asked


def test_it_is_time_to_ask_again_when_half_of_it_is_used() -> None:
    room = RoomAhead(0)
    assert room.due_at == AHEAD_FROM
    room.ask(AskedFile(), 100 * MIB, 1024 * MIB)
    assert room.due_at == 108 * MIB
    room.ask(AskedFile(), 64 * MIB, 64 * MIB)
    # Nothing is wanted: not to be asked for each batch all the same.
    assert room.due_at > 64 * MIB


def test_it_is_given_back_once() -> None:
    file, room = AskedFile(), RoomAhead(0)
    room.ask(file, 2 * MIB, 64 * MIB)
    room.give_back(lambda: file)
    room.give_back(lambda: file)
    assert file.asked == [2 * MIB, 0]


@pytest.mark.parametrize("size", [0, 100, 500 * MIB])
def test_whoever_loads_a_segment_gives_back_what_a_crash_may_have_left(size: int) -> None:
    # Also a small one: after a power cut its size may be an old one, and its room is not.
    file = AskedFile()
    RoomAhead(size).give_back(lambda: file)
    assert file.asked == [0]


def test_nobody_opens_a_file_to_give_back_nothing() -> None:
    room = RoomAhead(0)
    room.was_cut(0)
    room.give_back(lambda: pytest.fail("opened"))


# -- on a real disk --------------------------------------------------------------------------------


@pytest.fixture
def one(tmp_path: Path) -> OneLog:
    # Asked past what is tested: if that did nothing, these tests must fail and not be skipped.
    with (tmp_path / "probe").open("wb") as probe:
        libc = ctypes.CDLL(None, use_errno=True)
        answer = libc.fallocate(probe.fileno(), 1, ctypes.c_int64(0), ctypes.c_int64(MIB))
        if answer and ctypes.get_errno() in (errno.EOPNOTSUPP, errno.ENOSYS):
            pytest.skip("this file system cannot reserve room")
    settings = small_settings(segment_bytes=8 * MIB, max_message_bytes=2 * MIB)
    return OneLog(settings, DiskFiles(), MemoryStateStore(), str(tmp_path))


def unused_bytes(log: Log, number: int = -1) -> int:
    found = os.stat(log.segments[number].path)
    return found.st_blocks * 512 - found.st_size


def filled(log: Log, mebibytes: int) -> Log:
    for _ in range(mebibytes):
        append(log, b"x" * MIB)
    return log


def started(one: OneLog) -> LogManager:
    manager = LogManager(one.files, one.store, one.root, lambda topic: one.settings)
    manager.open(now_ms=NOW_MS)
    return manager


def test_a_small_segment_has_what_it_needs(one: OneLog) -> None:
    log = one.create()
    append(log, b"x" * 1000)
    assert unused_bytes(log) <= _CRUMBS_BYTES


def test_a_segment_that_grows_has_room_and_its_size_is_that_of_its_batches(one: OneLog) -> None:
    log = filled(one.create(), 3)
    assert unused_bytes(log) > MIB
    assert Path(log.active.path).stat().st_size == log.active.size
    assert values_of(log) == [b"x" * MIB] * 3


def test_a_full_segment_keeps_nothing(one: OneLog) -> None:
    log = filled(one.create(), 9)
    assert len(log.segments) == 2
    assert unused_bytes(log, 0) <= _CRUMBS_BYTES


def test_a_log_that_is_closed_keeps_nothing(one: OneLog) -> None:
    manager = started(one)
    log = lead(manager, FIRST, *[b"x" * MIB] * 3)
    assert unused_bytes(log) > MIB
    manager.checkpoint()
    manager.close(broker_epoch=1)
    assert unused_bytes(log) <= _CRUMBS_BYTES


def test_a_log_that_is_cut_keeps_nothing_and_goes_on(one: OneLog) -> None:
    log = filled(one.create(), 3)
    truncate(log, Offset(2))
    assert unused_bytes(log) <= _CRUMBS_BYTES
    filled(log, 2)
    assert unused_bytes(log) > MIB
    assert values_of(log) == [b"x" * MIB] * 4


def test_a_start_that_recovers_a_log_gives_back_what_the_crash_left(one: OneLog) -> None:
    log = lead(started(one), FIRST, *[b"x" * MIB] * 3)
    assert unused_bytes(log) > MIB
    again = started(one).logs[FIRST]
    assert unused_bytes(again) <= _CRUMBS_BYTES
    assert values_of(again) == [b"x" * MIB] * 3


def test_of_a_log_that_needs_no_recovery_it_stays_until_the_segment_is_full(one: OneLog) -> None:
    left = unused_bytes(filled(one.create(), 3))
    # Opened as after a crash: the first one was never closed.
    log, _ = one.open()
    assert values_of(log) == [b"x" * MIB] * 3
    assert unused_bytes(log) == left
    log.roll()
    assert unused_bytes(log, 0) <= _CRUMBS_BYTES


def test_so_does_what_a_power_cut_left_behind_a_file_that_became_small_again(one: OneLog) -> None:
    log = one.create()
    append(log, b"x" * 1000)
    log.checkpoint()
    log.active.writer().reserve(4 * MIB)
    again, _ = one.open()
    assert unused_bytes(again) > 3 * MIB
    again.roll()
    assert unused_bytes(again, 0) <= _CRUMBS_BYTES


def test_what_is_written_after_it_was_given_back_has_room_again(one: OneLog) -> None:
    log = filled(one.create(), 3)
    assert give_back_room(log)
    assert unused_bytes(log) <= _CRUMBS_BYTES
    assert not give_back_room(log)
    filled(log, 3)
    assert unused_bytes(log) > MIB
    assert give_back_room(log)
    assert unused_bytes(log) <= _CRUMBS_BYTES
    assert values_of(log) == [b"x" * MIB] * 6


def test_what_a_failed_write_left_behind_the_batches_is_not_cut(one: OneLog) -> None:
    log = filled(one.create(), 3)
    size = log.active.size
    # Recovery looks at it, and says what it cut.
    log.active.writer().write_at(size, [b"a part of a batch"])
    give_back_room(log)
    assert Path(log.active.path).stat().st_size > size
    assert unused_bytes(log) <= _CRUMBS_BYTES


def test_a_compacted_segment_keeps_nothing(one: OneLog) -> None:
    log = filled(one.create(), 3)
    made = log.new_segment(Offset(0), suffix=".cleaned")
    made.create()
    for at in walk(log.active.reader(), 0, log.active.size):
        batch = log.active.reader().read_at(at.position, at.header.size)
        made.write([batch], [note_of(at.header)])
    assert os.stat(made.path).st_blocks * 512 - made.size > MIB
    made.seal()
    assert os.stat(made.path).st_blocks * 512 - made.size <= _CRUMBS_BYTES


def test_nobody_asks_for_much_of_what_is_free(one: OneLog, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DiskFiles().open(f"{one.root}/a", create=True)
    monkeypatch.setattr(DiskFile, "_free_bytes", lambda _: 64 * 4 * MIB - 1)
    file.reserve(4 * MIB)
    assert os.fstat(file.fileno()).st_blocks == 0
    monkeypatch.setattr(DiskFile, "_free_bytes", lambda _: 64 * 4 * MIB)
    file.reserve(4 * MIB)
    assert os.fstat(file.fileno()).st_blocks * 512 >= 4 * MIB


# -- V4: synced once more before it is let go of ---------------------------------------------------


def of_many(files: ScarceFiles) -> tuple[LogManager, Log]:
    """Return a manager of more logs than may keep their files open, and one with three batches."""
    settings = small_settings(segment_bytes=8 * MIB, max_message_bytes=2 * MIB)
    files.make_dir("/data")
    manager = LogManager(files, MemoryStateStore(), "/data", lambda topic: settings)
    manager.open(now_ms=NOW_MS)
    for index in range(_OPEN_FREELY):
        manager.create(TopicPartition("other", index))
    return manager, lead(manager, FIRST, *[b"x" * MIB] * 3)


def is_open(log: Log) -> bool:
    return log.active.is_open


def test_a_log_at_rest_among_many_gives_its_room_back_and_then_its_file() -> None:
    files = ScarceFiles()
    manager, log = of_many(files)
    path = log.active.path
    assert path in files.has_room
    manager.checkpoint()
    assert path not in files.has_room
    # The kernel still has to tell whether its last block could be written again.
    assert path in files.touched
    assert is_open(log)
    assert manager.checkpoint() == 1
    assert not is_open(log)
    assert not files.touched
    assert manager.checkpoint() == 0
    assert not files.let_go_too_soon


def test_a_log_that_is_written_to_again_before_that_keeps_its_file() -> None:
    files = ScarceFiles()
    manager, log = of_many(files)
    manager.checkpoint()
    filled(log, 2)
    assert log.active.path in files.has_room
    manager.checkpoint()
    assert is_open(log)
    manager.checkpoint()
    assert not is_open(log)
    assert not files.let_go_too_soon


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_segment_that_is_full_is_synced_after_it_gave_its_room_back(is_synced: bool) -> None:
    files = ScarceFiles()
    _, log = of_many(files)
    path = log.active.path
    if is_synced:
        log.sync()
    log.roll()
    assert path in files.touched
    log.sync()
    assert path not in files.touched
    assert not log.segments[0].is_open
    assert not files.let_go_too_soon


def test_who_needs_descriptors_syncs_it_and_closes_it() -> None:
    files = ScarceFiles()
    manager, log = of_many(files)
    manager.checkpoint()
    assert log.active.path in files.touched
    files.take_all()
    manager._make_way()
    assert not log.active.is_open
    assert not files.let_go_too_soon


def test_so_is_what_a_stop_and_a_start_give_back() -> None:
    files = ScarceFiles()
    manager, log = of_many(files)
    path = log.active.path
    # A crash: nobody closes anything.
    again = LogManager(files, manager._store, "/data", lambda topic: log.settings)
    again.open(now_ms=NOW_MS)
    assert path not in files.has_room
    filled(again.logs[FIRST], 2)
    assert path in files.has_room
    again.close(broker_epoch=1)
    assert not files.has_room
    assert not files.touched
    assert not files.let_go_too_soon


def test_an_error_of_that_sync_is_told() -> None:
    files = ScarceFiles()
    manager, log = of_many(files)
    manager.checkpoint()
    files.sync_error = errno.EIO
    with pytest.raises(StorageError):
        manager.checkpoint()
    assert log.offline is not None
