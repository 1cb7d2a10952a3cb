"""Whatever a log does to itself, `verify` finds it sound: before, after and in the middle."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto.ids import Offset
from ottla.proto.records.compression import Codec
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log import surgery
from ottla.replication.log.log import Log
from ottla.replication.settings import LogSettings
from tests.unit.replication.inspect.shelf import Shelf

COMPACT = LogSettings(
    segment_bytes=600,
    index_interval_bytes=100,
    compact=True,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["append", "append", "epoch", "checkpoint", "truncate", "delete", "clean", "kill"]
        ),
        st.integers(min_value=0, max_value=10),
    ),
    max_size=25,
)


def _step(shelf: Shelf, log: Log, name: str, amount: int) -> Log:
    match name:
        case "append":
            shelf.append(log, amount, codec=Codec(amount % 5), producer=amount % 2)
        case "epoch":
            log.assign_epoch(shelf.next_epoch())
        case "checkpoint":
            log.advance_high_watermark(Offset(max(log.high_watermark, log.end_offset - amount)))
            log.checkpoint()
        case "truncate":
            offset = max(log.high_watermark, log.end_offset - amount)
            surgery.truncate(log, Offset(offset))
            log.assign_epoch(shelf.next_epoch())
        case "delete":
            before = min(log.high_watermark, log.start_offset + amount)
            surgery.delete_records(log, Offset(before), now_ms=0)
        case "clean":
            clean(log, now_ms=amount)
            surgery.purge(log, now_ms=amount)
        case _:
            log.active.indexes.offsets.save()
            log = shelf.open()
            log.assign_epoch(shelf.next_epoch())
    return log


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_log_that_nobody_damaged_is_sound(steps: list[tuple[str, int]]) -> None:
    shelf = Shelf(settings=COMPACT)
    log = shelf.create()
    for name, amount in steps:
        log = _step(shelf, log, name, amount)
        report = shelf.report()
        assert report.problems == [], (name, amount)
        assert report.end_offset == log.end_offset
        assert report.start_offset == log.start_offset
