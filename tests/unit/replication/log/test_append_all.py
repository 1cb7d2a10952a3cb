"""Many batches with one write: the same as one by one, and a refusal stops no other (B1, B2)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, InvariantError, RequestError, StorageError
from ottla.proto.ids import LeaderEpoch
from ottla.replication.log.append import Appended
from ottla.replication.log.log import Log
from ottla.replication.storage.faults import FaultRule
from tests.builders import (
    EPOCH,
    NOW_MS,
    OneLog,
    batches_of,
    faulty_files,
    produced,
    small_settings,
    values_of,
)

MESSAGE_BYTES_MAX = 400


def new_log() -> Log:
    return OneLog(small_settings(max_message_bytes=MESSAGE_BYTES_MAX)).create()


def append_all(log: Log, *batches: bytes) -> list[Appended | RequestError]:
    return log.append_all_as_leader(batches, epoch=EPOCH, now_ms=NOW_MS)


def outcome(answer: Appended | RequestError) -> object:
    return answer if isinstance(answer, Appended) else answer.code


def one_by_one(log: Log, batch: bytes) -> Appended | RequestError:
    try:
        return log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
    except RequestError as refusal:
        return refusal


def test_batches_are_placed_one_after_another() -> None:
    log = new_log()
    answers = append_all(log, produced(b"a", b"b"), produced(b"c"), produced(b"d"))
    placed = [answer[:2] for answer in answers if isinstance(answer, Appended)]
    assert placed == [(0, 1), (2, 2), (3, 3)]
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


def test_a_refused_batch_stops_no_other_and_leaves_no_gap() -> None:
    log = new_log()
    first, second, third = append_all(
        log, produced(b"a"), produced(b"x" * MESSAGE_BYTES_MAX), produced(b"c")
    )
    assert isinstance(first, Appended)
    assert isinstance(second, RequestError)
    assert second.code is ErrorCode.MESSAGE_TOO_LARGE
    assert isinstance(third, Appended)
    assert third.first_offset == 1
    assert values_of(log) == [b"a", b"c"]


def test_rule_61_a_retry_in_the_same_write_gets_the_offset_of_the_first_try() -> None:
    log = new_log()
    batch = produced(b"a", producer_id=7)
    first, again = append_all(log, batch, batch)
    assert isinstance(first, Appended)
    assert isinstance(again, Appended)
    assert again.is_duplicate
    assert again.first_offset == first.first_offset == 0
    assert log.end_offset == 1


def test_nothing_to_append_changes_nothing() -> None:
    log = new_log()
    assert append_all(log) == []
    assert log.end_offset == 0


def test_rule_21_an_epoch_that_was_not_assigned_is_a_bug() -> None:
    with pytest.raises(InvariantError):
        new_log().append_all_as_leader([produced(b"a")], epoch=LeaderEpoch(4), now_ms=NOW_MS)


def test_rule_48_a_write_that_fails_acknowledges_none_of_them() -> None:
    files, plan, _ = faulty_files()
    log = OneLog(files=files).create()
    plan.rules.append(FaultRule("write", "*.log", code=errno.ENOSPC))
    with pytest.raises(StorageError):
        append_all(log, produced(b"a"), produced(b"b"))
    assert log.offline is not None
    assert log.end_offset == 0


BATCH = st.builds(
    lambda size, producer, sequence: produced(
        b"x" * size, producer_id=producer, sequence=sequence if producer >= 0 else 0
    ),
    st.integers(0, MESSAGE_BYTES_MAX),
    st.sampled_from([-1, 7]),
    st.integers(0, 3),
)


@given(st.lists(BATCH, max_size=12), st.lists(BATCH, max_size=3))
def test_together_they_are_stored_and_answered_as_one_by_one(
    batches: list[bytes], before: list[bytes]
) -> None:
    together, alone = new_log(), new_log()
    for batch in before:
        one_by_one(together, batch)
        one_by_one(alone, batch)
    answers = append_all(together, *batches)
    expected = [one_by_one(alone, batch) for batch in batches]
    assert [outcome(answer) for answer in answers] == [outcome(answer) for answer in expected]
    assert batches_of(together) == batches_of(alone)
    assert list(together.producers) == list(alone.producers)
    bases = [[segment.base_offset for segment in log.segments] for log in (together, alone)]
    assert bases[0] == bases[1]
