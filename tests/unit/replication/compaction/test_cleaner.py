"""Cleaning a real log: what stays, what goes, when, and what is never touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record
from ottla.replication.compaction.cleaner import begin_cleaning, clean, finish_cleaning
from ottla.replication.log.log import Log
from ottla.replication.log.lookup import first_at_or_after
from ottla.replication.log.surgery import delete_records
from tests.builders import (
    BIG,
    NOW_MS,
    OneLog,
    Told,
    append,
    batches_of,
    committed,
    headers_of,
    records_of,
    small_settings,
    values_of,
)

RETENTION_MS = 1000


def compacted(**changes: object) -> OneLog:
    settings = {
        "compact": True,
        "delete": False,
        "segment_bytes": 10_000,
        "delete_retention_ms": RETENTION_MS,
        "min_cleanable_dirty_ratio": 0.0,
        **changes,
    }
    return OneLog(small_settings(**settings))


def shelf(*segments: list[Told], one: OneLog | None = None) -> Log:
    """Return a log with these records, a batch each, in sealed segments of these shapes."""
    log = (one or compacted()).create()
    for told in segments:
        fill(log, told)
    return log


def fill(log: Log, told: list[Told]) -> None:
    """Add a sealed segment with these records, and let everything be committed."""
    for one in told:
        append(log, one)
    log.roll()
    committed(log)
    # The recovery point has to be in the newest segment, or the one before is not cleaned yet.
    append(log, (b"newest", b"x"))
    committed(log)


def kept(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of the records, without those that only fill."""
    return [(r.offset, r.key, r.value) for r in records_of(log) if r.key != b"newest"]


# -- which records stay --------------------------------------------------------------------------


def test_q1_the_last_value_of_each_key_stays_at_its_offset() -> None:
    log = shelf([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")])
    report = clean(log, now_ms=NOW_MS)
    assert report is not None
    assert report.removed_records == 1
    assert report.bytes_after < report.bytes_before
    assert kept(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert log.end_offset == 4


def test_k1_the_active_segment_neither_loses_records_nor_counts() -> None:
    log = compacted().create()
    for told in [(b"a", b"1"), (b"a", b"2")]:
        append(log, told)
    committed(log)
    assert clean(log, now_ms=NOW_MS) is None
    log = shelf([(b"a", b"sealed")])
    append(log, (b"a", b"active"))
    committed(log)
    clean(log, now_ms=NOW_MS)
    assert [value for _, _, value in kept(log)] == [b"sealed", b"active"]


def test_k1_nothing_at_or_above_the_high_watermark_is_cleaned() -> None:
    log = compacted().create()
    for told in [(b"a", b"1"), (b"a", b"2")]:
        append(log, told)
    log.roll()
    append(log, (b"newest", b"x"))
    log.checkpoint()
    log.advance_high_watermark(Offset(1))
    assert clean(log, now_ms=NOW_MS) is None
    log.advance_high_watermark(Offset(2))
    assert clean(log, now_ms=NOW_MS) is not None


def test_k1_nothing_above_the_recovery_point_is_cleaned() -> None:
    log = compacted().create()
    for told in [(b"a", b"1"), (b"a", b"2")]:
        append(log, told)
    log.roll()
    append(log, (b"newest", b"x"))
    log.advance_high_watermark(log.end_offset)
    assert clean(log, now_ms=NOW_MS) is None
    log.checkpoint()
    assert clean(log, now_ms=NOW_MS) is not None


def test_a_segment_that_grew_old_is_cleaned_though_nobody_writes_any_more() -> None:
    log = compacted().create()
    for told in [(b"a", b"1"), (b"a", b"2")]:
        append(log, told)
    committed(log)
    assert log.maybe_roll(NOW_MS + log.settings.segment_ms)
    # The housekeeper's next round; nothing was appended since the last one.
    log.checkpoint()
    assert clean(log, now_ms=NOW_MS) is not None
    assert kept(log) == [(1, b"a", b"2")]
    log.checkpoint()
    assert log.begin_checkpoint() is None


def test_k2_a_young_record_is_not_cleaned_before_its_time() -> None:
    log = shelf([(b"a", b"1"), (b"a", b"2")], one=compacted(min_compaction_lag_ms=500))
    assert clean(log, now_ms=NOW_MS + 499) is None
    assert clean(log, now_ms=NOW_MS + 500) is not None


def test_k3_a_dirty_record_is_cleaned_for_its_age_though_a_younger_one_shares_its_segment() -> None:
    log = compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000).create()
    fill(log, [(b"a", b"1" * 500)])
    assert clean(log, now_ms=NOW_MS) is not None
    append(log, (b"a", b"2"))
    append(log, (b"a", b"3"), timestamps=[NOW_MS + 500])
    fill(log, [])
    assert clean(log, now_ms=NOW_MS + 1000) is None
    assert clean(log, now_ms=NOW_MS + 1001) is not None


def test_k3_a_second_cleaning_with_nothing_new_is_not_due() -> None:
    log = shelf([(b"a", b"1"), (b"a", b"2")])
    assert clean(log, now_ms=NOW_MS) is not None
    assert clean(log, now_ms=NOW_MS + 10**9) is None


def test_what_was_cleaned_is_replaced_by_what_comes_later() -> None:
    log = shelf([(b"a", b"1"), (b"b", b"1")])
    clean(log, now_ms=NOW_MS)
    fill(log, [(b"a", b"2")])
    clean(log, now_ms=NOW_MS)
    assert [(key, value) for _, key, value in kept(log)] == [(b"b", b"1"), (b"a", b"2")]


def test_q5_what_has_no_key_or_cannot_be_decoded_or_is_a_control_batch_stays() -> None:
    log = compacted().create()
    control = [Record(0, NOW_MS, b"a", b"commit", ())]
    odd = [
        build_batch([Record(0, NOW_MS, None, b"no key", ())], leader_epoch=0),
        build_batch(control, leader_epoch=0, control=True, transactional=True, producer_id=1),
    ]
    for raw in odd:
        placed = log.end_offset.to_bytes(8, "big") + raw[8:]
        log.append_as_follower(placed, now_ms=NOW_MS)
    fill(log, [(b"a", b"1"), (b"a", b"2")])
    clean(log, now_ms=NOW_MS)
    assert values_of(log)[:3] == [b"no key", b"commit", b"2"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_cleaned_batch_keeps_its_codec(codec: Codec) -> None:
    log = compacted().create()
    append(log, (b"a", b"1" * 50), (b"b", b"1" * 50), codec=codec)
    fill(log, [(b"a", b"2")])
    clean(log, now_ms=NOW_MS)
    assert headers_of(log)[0].codec_bits == codec
    assert kept(log)[0] == (1, b"b", b"1" * 50)


# -- tombstones ----------------------------------------------------------------------------------


def test_q2_a_tombstones_life() -> None:
    log = shelf([(b"a", b"1"), (b"a", None), (b"b", b"1")])
    met_ms = NOW_MS + 5000
    clean(log, now_ms=met_ms)
    assert kept(log) == [(1, b"a", None), (2, b"b", b"1")]
    # Its time counts from that cleaning, and until then there is nothing to do.
    assert log.state.horizon_ms == met_ms + RETENTION_MS
    assert clean(log, now_ms=met_ms + RETENTION_MS - 1) is None
    # K3: then cleaning is due by itself, although nothing new was written.
    assert clean(log, now_ms=met_ms + RETENTION_MS) is not None
    assert kept(log) == [(2, b"b", b"1")]
    assert log.state.horizon_ms == -1
    assert clean(log, now_ms=met_ms + 10 * RETENTION_MS) is None


def test_q2_a_cleaning_for_another_reason_takes_no_tombstone_early() -> None:
    log = shelf([(b"a", None)])
    clean(log, now_ms=NOW_MS)
    fill(log, [(b"b", b"1")])
    clean(log, now_ms=NOW_MS + RETENTION_MS - 1)
    assert (0, b"a", None) in kept(log)
    assert log.state.horizon_ms == NOW_MS + RETENTION_MS


def test_q2_a_tombstone_waits_through_a_restart() -> None:
    one = compacted()
    log = shelf([(b"a", b"1"), (b"a", None)], one=one)
    clean(log, now_ms=NOW_MS)
    log.close()
    log, _ = one.open()
    assert clean(log, now_ms=NOW_MS + RETENTION_MS - 1) is None
    clean(log, now_ms=NOW_MS + RETENTION_MS)
    assert kept(log) == []


def test_q2_a_tombstone_that_a_full_map_did_not_reach_goes_on_hiding_its_value() -> None:
    others: list[Told] = [(b"%d" % number, b"v") for number in range(8)]
    log = shelf([(b"k", b"v"), *others, (b"k", None)], one=compacted(delete_retention_ms=0))
    for passed_ms in range(12):
        clean(log, now_ms=NOW_MS + passed_ms, keys_max=2)
        assert [value for _, key, value in kept(log) if key == b"k"] != [b"v"]


def test_q2_a_tombstone_goes_on_hiding_a_value_that_retention_kept_from_being_cleaned() -> None:
    log = compacted(segment_bytes=400).create()
    append(log, (b"other", b"x" * 50))
    log.roll()
    append(log, (b"k", b"v" * 50))
    log.roll()
    append(log, (b"k", None), (b"large", b"x" * 250))
    log.roll()
    append(log, (b"newest", b"x"))
    committed(log)
    job = begin_cleaning(log, now_ms=NOW_MS)
    assert job is not None
    assert job.plan.groups == ((0, 1), (2,))
    job.run()
    # The group of the value loses a source, so its cleaned segment cannot be swapped in.
    delete_records(log, Offset(1), now_ms=NOW_MS)
    finish_cleaning(log, job)
    for number in (1, 2, 3):
        clean(log, now_ms=NOW_MS + number * RETENTION_MS)
        assert [value for _, key, value in kept(log) if key == b"k"] != [b"v" * 50]


# -- producers -----------------------------------------------------------------------------------


def test_q4_rule_62_a_producer_is_known_after_cleaning_and_restart() -> None:
    one = compacted()
    log = one.create()
    append(log, (b"a", b"1"), producer_id=7, sequence=0)
    append(log, (b"a", b"2"), producer_id=7, sequence=1)
    fill(log, [(b"a", b"3")])
    clean(log, now_ms=NOW_MS)
    # The first batch is gone; the second has lost its record, and stays for its header.
    assert [(h.base_offset, h.count) for h in headers_of(log)] == [(1, 0), (2, 1), (3, 1)]
    for key, _ in list(one.store.scan(b"producers/")):
        one.store.commit({key: None})
    log.close()
    log, _ = one.open()
    assert append(log, (b"a", b"2"), producer_id=7, sequence=1) == 1
    assert append(log, (b"a", b"4"), producer_id=7, sequence=2) == 4


# -- segments ------------------------------------------------------------------------------------


def test_small_segments_become_one() -> None:
    one = compacted()
    log = shelf([(b"a", b"1")], [(b"b", b"1")], [(b"a", b"2")], one=one)
    assert len(log.segments) == 4
    clean(log, now_ms=NOW_MS)
    assert len(log.segments) == 2
    assert [value for _, _, value in kept(log)] == [b"1", b"2"]
    names = [n for n in one.files.list_dir("/data/t-0") if n.endswith(".log")]
    assert len(names) == 2


def test_a_full_map_goes_on_next_time() -> None:
    log = shelf([(b"%d" % (n % 5), b"%d" % n) for n in range(20)])
    for _ in range(20):
        if clean(log, now_ms=NOW_MS, keys_max=3) is None:
            break
    assert sorted(value or b"" for _, _, value in kept(log)) == [b"15", b"16", b"17", b"18", b"19"]


def test_compact_and_delete_together() -> None:
    one = compacted(delete=True, retention_ms=1000)
    log = shelf([(b"a", b"1"), (b"a", b"2")], [(b"b", b"1")], one=one)
    clean(log, now_ms=NOW_MS)
    delete_records(log, log.active.base_offset, now_ms=NOW_MS)
    assert kept(log) == []
    log.close()
    log, report = one.open()
    assert report.damage is None
    assert log.start_offset == log.segments[0].base_offset


def test_retention_of_everything_that_is_being_cleaned_wins() -> None:
    log = shelf([(b"a", b"1"), (b"a", b"2")])
    job = begin_cleaning(log, now_ms=NOW_MS)
    assert job is not None
    job.run()
    delete_records(log, log.active.base_offset, now_ms=NOW_MS)
    finish_cleaning(log, job)
    assert kept(log) == []
    assert not any(name.endswith(".cleaned") for name in log.files.list_dir(log.directory))


def test_appends_and_reads_go_on_while_the_job_runs() -> None:
    log = shelf([(b"a", b"1"), (b"a", b"2")])
    job = begin_cleaning(log, now_ms=NOW_MS)
    assert job is not None
    job.run()
    append(log, (b"c", b"during"))
    assert len(kept(log)) == 3
    finish_cleaning(log, job)
    assert [value for _, _, value in kept(log)] == [b"2", b"during"]


def test_z3_a_damaged_batch_takes_the_log_offline_and_nothing_goes() -> None:
    one = compacted()
    log = shelf([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")], one=one)
    path = f"/data/t-0/{0:020d}.log"
    file = one.files.open(path)
    file.write_at(file.size() - 1, [b"\xff"])
    before = file.read_at(0, BIG)
    with pytest.raises(StorageError):
        clean(log, now_ms=NOW_MS)
    assert log.offline is not None
    assert one.files.open(path).read_at(0, BIG) == before


# -- a cleaned log is a log ----------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b", b"c"])
STORY = st.lists(
    st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=4))), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


@given(STORY, st.integers(1, 5))
def test_after_cleaning_everybody_finds_the_last_value_of_every_key(
    story: list[list[tuple[bytes, bytes | None]]], keys_max: int
) -> None:
    one = compacted(index_interval_bytes=0, delete_retention_ms=10**12)
    log = one.create()
    for told in story:
        fill(log, list(told))
        clean(log, now_ms=NOW_MS, keys_max=keys_max)
    last = {key: value for told in story for key, value in told}
    assert {key: value for _, key, value in kept(log)} == last
    expected = batches_of(log)
    log.close()
    log, report = one.open()
    assert report.damage is None
    assert batches_of(log) == expected


@given(STORY)
def test_a_cleaned_log_is_read_by_offset_and_by_time(
    story: list[list[tuple[bytes, bytes | None]]],
) -> None:
    log = compacted(index_interval_bytes=0).create()
    for told in story:
        for pair in told:
            append(log, pair, timestamps=[NOW_MS + log.end_offset])
        log.roll()
        append(log, (b"newest", b"x"), timestamps=[NOW_MS + log.end_offset])
    committed(log)
    clean(log, now_ms=NOW_MS)
    left = records_of(log)
    for offset in range(log.end_offset):
        following = next(record for record in left if record.offset >= offset)
        found = log.read(Offset(offset), bytes_max=1)
        assert found is not None
        assert found.first_offset == following.offset
        answer = first_at_or_after(log, NOW_MS + offset)
        assert answer == (following.timestamp, following.offset)
