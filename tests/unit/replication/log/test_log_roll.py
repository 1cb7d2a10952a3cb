"""When a log begins a new segment: by size, by age, by offsets. (By index: `test_index.py`.)"""

from __future__ import annotations

import pytest

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import INT32_MAX, Offset
from ottla.replication.log.log import Log
from tests.builders import NOW_MS, OneLog, append, headers_of, produced, small_settings, values_of
from tests.sim.material import stamped

MINUTE_MS = 60_000


def bases_of(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_as_large_as_allowed_and_no_larger() -> None:
    size = len(produced(b"x" * 100))
    log = OneLog(small_settings(segment_bytes=3 * size)).create()
    for _ in range(7):
        append(log, b"x" * 100)
    assert bases_of(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_what_a_follower_gets_at_once_is_cut_into_segments_as_well() -> None:
    size = len(produced(b"x" * 100))
    log = OneLog(small_settings(segment_bytes=3 * size)).create()
    sent = b"".join(stamped(produced(b"x" * 100), offset, 0) for offset in range(7))
    log.append_as_follower(sent, now_ms=NOW_MS)
    assert bases_of(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_segment_is_named_after_the_end_offset_at_which_it_began() -> None:
    one = OneLog()
    log = one.create()
    append(log, b"x" * 300, b"y")
    append(log, b"x" * 300)
    names = one.files.list_dir("/data/t-0")
    assert f"{2:020d}.log" in names
    assert [name.rpartition(".")[2] for name in names] == ["index", "log", "timeindex"] * 2


@pytest.mark.parametrize(("age_ms", "count"), [(MINUTE_MS - 1, 1), (MINUTE_MS, 2)])
def test_a_segment_rolls_when_its_first_batch_is_as_old_as_segment_ms(
    age_ms: int, count: int
) -> None:
    log = OneLog(small_settings(segment_ms=MINUTE_MS)).create()
    append(log, b"a")
    append(log, b"b", now_ms=NOW_MS + age_ms)
    assert len(log.segments) == count


def test_an_old_segment_rolls_without_an_append_too() -> None:
    log = OneLog(small_settings(segment_ms=MINUTE_MS)).create()
    append(log, b"a")
    assert not log.maybe_roll(NOW_MS + MINUTE_MS - 1)
    assert log.maybe_roll(NOW_MS + MINUTE_MS)
    assert bases_of(log) == [0, 1]


@pytest.mark.parametrize(
    ("compact", "segment_ms", "lag_ms", "rolls_after_ms"),
    [
        (True, 5 * MINUTE_MS, MINUTE_MS, MINUTE_MS),
        (True, MINUTE_MS, 5 * MINUTE_MS, MINUTE_MS),
        (False, 5 * MINUTE_MS, MINUTE_MS, 5 * MINUTE_MS),
    ],
    ids=["by the lag", "by segment.ms", "not compacted"],
)
def test_k3_a_compacted_segment_rolls_in_time_for_max_compaction_lag(
    compact: bool, segment_ms: int, lag_ms: int, rolls_after_ms: int
) -> None:
    settings = small_settings(compact=compact, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms)
    log = OneLog(settings).create()
    append(log, (b"k", b"a"))
    assert not log.maybe_roll(NOW_MS + rolls_after_ms - 1)
    assert log.maybe_roll(NOW_MS + rolls_after_ms)


def test_an_empty_segment_never_grows_old() -> None:
    log = OneLog(small_settings(segment_ms=MINUTE_MS)).create()
    assert not log.maybe_roll(NOW_MS + 100 * MINUTE_MS)


def test_the_age_of_a_segment_survives_a_restart() -> None:
    one = OneLog(small_settings(segment_ms=MINUTE_MS))
    log = one.create()
    append(log, b"a")
    log.close()
    log, _ = one.open(now_ms=NOW_MS + MINUTE_MS - 1)
    assert not log.maybe_roll(NOW_MS + MINUTE_MS - 1)
    assert log.maybe_roll(NOW_MS + MINUTE_MS)


def test_jitter_makes_a_segment_roll_earlier_and_always_at_the_same_time() -> None:
    settings = small_settings(segment_ms=MINUTE_MS, segment_jitter_ms=MINUTE_MS)

    def rolls_after() -> int:
        log = OneLog(settings).create()
        append(log, b"a")
        return next(age for age in range(MINUTE_MS + 1) if log.maybe_roll(NOW_MS + age))

    first = rolls_after()
    assert first == rolls_after() < MINUTE_MS


def test_g2_an_offset_too_far_for_its_segment_begins_another() -> None:
    log = OneLog().create()
    append(log, b"a")
    near, far = INT32_MAX, INT32_MAX + 5
    log.append_as_follower(stamped(produced(b"b"), near, 0), now_ms=NOW_MS, gaps_allowed=True)
    assert len(log.segments) == 1
    log.append_as_follower(stamped(produced(b"c"), far, 0), now_ms=NOW_MS, gaps_allowed=True)
    assert bases_of(log) == [0, near + 1]
    assert [header.base_offset for header in headers_of(log)] == [0, near, far]


def test_g2_a_gap_as_wide_as_a_segment_can_span_is_taken() -> None:
    log = OneLog(small_settings(index_interval_bytes=0)).create()
    sent = b"".join(stamped(produced(b"x"), INT32_MAX + more, 0) for more in range(3))
    log.append_as_follower(sent, now_ms=NOW_MS, gaps_allowed=True)
    assert [header.base_offset - INT32_MAX for header in headers_of(log)] == [0, 1, 2]
    assert bases_of(log) == [0, INT32_MAX + 1]


@pytest.mark.parametrize("gap", [INT32_MAX + 1, INT32_MAX + 6, 2**40])
def test_g2_a_wider_gap_is_refused_before_anything_is_written(gap: int) -> None:
    log = OneLog(small_settings(index_interval_bytes=0)).create()
    sent = stamped(produced(b"good"), 0, 0) + stamped(produced(b"far"), 1 + gap, 0)
    with pytest.raises(CorruptionError, match=f"a gap of {gap} offsets"):
        log.append_as_follower(sent, now_ms=NOW_MS, gaps_allowed=True)
    assert (log.end_offset, log.size_bytes, bases_of(log)) == (0, 0, [0])
    assert log.offline is None


def test_g2_a_log_with_a_huge_gap_opens_and_reads_again() -> None:
    one = OneLog(small_settings(compact=True))
    log = one.create()
    append(log, (b"k", b"a"))
    raw = stamped(produced((b"k", b"b")), INT32_MAX - 5, 0)
    log.append_as_follower(raw, now_ms=NOW_MS, gaps_allowed=True)
    log.checkpoint()
    log.close()
    log, report = one.open()
    assert report.damage is None
    assert values_of(log) == [b"a", b"b"]
    found = log.read(Offset(17), bytes_max=1)
    assert found is not None
    assert found.first_offset == INT32_MAX - 5
