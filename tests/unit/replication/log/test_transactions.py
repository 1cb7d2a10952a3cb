"""A log that knows transactions: what is stable, what was aborted, who may begin one."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.control import EndMarker, Marker, build_marker, read_marker
from ottla.proto.records.header import read_header
from ottla.proto.records.record import Record
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.aborted import ENTRY
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import decode_producers, encode_producers
from ottla.replication.log.surgery import delete_records, reset, truncate
from ottla.replication.producers import PRODUCERS_MAX
from ottla.replication.transactions import Aborted
from tests.builders import (
    BIG,
    NOW_MS,
    OneLog,
    append,
    batches_of,
    committed,
    headers_of,
    produced,
    records_of,
    small_settings,
)
from tests.unit.replication.log.one_directory import FIRST, Node
from tests.unit.replication.log.transactions import COORDINATOR, aborted, admit, end, write

ANN, BOB = 7, 8


def large() -> OneLog:
    return OneLog(small_settings(segment_bytes=100_000))


def code_of(work: object) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        work()  # type: ignore[operator]  # a lambda
    return refused.value.code


# -- markers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_read_back_as_it_was_written(is_commit: bool) -> None:
    marker = Marker(is_commit, 12)
    batch = build_marker(EndMarker(ANN, 4, marker), timestamp=NOW_MS)
    header = read_header(batch)
    assert read_marker(batch) == marker
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (ANN, 4, -1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\0\0\0", b"\0" * 6),
        (b"\0\0\0\1", b"\0" * 5),
        (b"\0\0\0\2", b"\0" * 6),
    ],
)
def test_what_is_no_marker_is_none(key: bytes | None, value: bytes | None) -> None:
    assert read_marker(build_batch([Record(0, NOW_MS, key, value)], control=True)) is None


def test_a_marker_has_kafkas_bytes() -> None:
    (record,) = records_of(_with_markers())[-1:]
    assert record.key == b"\x00\x00\x00\x00"
    assert record.value == b"\x00\x00" + COORDINATOR.to_bytes(4, "big")


def _with_markers() -> Log:
    log = large().create()
    write(log, ANN)
    end(log, ANN, is_commit=False)
    return log


# -- the last stable offset --------------------------------------------------------------------


def test_t1_an_open_transaction_holds_the_last_stable_offset() -> None:
    log = large().create()
    append(log, b"plain")
    write(log, ANN)
    append(log, b"plain")
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == 1


def test_t1_it_moves_when_the_marker_is_committed_and_not_before() -> None:
    log = large().create()
    write(log, ANN)
    log.advance_high_watermark(log.end_offset)
    end(log, ANN, is_commit=True)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset


def test_t1_the_first_of_several_open_ones_holds_it() -> None:
    log = large().create()
    write(log, ANN)
    write(log, BOB)
    end(log, ANN, is_commit=True)
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == 1


def test_a_marker_without_a_transaction_changes_nothing_but_the_epoch() -> None:
    log = large().create()
    end(log, ANN, is_commit=False, epoch=2)
    log.advance_high_watermark(log.end_offset)
    assert log.last_stable_offset == log.end_offset
    assert aborted(log) == []
    assert code_of(lambda: write(log, ANN, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH


# -- who may write -----------------------------------------------------------------------------


def test_t2_nobody_begins_a_transaction_who_was_not_admitted() -> None:
    log = large().create()
    raw = produced(b"x", producer_id=ANN, transactional=True)
    refusal = code_of(lambda: log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS))
    assert refusal is ErrorCode.INVALID_TXN_STATE
    assert log.end_offset == 0


def test_rule_64b_a_marker_makes_an_answer_of_the_coordinator_void() -> None:
    log = large().create()
    transactions = log.producers.transactions
    guard = transactions.guard(ANN, 0)
    end(log, ANN, is_commit=False)
    assert not transactions.admit(guard)


def test_rule_64b_a_marker_takes_an_admission_back() -> None:
    log = large().create()
    admit(log, ANN)
    end(log, ANN, is_commit=False)
    raw = produced(b"late", producer_id=ANN, transactional=True)
    refusal = code_of(lambda: log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS))
    assert refusal is ErrorCode.INVALID_TXN_STATE
    assert log.last_stable_offset == log.high_watermark


def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused() -> None:
    log = large().create()
    write(log, ANN)
    raw = produced(b"x", producer_id=ANN, sequence=1)
    refusal = code_of(lambda: log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS))
    assert refusal is ErrorCode.INVALID_TXN_STATE


def test_kip_890_a_marker_with_a_new_epoch_lets_the_next_transaction_begin_with_sequence_0() -> (
    None
):
    log = large().create()
    write(log, ANN)
    end(log, ANN, is_commit=True, epoch=1)
    admit(log, ANN, 1)
    refused = code_of(lambda: write(log, ANN, epoch=1, sequence=1))
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not write(log, ANN, epoch=1, sequence=0).is_duplicate


def test_a_marker_that_is_told_again_is_not_written_again() -> None:
    log = large().create()
    write(log, ANN)
    end(log, ANN, is_commit=True, epoch=1)
    assert end(log, ANN, is_commit=True, epoch=1).is_duplicate
    assert log.end_offset == 2


def test_markers_of_an_old_epoch_and_of_an_old_coordinator_are_refused() -> None:
    log = large().create()
    write(log, ANN, epoch=1)
    old_epoch = code_of(lambda: end(log, ANN, is_commit=True, epoch=0))
    end(log, ANN, is_commit=True, epoch=1)
    write(log, ANN, epoch=1)
    old_one = code_of(lambda: end(log, ANN, is_commit=True, epoch=1, coordinator=COORDINATOR - 1))
    assert old_epoch is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old_one is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.producers.transactions.open_count == 1


# -- the index of aborted transactions ---------------------------------------------------------


def test_an_aborted_transaction_is_listed_for_who_reads_any_of_it() -> None:
    log = large().create()
    append(log, b"plain")
    write(log, ANN)
    write(log, ANN)
    marker = end(log, ANN, is_commit=False)
    append(log, b"plain")
    expected = [Aborted(ANN, 1, marker.first_offset, marker.first_offset + 1)]
    for first in (0, 1, 2, 3):
        assert log.aborted.overlapping(log.segments, Offset(first), Offset(5)) == expected
    assert log.aborted.overlapping(log.segments, Offset(0), Offset(1)) == []
    assert log.aborted.overlapping(log.segments, Offset(4), Offset(5)) == []


def test_a_committed_transaction_is_not_listed() -> None:
    log = large().create()
    write(log, ANN)
    end(log, ANN, is_commit=True)
    assert aborted(log) == []


def test_a_transaction_over_many_segments_is_found_from_the_first_of_them() -> None:
    log = OneLog().create()
    write(log, ANN)
    while len(log.segments) < 4:
        write(log, BOB, b"x" * 50)
    end(log, ANN, is_commit=False)
    found = log.aborted.overlapping(log.segments, Offset(0), Offset(1))
    assert [(one.producer_id, one.first_offset) for one in found] == [(ANN, 0)]


def test_the_file_has_kafkas_format_and_is_there_only_where_something_was_aborted() -> None:
    one = large()
    log = one.create()
    write(log, ANN)
    end(log, ANN, is_commit=True)
    committed(log)
    assert not one.files.exists("/data/t-0/00000000000000000000.txnindex")
    write(log, BOB)
    end(log, BOB, is_commit=False)
    committed(log)
    file = one.files.open("/data/t-0/00000000000000000000.txnindex", writable=False)
    assert file.read_at(0, BIG) == ENTRY.pack(0, BOB, 2, 3, 4)


# -- opening, truncating -----------------------------------------------------------------------


def _some(one: OneLog) -> Log:
    log = one.create()
    write(log, ANN)
    write(log, BOB)
    end(log, BOB, is_commit=False)
    return log


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_opening_again_finds_open_and_aborted_transactions(is_checkpointed: bool) -> None:
    one = large()
    log = _some(one)
    log.sync()
    if is_checkpointed:
        committed(log)
    again, _ = one.open()
    assert aborted(again) == aborted(log) == [Aborted(BOB, 1, 2, 0)]
    assert dict(again.producers.transactions.opened) == {ANN: 0}
    again.advance_high_watermark(again.end_offset)
    assert again.last_stable_offset == 0


def test_an_entry_above_the_recovery_point_is_not_believed() -> None:
    one = large()
    log = committed(_some(one))
    path = "/data/t-0/00000000000000000000.txnindex"
    file = one.files.open(path)
    file.write_at(ENTRY.size, [ENTRY.pack(0, ANN, 0, 900, 901)])
    again, _ = one.open()
    assert aborted(again) == aborted(log)


def test_a_damaged_entry_below_the_recovery_point_takes_the_log_offline() -> None:
    one = large()
    committed(_some(one))
    one.files.open("/data/t-0/00000000000000000000.txnindex").write_at(1, [b"\x07"])
    again, _ = one.open()
    with pytest.raises(Exception, match="no entry of an abort marker"):
        aborted(again)


def test_what_is_cut_off_is_not_aborted_and_is_open_again() -> None:
    one = large()
    log = committed(_some(one))
    truncate(log, Offset(2), below_high_watermark=True)
    assert aborted(log) == []
    assert dict(log.producers.transactions.opened) == {ANN: 0, BOB: 1}
    end(log, BOB, is_commit=True)
    again, _ = one.open()
    assert aborted(again) == aborted(log) == []


def _with_a_deleted_marker(one: OneLog) -> Log:
    """Return a log whose oldest snapshot has an open transaction, and whose marker is gone."""
    log = one.create()
    write(log, ANN)
    log.checkpoint()
    end(log, ANN, is_commit=True)
    log.roll()
    append(log, b"plain")
    log.advance_high_watermark(log.end_offset)
    delete_records(log, Offset(2), now_ms=NOW_MS)
    return log


def test_a_transaction_whose_marker_was_deleted_is_not_open_again_after_a_restart() -> None:
    one = large()
    log = _with_a_deleted_marker(one)
    again, _ = one.open()
    assert not dict(again.producers.transactions.opened)
    assert again.last_stable_offset == log.last_stable_offset == 3


def test_a_transaction_whose_marker_was_deleted_is_not_open_again_after_a_cut() -> None:
    log = _with_a_deleted_marker(large())
    append(log, b"not committed")
    log.checkpoint()
    truncate(log, Offset(3))
    assert not dict(log.producers.transactions.opened)
    assert log.last_stable_offset == 3


def test_what_is_left_of_a_transaction_is_open_again_after_a_restart() -> None:
    one = large()
    log = one.create()
    write(log, ANN)
    log.checkpoint()
    write(log, ANN)
    log.roll()
    write(log, ANN)
    log.advance_high_watermark(log.end_offset)
    # A client may delete what is not decided yet, as with Kafka.
    delete_records(log, Offset(2), now_ms=NOW_MS)
    again, _ = one.open()
    assert again.last_stable_offset == log.last_stable_offset == 2
    end(again, ANN, is_commit=False)
    assert aborted(again) == [Aborted(ANN, 2, 3, 4)]


def test_a_reset_forgets_everything() -> None:
    log = committed(_some(large()))
    reset(log, Offset(50))
    assert not log.producers.transactions
    assert aborted(log) == []


def test_a_follower_knows_what_its_leader_knows() -> None:
    log = _some(large())
    follower = large().create()
    follower.append_as_follower(b"".join(batches_of(log)), now_ms=NOW_MS)
    assert aborted(follower) == aborted(log)
    assert dict(follower.producers.transactions.opened) == {ANN: 0}


def test_a_snapshot_keeps_transactions() -> None:
    log = _some(large())
    producers = decode_producers("t-0", encode_producers(log.producers))
    assert dict(producers.transactions.opened) == {ANN: 0}
    assert producers.transactions.ended == log.producers.transactions.ended
    known = producers.get(BOB)
    assert known is not None
    assert known.coordinator_epoch == COORDINATOR


# -- rule 64b: retention, expiry, compaction ---------------------------------------------------


def test_rule_64b_retention_never_passes_an_open_transaction() -> None:
    node = Node(small_settings(retention_bytes=0))
    manager: LogManager = node.start()
    log = manager.create(FIRST)
    log.assign_epoch(LeaderEpoch(0))
    write(log, ANN)
    while len(log.segments) < 4:
        append(log, b"x" * 50)
    committed(log)
    assert manager.retain(now_ms=NOW_MS) == 0
    end(log, ANN, is_commit=True)
    committed(log)
    assert manager.retain(now_ms=NOW_MS) > 0


def test_s5_who_has_an_open_transaction_is_neither_expired_nor_crowded_out() -> None:
    log = large().create()
    write(log, ANN)
    for producer_id in range(100, 101 + PRODUCERS_MAX):
        raw = produced(b"x", producer_id=producer_id)
        log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS)
    log.producers.expire(NOW_MS + BIG, 1)
    assert [one.producer_id for one in log.producers] == [ANN]


def _compacted() -> OneLog:
    return OneLog(
        small_settings(
            compact=True,
            delete=False,
            segment_bytes=10_000,
            delete_retention_ms=1000,
            min_cleanable_dirty_ratio=0.0,
        )
    )


def _cleaned(log: Log, now_ms: int = NOW_MS) -> None:
    log.roll()
    append(log, (b"newest", b"x"))
    committed(log)
    clean(log, now_ms=now_ms)


def _kept(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (record.key, record.value)
        for record in records_of(log)
        if record.key not in (b"newest", b"\x00\x00\x00\x00", b"\x00\x00\x00\x01")
    ]


def test_q6_records_of_an_aborted_transaction_go_and_replace_nothing() -> None:
    log = _compacted().create()
    append(log, (b"a", b"plain"))
    write(log, ANN, (b"a", b"aborted"), (b"b", b"aborted"))
    end(log, ANN, is_commit=False)
    write(log, BOB, (b"c", b"committed"))
    end(log, BOB, is_commit=True)
    _cleaned(log)
    assert _kept(log) == [(b"a", b"plain"), (b"c", b"committed")]


def test_nothing_of_an_open_transaction_is_cleaned() -> None:
    log = _compacted().create()
    append(log, (b"a", b"old"))
    write(log, ANN, (b"a", b"new"))
    log.roll()
    append(log, (b"newest", b"x"))
    committed(log)
    assert clean(log, now_ms=NOW_MS) is None


def test_q7_a_marker_goes_when_its_records_are_gone_and_its_time_is_over() -> None:
    one = _compacted()
    log = one.create()
    write(log, ANN, (b"a", b"aborted"))
    end(log, ANN, is_commit=False)
    _cleaned(log)
    # The last of a live producer: its sequence and its epoch are needed yet.
    assert [header.is_control for header in headers_of(log)][:2] == [False, True]
    assert aborted(log) != []
    log.producers.expire(NOW_MS + BIG, 1)
    _cleaned(log, NOW_MS + 1)
    _cleaned(log, NOW_MS + 2)
    assert any(header.is_control for header in headers_of(log))
    _cleaned(log, NOW_MS + 5000)
    _cleaned(log, NOW_MS + 9000)
    assert not any(header.is_control for header in headers_of(log))
    assert aborted(log) == []
    again, _ = one.open()
    assert aborted(again) == []
    assert not again.producers.transactions


def test_a_transaction_whose_marker_was_cleaned_away_is_not_open_again_after_a_cut() -> None:
    log = _compacted().create()
    write(log, ANN, (b"a", b"old"))
    log.checkpoint()
    end(log, ANN, is_commit=True)
    append(log, (b"a", b"new"))
    log.producers.expire(NOW_MS + BIG, 1)
    for key in (b"b", b"newest"):
        log.roll()
        append(log, (key, b"x"))
    log.checkpoint()
    for high_watermark, now_ms in ((3, NOW_MS), (4, NOW_MS), (4, NOW_MS + 5000)):
        log.advance_high_watermark(Offset(high_watermark))
        clean(log, now_ms=now_ms)
    assert not any(header.is_control for header in headers_of(log))
    # Of the two snapshots the one is left that has the transaction open.
    truncate(log, log.high_watermark)
    assert not dict(log.producers.transactions.opened)
    assert log.last_stable_offset == log.high_watermark == 4
