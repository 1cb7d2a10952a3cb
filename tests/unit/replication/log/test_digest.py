"""What a digest says of a log, with damage, gaps, and a log that changes under it."""

from __future__ import annotations

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log import digest as digests
from ottla.replication.log.digest import BatchDigest, Digested, begin_digest
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import truncate
from tests.builders import NOW_MS, OneLog, append, committed, headers_of, small_settings


def _log(batches: int = 12) -> Log:
    log = OneLog().create()
    for number in range(batches):
        append(log, b"a" * 30, f"{number}".encode())
    return committed(log)


def _all(log: Log, first: int = 0, *, check: bool = False, at_once: int = 3) -> Digested:
    batches, at = list[BatchDigest](), Offset(first)
    while (part := begin_digest(log, at, log.high_watermark)) is not None:
        found = part.read(at_once, check=check)
        batches += found.batches
        if found.damage is not None:
            return Digested(batches, at, found.damage)
        assert found.next_offset > at
        at = found.next_offset
    return Digested(batches, at)


@pytest.mark.parametrize("check", [False, True])
def test_a_digest_has_every_header_in_order_over_all_segments(check: bool) -> None:
    log = _log()
    assert len(log.segments) > 2
    expected = [
        BatchDigest(
            one.base_offset, one.last_offset, one.leader_epoch, one.crc, one.size, one.attributes
        )
        for one in headers_of(log)
    ]
    found = _all(log, check=check)
    assert found.batches == expected
    assert found.next_offset == log.end_offset == 24


def test_it_begins_with_the_batch_that_holds_the_offset_and_ends_below_the_bound() -> None:
    log = _log()
    assert _all(log, 5).batches[0].base_offset == 4
    part = begin_digest(log, Offset(0), Offset(3))
    assert part is not None
    # The batch from 2 to 3 begins below the bound, so it belongs to it.
    assert [one.base_offset for one in part.read(100, check=True).batches] == [0, 2]
    assert begin_digest(log, Offset(24), Offset(24)) is None


def test_what_is_not_committed_is_told_only_if_it_is_asked_for() -> None:
    log = _log(2)
    append(log, b"not yet")
    assert [one.base_offset for one in _all(log).batches] == [0, 2]
    part = begin_digest(log, Offset(4), log.end_offset)
    assert part is not None
    assert [one.base_offset for one in part.read(9, check=False).batches] == [4]


def test_a_part_reads_no_more_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    log = _log()
    monkeypatch.setattr(digests, "CHECK_BYTES_MAX", 1)
    part = begin_digest(log, Offset(0), log.end_offset)
    assert part is not None
    assert len(part.read(100, check=True).batches) == 1
    assert len(part.read(100, check=False).batches) > 1
    assert len(_all(log, check=True).batches) == 12


def test_a_wrong_checksum_is_found_only_by_whoever_checks_and_changes_nothing() -> None:
    one = OneLog()
    log = one.create()
    for _ in range(3):
        append(log, b"hello")
    committed(log)
    segment = log.segments[0]
    position = segment.size - 3
    (before,) = segment.reader().read_at(position, 1)
    segment.writer().write_at(position, [bytes([before ^ 1])])
    assert len(_all(log).batches) == 3
    found = _all(log, check=True)
    assert len(found.batches) == 2
    assert found.damage is not None
    assert "checksum" in found.damage
    assert log.offline is None


def test_bytes_that_cannot_be_a_batch_are_told() -> None:
    log = OneLog().create()
    for _ in range(3):
        append(log, b"hello")
    committed(log)
    second = headers_of(log)[0].size
    log.segments[0].writer().write_at(second, [b"\xff" * 16])
    found = _all(log)
    assert len(found.batches) == 1
    assert found.damage is not None
    assert "no batch can begin there" in found.damage


def test_gaps_of_compaction_are_passed_by() -> None:
    one = OneLog(small_settings(compact=True, min_cleanable_dirty_ratio=0.0))
    log = one.create()
    for number in range(12):
        append(log, (b"key", f"{number}".encode()))
    committed(log)
    assert clean(log, now_ms=NOW_MS) is not None
    found = _all(log, check=True)
    assert found.batches[-1].last_offset == 11
    assert len(found.batches) < 12
    assert log.gaps_below > 0
    assert [b.base_offset for b in found.batches] == [h.base_offset for h in headers_of(log)]


@pytest.mark.parametrize("check", [False, True])
def test_a_cut_behind_what_is_asked_for_is_no_damage(check: bool) -> None:
    log = _log(2)
    append(log, b"to be cut")
    part = begin_digest(log, Offset(0), log.high_watermark)
    assert part is not None
    truncate(log, Offset(4))
    found = part.read(100, check=check)
    assert ([one.base_offset for one in found.batches], found.damage) == ([0, 2], None)


def test_what_was_removed_meanwhile_can_still_be_read() -> None:
    one = OneLog(small_settings(compact=True, min_cleanable_dirty_ratio=0.0))
    log = one.create()
    for number in range(12):
        append(log, (b"key", f"{number}".encode()))
    committed(log)
    part = begin_digest(log, Offset(0), log.high_watermark)
    assert part is not None
    before = part.read(100, check=True)
    clean(log, now_ms=NOW_MS)
    assert part.read(100, check=True) == before


def test_a_log_that_is_offline_is_not_read() -> None:
    log = _log()
    log.fail("test", OSError(5, "broken"))
    with pytest.raises(StorageError, match="offline"):
        begin_digest(log, Offset(0), Offset(9))
