"""A follower of a compacted log that was away for so long that what it lacks could be cleaned away.

    1. a follower has a record of a transaction, and is away from then on
    2. the transaction is aborted, and the leader cleans: the record goes at once, the marker later
    3. the follower comes back, and never hears how the transaction ended

Then it would hold readers of committed records back for ever, once it leads; and with a later
commit of the same producer it would even show what was aborted. A tombstone is the same story.
"""

from __future__ import annotations

import pytest

from ottla.proto.ids import Offset
from ottla.proto.records.header import read_header
from ottla.replication.compaction.cleaner import AGAIN_MS, clean
from ottla.replication.log.log import Log
from tests.builders import (
    BIG,
    NOW_MS,
    OneLog,
    append,
    batches_of,
    committed,
    records_of,
    small_settings,
)
from tests.unit.replication.log.transactions import aborted, end, write

ANN = 7
RETENTION_MS = 1000


def compacted() -> Log:
    settings = small_settings(
        compact=True,
        delete=False,
        segment_bytes=10_000,
        delete_retention_ms=RETENTION_MS,
        min_cleanable_dirty_ratio=0.0,
    )
    return OneLog(settings).create()


def copy(leader: Log, follower: Log) -> None:
    """Let a follower have all that the leader has, and it lacks."""
    for raw in batches_of(leader):
        if read_header(raw).base_offset >= follower.end_offset:
            follower.append_as_follower(raw, now_ms=NOW_MS, gaps_allowed=True)
    committed(follower)


def clean_often(log: Log, since_ms: int = NOW_MS) -> int:
    """Clean again and again, until long after everything is due; return when that is."""
    # Nobody has written for long: no producer is alive.
    log.producers.expire(NOW_MS + BIG, 1)
    now_ms = since_ms
    for _ in range(4):
        now_ms += RETENTION_MS + AGAIN_MS
        log.roll()
        append(log, (b"newest", b"x"))
        committed(log)
        clean(log, now_ms=now_ms)
    return now_ms


def values(log: Log) -> dict[bytes | None, bytes | None]:
    return {one.key: one.value for one in records_of(log) if one.key in (b"a", b"b")}


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not-known"])
def test_q8_a_follower_that_comes_back_late_hears_how_a_transaction_ended(is_known: bool) -> None:
    leader, follower = compacted(), compacted()
    append(leader, (b"a", b"good"))
    write(leader, ANN, (b"a", b"aborted"))
    copy(leader, follower)
    end(leader, ANN, is_commit=False)
    if is_known:
        leader.held_by_all = follower.end_offset
    now_ms = clean_often(leader)
    copy(leader, follower)
    if not is_known:
        # What the rule is for: the marker is gone, and the follower waits for it for ever.
        assert follower.last_stable_offset == 1
        return
    assert follower.last_stable_offset == follower.end_offset == leader.end_offset
    assert [one.producer_id for one in aborted(follower)] == [ANN]
    # Now everybody has it.
    before = len(batches_of(leader))
    leader.held_by_all = follower.end_offset
    clean_often(leader, now_ms)
    assert len(batches_of(leader)) < before
    assert not any(read_header(raw).is_control for raw in batches_of(leader))
    assert values(leader)[b"a"] == b"good"


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not-known"])
def test_q8_a_follower_that_comes_back_late_hears_of_a_tombstone(is_known: bool) -> None:
    leader, follower = compacted(), compacted()
    append(leader, (b"a", b"old"))
    append(leader, (b"b", b"new"))
    copy(leader, follower)
    append(leader, (b"a", None))
    if is_known:
        leader.held_by_all = follower.end_offset
    now_ms = clean_often(leader)
    copy(leader, follower)
    assert values(follower) == {b"a": None if is_known else b"old", b"b": b"new"}
    if is_known:
        leader.held_by_all = follower.end_offset
        clean_often(leader, now_ms)
    assert values(leader) == {b"b": b"new"}


def test_what_stays_for_a_follower_is_not_looked_at_all_the_time() -> None:
    leader = compacted()
    append(leader, (b"a", None))
    leader.held_by_all = Offset(0)
    now_ms = clean_often(leader)
    assert leader.state.horizon_ms >= now_ms + AGAIN_MS
    assert clean(leader, now_ms=now_ms + AGAIN_MS - 1) is None
