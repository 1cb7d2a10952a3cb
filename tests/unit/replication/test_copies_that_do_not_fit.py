"""Logs that are awkward to copy: a start inside a batch, an end without batches, no descriptors."""

from __future__ import annotations

import pytest

from ottla.proto.ids import Offset
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.surgery import delete_records
from ottla.replication.storage.failpoints import arm, disarm_all
from tests.builders import NOW_MS, headers_of, produced, small_settings
from tests.unit.replication.stream import LEADER, Stream, view

ALONE = (LEADER,)


def copy(stream: Stream, *, rounds: int = 40) -> None:
    """Let follower and leader talk for a while."""
    for _ in range(rounds):
        stream.asks()
        answer = stream.sent()
        if answer is not None:
            stream.puller.take(answer)
        stream.wait(1100)


def test_a_log_that_starts_inside_a_batch_is_copied_with_the_whole_batch() -> None:
    stream = Stream(0)
    stream.add(0)
    led = stream.led()
    led.lead(view(partition_epoch=1, isr=ALONE))
    led.append([produced(*[b"v%d" % number for number in range(10)])], now_ms=NOW_MS)
    led.append([produced(b"after")], now_ms=NOW_MS)
    delete_records(led.log, Offset(5), now_ms=NOW_MS)
    copy(stream)
    log = stream.followed().log
    assert (log.start_offset, log.end_offset) == (5, 11)
    assert headers_of(log) == headers_of(led.log)


def test_a_follower_far_behind_resets_to_where_the_first_batch_begins() -> None:
    stream = Stream(0)
    stream.add(0, small_settings())
    led = stream.led()
    led.lead(view(partition_epoch=1, isr=ALONE))
    for number in range(6):
        led.append([produced(*[b"%d" % number * 60 for _ in range(4)])], now_ms=NOW_MS)
    delete_records(led.log, Offset(17), now_ms=NOW_MS)
    copy(stream)
    log = stream.followed().log
    assert (log.start_offset, log.end_offset) == (17, 24)


def test_a_compacted_log_of_which_the_end_is_gone_is_copied_to_its_end() -> None:
    settings = small_settings(
        compact=True, delete=False, segment_bytes=100_000, delete_retention_ms=0
    )
    stream = Stream(0)
    stream.add(0, settings)
    led = stream.led()
    led.lead(view(partition_epoch=1, isr=ALONE))
    for one in ((b"a", b"1"), (b"b", b"1"), (b"a", None)):
        led.append([produced(one)], now_ms=NOW_MS)
    # The follower had it all, and has lost its disk since.
    led.log.held_by_all = Offset(3)
    for number in range(1, 4):
        if led.log.active.size:
            led.log.roll()
        led.log.checkpoint()
        clean(led.log, now_ms=NOW_MS + 10**10 * number)
    assert [header.count for header in headers_of(led.log)] == [1, 0]
    copy(stream)
    assert stream.followed().log.end_offset == 3


def test_y2_an_append_that_finds_no_descriptor_half_way_goes_on_from_there(
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(disarm_all)
    stream = Stream(0)
    stream.add(0, small_settings())
    led = stream.led()
    led.lead(view(partition_epoch=1, isr=ALONE))
    for _ in range(20):
        led.append([produced(b"x" * 100)], now_ms=NOW_MS)
    arm("log.roll.before", "error(EMFILE)@1")
    copy(stream)
    followed = stream.followed()
    assert followed.log.offline is None
    assert followed.follower is not None
    assert followed.follower.corrupt_count == 0
    assert followed.log.end_offset == 20
