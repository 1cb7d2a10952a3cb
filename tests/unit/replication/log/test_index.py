"""Sparse indexes, alone and under a segment that does not trust them (I1, I2)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import InvariantError, StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.index import SparseIndex, offset_index, time_index
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import truncate
from ottla.replication.storage.faults import FaultRule
from ottla.replication.storage.memory import MemoryFiles
from ottla.replication.storage.ports import Files
from tests.builders import (
    NOW_MS,
    OneLog,
    append,
    committed,
    faulty_files,
    records_of,
    small_settings,
    values_of,
)

PATH = "/x.index"
FIRST_INDEX = f"/data/t-0/{0:020d}.index"
FIRST_TIME_INDEX = f"/data/t-0/{0:020d}.timeindex"
INT32S = st.integers(0, 2**31 - 1)


def index_of(*keys: int, files: Files | None = None) -> SparseIndex:
    """Return an index that maps each key to ten times itself."""
    index = offset_index(files or MemoryFiles(), PATH, bytes_max=1 << 20)
    for key in keys:
        index.append(key, key * 10)
    return index


# -- one index ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "found"), [(0, None), (4, None), (5, 5), (6, 5), (9, 9), (10, 9), (99, 12)]
)
def test_floor_is_the_last_entry_at_or_below_the_key(key: int, found: int | None) -> None:
    entry = index_of(5, 9, 12).floor(key)
    assert (entry.key if entry else None) == found


@given(st.sets(INT32S, max_size=40), INT32S, st.integers(0, 3))
def test_floor_agrees_with_looking_at_every_entry(keys: set[int], asked: int, saves: int) -> None:
    index = offset_index(MemoryFiles(), PATH, bytes_max=1 << 20)
    for number, key in enumerate(sorted(keys)):
        index.append(key, number)
        if saves and number % saves == 0:
            index.save()
    entry = index.floor(asked)
    assert (entry.key if entry else None) == max((k for k in keys if k <= asked), default=None)
    assert index.count_below(len(keys) // 2) == len(keys) // 2


@given(st.lists(st.integers(0, 1 << 20), max_size=120), st.integers(-1, 1 << 24), st.integers(0, 3))
def test_counting_agrees_with_looking_at_every_entry(
    steps: list[int], asked: int, saves: int
) -> None:
    index = offset_index(MemoryFiles(), PATH, bytes_max=1 << 20)
    values = list(accumulate(steps))
    for number, value in enumerate(values):
        index.append(number, value)
        if saves and number % (saves * 20) == 0:
            index.save()
    assert index.count_below(asked) == sum(value < asked for value in values)
    entry = index.entry_up_to(asked)
    assert (entry.value if entry else None) == max((v for v in values if v <= asked), default=None)


@pytest.mark.parametrize("size", [100, 65536, 100_000, 1 << 20])
def test_batches_that_are_alike_are_found_by_their_position(size: int) -> None:
    index = offset_index(MemoryFiles(), PATH, bytes_max=1 << 20)
    for number in range(300):
        index.append(number, number * size)
    for number in range(300):
        asked = (number * size - 1, number * size, number * size + 1)
        assert [index.count_below(value) for value in asked] == [number, number, number + 1]


def test_i1_keys_only_grow() -> None:
    for key in (3, 5):
        with pytest.raises(InvariantError):
            index_of(5).append(key, 1)


@pytest.mark.parametrize(
    ("entries", "is_ordered"),
    [
        ([(1, 0), (2, 10)], True),
        ([(1, 0), (2, 0)], True),
        ([(2, 0), (1, 10)], False),
        ([(1, 0), (1, 10)], False),
        ([(1, 10), (2, 5)], False),
    ],
)
def test_i1_an_index_notices_a_file_that_is_out_of_order(
    entries: list[tuple[int, int]], is_ordered: bool
) -> None:
    files = MemoryFiles()
    content = b"".join(k.to_bytes(4, "big") + v.to_bytes(4, "big") for k, v in entries)
    files.open(PATH, create=True).write_at(0, [content])
    index = offset_index(files, PATH, bytes_max=100, saved_bytes=len(content))
    assert index.is_ordered() is is_ordered


def test_entries_reach_the_file_a_page_at_a_time() -> None:
    files = MemoryFiles()
    index = index_of(*range(511), files=files)
    assert not files.exists(PATH)
    index.append(511, 5110)
    assert files.size_of(PATH) == 4096
    assert [entry.key for entry in index.entries()] == list(range(512))


def test_saved_entries_are_kafkas_eight_and_twelve_bytes() -> None:
    files = MemoryFiles()
    index_of(1, 2, files=files).save()
    times = time_index(files, "/x.timeindex", bytes_max=100)
    times.append(NOW_MS, 7)
    times.save()
    assert files.open(PATH).read_at(0, 99).hex() == "000000010000000a" + "0000000200000014"
    assert files.open("/x.timeindex").read_at(0, 99).hex() == f"{NOW_MS:016x}{7:08x}"


@pytest.mark.parametrize("saved", [0, 2, 4])
@pytest.mark.parametrize("kept", range(5))
def test_a_cut_index_keeps_its_first_entries(saved: int, kept: int) -> None:
    files = MemoryFiles()
    index = index_of(*range(1, saved + 1), files=files)
    index.save()
    for key in range(saved + 1, 5):
        index.append(key, key * 10)
    index.keep_while(kept)
    assert [entry.key for entry in index.entries()] == list(range(1, kept + 1))
    index.append(50, 500)
    index.save(trim=True)
    assert index.last == (50, 500)
    assert files.size_of(PATH) == (kept + 1) * 8


def test_a_full_index_rolls_the_segment() -> None:
    log = OneLog(
        small_settings(segment_bytes=10**6, segment_index_bytes=24, index_interval_bytes=0)
    ).create()
    for _ in range(20):
        append(log, b"x")
    assert len(log.segments) > 1
    assert all(len(segment.indexes.offsets) <= 3 for segment in log.segments)
    assert len(values_of(log)) == 20


# -- I2: an index is a hint --------------------------------------------------------------------


def shelf(**changes: object) -> tuple[OneLog, Log]:
    """Return a log whose first, sealed segment has an index entry for nearly every batch."""
    settings = {"segment_bytes": 600, "index_interval_bytes": 0, **changes}
    one = OneLog(small_settings(**settings))
    log = one.create()
    for number in range(20):
        append(log, b"value %d" % number, timestamps=[NOW_MS + number])
    assert len(log.segments) > 2
    committed(log).close()
    return one, one.open()[0]


def rewrite(one: OneLog, path: str, change: Callable[[bytes], bytes | None]) -> None:
    file = one.files.open(path)
    changed = change(file.read_at(0, 1 << 20))
    one.files.remove(path)
    if changed is not None:
        one.files.open(path, create=True).write_at(0, [changed])


def lie(content: bytes) -> bytes:
    """Point every entry of an offset index a little beside its batch."""
    entries = [content[at : at + 8] for at in range(0, len(content), 8)]
    return b"".join(
        entry[:4] + (int.from_bytes(entry[4:], "big") + 7).to_bytes(4, "big") for entry in entries
    )


def skip(content: bytes) -> bytes:
    """Point every entry of an offset index to the batch after its own, but for the last one."""
    values = [content[at + 4 : at + 8] for at in range(0, len(content), 8)]
    keys = [content[at : at + 4] for at in range(0, len(content), 8)]
    return b"".join(key + value for key, value in zip(keys, [*values[1:], values[-1]], strict=True))


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "half an entry": lambda content: content[:-3],
    "an entry short": lambda content: content[:-8],
    "zeros": lambda content: bytes(len(content)),
    "ones": lambda content: b"\xff" * len(content),
    "out of order": lambda content: content[8:] + content[:8],
    "too long": lambda content: content + b"\x7f\xff\xff\xff" * 2,
    "lying": lie,
    "a batch too far": skip,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_i2_a_damaged_offset_index_never_changes_what_is_read(damage: str) -> None:
    one, log = shelf()
    log.close()
    rewrite(one, FIRST_INDEX, DAMAGE[damage])
    log, report = one.open()
    assert report.damage is None
    for offset in range(20):
        found = log.read(Offset(offset), bytes_max=1)
        assert found is not None
        assert found.first_offset == offset
    assert len(values_of(log)) == 20


@pytest.mark.parametrize(
    "damage", ["missing", "half an entry", "lying", "a batch too far", "zeros"]
)
def test_i2_a_damaged_offset_index_is_rebuilt_when_it_is_first_used(damage: str) -> None:
    one, log = shelf()
    log.close()
    whole = one.files.open(FIRST_INDEX).read_at(0, 1 << 20)
    rewrite(one, FIRST_INDEX, DAMAGE[damage])
    log, _ = one.open()
    log.read(Offset(log.segments[1].base_offset - 2), bytes_max=1)
    assert one.files.open(FIRST_INDEX).read_at(0, 1 << 20) == whole


@pytest.mark.parametrize("damage", ["missing", "half an entry"])
def test_i2_a_damaged_time_index_is_rebuilt_when_it_is_first_used(damage: str) -> None:
    one, log = shelf()
    log.close()
    whole = one.files.open(FIRST_TIME_INDEX).read_at(0, 1 << 20)
    rewrite(one, FIRST_TIME_INDEX, DAMAGE[damage])
    log, _ = one.open()
    log.read(Offset(0), bytes_max=1)
    assert one.files.open(FIRST_TIME_INDEX).read_at(0, 1 << 20) == whole


@pytest.mark.parametrize("damage", ["lying", "a batch too far"])
def test_i2_a_cut_is_right_although_the_index_lies(damage: str) -> None:
    one, log = shelf()
    log.close()
    rewrite(one, FIRST_INDEX, DAMAGE[damage])
    log, _ = one.open()
    cut = Offset(log.segments[1].base_offset - 2)
    assert truncate(log, cut, below_high_watermark=True) == cut
    assert [record.offset for record in records_of(log)] == list(range(cut))


@pytest.mark.parametrize("damage", ["lying", "a batch too far"])
def test_i2_the_last_batch_is_found_although_the_index_lies(damage: str) -> None:
    one, log = shelf()
    log.close()
    rewrite(one, FIRST_INDEX, DAMAGE[damage])
    log, report = one.open()
    assert report.damage is None
    last = log.segments[0].last_batch()
    assert last is not None
    assert last.header.next_offset == log.segments[1].base_offset


def test_a_rebuilt_index_equals_the_one_that_was_written() -> None:
    _, log = shelf()
    segment = log.segments[0]
    written = list(segment.indexes.offsets.entries()), list(segment.indexes.times.entries())
    rebuilt = segment.rebuild_indexes()
    assert (list(rebuilt.offsets.entries()), list(rebuilt.times.entries())) == written


# -- a full disk -------------------------------------------------------------------------------


def fill(log: Log) -> None:
    """Append until an index writes its first page, and further."""
    for number in range(1000):
        append(log, b"x", timestamps=[NOW_MS + number])


@pytest.mark.parametrize("pattern", ["*.index", "*.timeindex"])
def test_rule_48_a_disk_that_is_full_under_an_index_page_takes_the_log_offline(
    pattern: str,
) -> None:
    files, plan, _ = faulty_files()
    log = OneLog(small_settings(segment_bytes=10**6, index_interval_bytes=0), files).create()
    plan.rules.append(FaultRule("write", pattern, code=errno.ENOSPC))
    with pytest.raises(StorageError, match="No space left"):
        fill(log)
    assert log.offline is not None
    with pytest.raises(StorageError):
        append(log, b"x")


def test_rule_48_after_a_full_disk_under_an_index_the_log_opens_with_every_batch() -> None:
    files, plan, power = faulty_files()
    one = OneLog(small_settings(segment_bytes=10**6, index_interval_bytes=0), files)
    log = one.create()
    plan.rules.append(FaultRule("write", "*.index", code=errno.ENOSPC))
    with pytest.raises(StorageError):
        fill(log)
    count = log.end_offset
    power.crash()
    log, report = one.open()
    assert report.damage is None
    # The batch under which the page was written is in the file; nobody was told of it.
    assert len(values_of(log)) == count + 1
