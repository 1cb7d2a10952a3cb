"""The judge notices what must not be, and takes what may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from tests.integration.replicated.history import (
    Attempt,
    Fate,
    History,
    LeaderSeen,
    fate_of,
    longest_gap,
)
from tests.integration.replicated.judge import BatchPrint, Found, compare_replicas, judge, vanished
from tests.integration.replicated.replicas import differences

HERE = TopicPartition("orders", 0)
ELSEWHERE = TopicPartition("orders", 1)


def _kept(number: int, offset: int, node: int = 1) -> Attempt:
    """One of many writes, each answered before the next was sent."""
    value = f"v{number}".encode()
    return Attempt("raw", HERE, value, number, Fate.OK, number + 0.5, offset, node)


def _lost(number: int, fate: Fate) -> Attempt:
    return replace(_kept(number, -1), fate=fate, node=None, said="said")


def _log(*values: str, epoch: int = 1) -> list[Found]:
    return [Found(offset, value.encode(), epoch) for offset, value in enumerate(values)]


def _judged(attempts: list[Attempt], log: list[Found], *leaders: LeaderSeen) -> str:
    return "\n".join(judge(attempts, {HERE: log}, leaders, ordered=["ordered"]))


def test_what_was_acknowledged_is_there_and_what_is_unknown_may_be() -> None:
    attempts = [_kept(0, 0), _lost(1, Fate.UNKNOWN), _lost(2, Fate.FAILED), _kept(3, 1)]
    assert not _judged(attempts, _log("v0", "v3"))
    # What nobody heard of may come late.
    assert not _judged(attempts, _log("v0", "v3", "v1"))
    attempts = [_kept(0, 0), _lost(1, Fate.UNKNOWN), _kept(3, 2)]
    assert not _judged(attempts, _log("v0", "v1", "v3"))


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (_log("v0"), "v1' was acknowledged at 1 by node 1; there is b'nothing'"),
        (_log("v1", "v0"), "there is b'v1'"),
        (_log("v0", "v1", "v0"), "b'v0' is there more than once"),
        (_log("v0", "v1", "v2"), "b'v2' at 2 had failed (said)"),
        (_log("v0", "v1", "x"), "nobody sent b'x'"),
        (_log("v0", "v1", "v9"), "b'v9' at 2 was sent to orders-1"),
        ([*_log("v0", "v1"), Found(3, b"v3", 1)], "offset 3 follows 1"),
        ([Found(0, b"v0", 2), Found(1, b"v1", 1)], "epoch 1 at 1 follows epoch 2"),
        ([Found(1, b"v1", 1)], "the first offset is 1"),
    ],
)
def test_a_log_that_does_not_follow_from_the_answers_is_noticed(
    log: list[Found], told: str
) -> None:
    other = replace(_lost(9, Fate.UNKNOWN), place=ELSEWHERE)
    attempts = [_kept(0, 0), _kept(1, 1), _lost(2, Fate.FAILED), _lost(3, Fate.UNKNOWN), other]
    assert told in _judged(attempts, log)


def test_what_was_acknowledged_without_an_offset_is_anywhere() -> None:
    attempts = [_kept(0, 0), _kept(1, -1)]
    assert not _judged(attempts, _log("v0", "v1"))
    assert "v1' was acknowledged at -1" in _judged(attempts, _log("v0"))


def test_a_write_sent_after_an_answer_must_not_lie_below_what_was_answered() -> None:
    assert "below 1, which was acknowledged before" in _judged(
        [_kept(0, 1), _kept(1, 0)], _log("v1", "v0")
    )
    late = _lost(1, Fate.UNKNOWN)
    assert "below 1" in _judged([_kept(0, 1), late], _log("v1", "v0"))
    # Both were on their way at the same time.
    assert not _judged([replace(_kept(0, 1), ended_s=5.0), _kept(1, 0)], _log("v1", "v0"))


def test_an_idempotent_producer_keeps_its_order_whatever_was_answered() -> None:
    attempts = [replace(_lost(n, Fate.UNKNOWN), writer="ordered") for n in (0, 1, 2)]
    assert not _judged(attempts, _log("v0", "v2"))
    assert "b'v1' at 1 was sent before b'v2'" in _judged(attempts, _log("v2", "v1"))


def test_two_leaders_in_an_epoch_are_noticed_in_metadata_and_in_answers() -> None:
    seen = LeaderSeen(HERE, 1, 1)
    log = [Found(0, b"v0", 1), Found(1, b"v1", 2)]
    assert not _judged([_kept(0, 0), _kept(1, 1, node=2)], log, seen, LeaderSeen(HERE, 2, 2))
    assert "[1, 3] all led in epoch 1" in _judged([], _log(), seen, LeaderSeen(HERE, 1, 3))
    assert "[1, 2] all led in epoch 1" in _judged([_kept(0, 0, node=2)], _log("v0"), seen)
    assert "[1, 2] all led in epoch 1" in _judged(
        [_kept(0, 0), _kept(1, 1, node=2)], _log("v0", "v1")
    )


def test_what_was_not_read_proves_nothing() -> None:
    assert judge([_kept(0, 0)], {}) == ["orders-0 was written to and not read"]


def test_what_a_reader_has_seen_stays_where_it_was() -> None:
    assert not vanished(HERE, {0: b"v0"}, _log("v0", "v1"))
    (told,) = vanished(HERE, {0: b"v0", 1: b"v1"}, _log("v0"))
    assert "was shown b'v1' at 1; now there is b'nothing'" in told
    (told,) = vanished(HERE, {0: b"v1"}, _log("v0", "v1"))
    assert "now there is b'v0'" in told


def test_replicas_must_be_the_same_below_the_high_watermark_and_not_above() -> None:
    first, second = BatchPrint(0, 4, 1, 100, 7), BatchPrint(5, 5, 1, 80, 8)
    other = second._replace(epoch=2)
    assert not compare_replicas(HERE, {1: [first, second], 2: [first, second], 3: [first]}, 5)
    assert not compare_replicas(HERE, {1: [first, second], 2: [first, other]}, 5)
    (told,) = compare_replicas(HERE, {1: [first, second], 2: [first, other]}, 6)
    assert "node 1 has" in told
    (told,) = compare_replicas(HERE, {1: [first, second], 2: [first]}, 6)
    assert "node 2 ends at 5, below the high watermark 6" in told
    # Both end too early, and one has other bytes.
    assert compare_replicas(HERE, {1: [], 2: []}, 1)


def test_a_replica_that_is_not_there_is_not_the_same(tmp_path: Path) -> None:
    dirs = {node: tmp_path / str(node) for node in (1, 2, 3)}
    for node in (1, 2):
        (dirs[node] / str(HERE)).mkdir(parents=True)
    assert differences(dirs, {HERE: 0}) == [f"{HERE}: node 3 has no replica"]
    assert len(differences(dirs, {ELSEWHERE: 0})) == 3


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        (ErrorCode.NONE, Fate.OK),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Fate.FAILED),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Fate.UNKNOWN),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Fate.UNKNOWN),
        (ErrorCode.REQUEST_TIMED_OUT, Fate.UNKNOWN),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Fate.UNKNOWN),
        (ErrorCode.KAFKA_STORAGE_ERROR, Fate.UNKNOWN),
    ],
)
def test_an_answer_is_unknown_unless_it_came_before_the_append(code: ErrorCode, fate: Fate) -> None:
    assert fate_of(code) is fate


@pytest.mark.parametrize(
    ("begin_s", "end_s", "gap_s"),
    [(0, 9, 4), (0, 2.5, 1), (2.5, 3.5, 4), (3.5, 4, 4), (7.5, 8, 1), (8.5, 9, 0), (-1, -0.5, 0)],
)
def test_the_gap_is_the_longest_that_reaches_into_the_window(
    begin_s: float, end_s: float, gap_s: float
) -> None:
    assert longest_gap([1, 2, 3, 7, 8], begin_s, end_s) == gap_s


def test_the_history_counts_and_never_forgets_what_is_on_its_way() -> None:
    history = History()
    first, second = history.begin("raw", HERE), history.begin("raw", HERE)
    assert first.value != second.value
    history.acknowledge(first, 5, 2)
    assert history.counts() == {"raw ok": 1, "raw unknown": 1}
    assert history.acknowledged_since("raw", first.began_s) == 1
    assert history.acknowledged_since("raw", first.ended_s + 1) == 0
    history.refuse(second, Fate.FAILED, "NOT_SENT")
    assert history.counts() == {"raw failed NOT_SENT": 1, "raw ok": 1}
