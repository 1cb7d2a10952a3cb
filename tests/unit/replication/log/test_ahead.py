"""Room that a segment asks for before it needs it: how much, when, and that it is given back."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from ottla.proto.ids import Offset
from ottla.replication.log.ahead import AHEAD_FROM, AHEAD_MAX, RoomAhead
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.scan import walk
from ottla.replication.log.segment import note_of
from ottla.replication.log.surgery import truncate
from ottla.replication.storage.disk import DiskFile, DiskFiles
from ottla.replication.storage.memory import MemoryFile, MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, OneLog, append, small_settings, values_of
from tests.unit.replication.log.one_directory import FIRST, lead

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
    log = filled(one.create(), 3)
    log.checkpoint()
    log.close()
    assert unused_bytes(log) <= _CRUMBS_BYTES


def test_a_log_that_is_cut_keeps_nothing_and_goes_on(one: OneLog) -> None:
    log = filled(one.create(), 3)
    truncate(log, Offset(2))
    assert unused_bytes(log) <= _CRUMBS_BYTES
    filled(log, 2)
    assert unused_bytes(log) > MIB
    assert values_of(log) == [b"x" * MIB] * 4


def test_a_start_that_recovers_a_log_gives_back_what_the_crash_left(one: OneLog) -> None:
    def start() -> LogManager:
        manager = LogManager(one.files, one.store, one.root, lambda topic: one.settings)
        manager.open(now_ms=NOW_MS)
        return manager

    log = lead(start(), FIRST, *[b"x" * MIB] * 3)
    assert unused_bytes(log) > MIB
    again = start().logs[FIRST]
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


def test_what_is_written_after_it_was_let_go_of_is_given_back_too(one: OneLog) -> None:
    log = filled(one.create(), 3)
    log.active.release()
    assert unused_bytes(log) <= _CRUMBS_BYTES
    filled(log, 3)
    assert unused_bytes(log) > MIB
    log.active.release()
    assert unused_bytes(log) <= _CRUMBS_BYTES
    assert values_of(log) == [b"x" * MIB] * 6


def test_what_a_failed_write_left_behind_the_batches_is_not_cut(one: OneLog) -> None:
    log = filled(one.create(), 3)
    size = log.active.size
    # Recovery looks at it, and says what it cut.
    log.active.writer().write_at(size, [b"a part of a batch"])
    log.active.release()
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
