"""How far a group is behind, and where it goes on after a reset."""

from __future__ import annotations

import pytest

from ottla.clients.admin.answers import CommittedOffset, GroupInfo, GroupMember
from ottla.clients.cli.lag import partitions_read, standings, total_lag
from ottla.clients.cli.reset import decide
from ottla.clients.consumer.protocol import encode_assignment
from ottla.proto.ids import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def member(name: str, *partitions: TopicPartition, raw: bytes | None = None) -> GroupMember:
    assignment = encode_assignment(partitions) if raw is None else raw
    return GroupMember(name, "client", "/127.0.0.1", None, b"", assignment)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "")


def test_lag_is_told_only_where_both_offsets_are_known() -> None:
    reader = member("m", A0, A1)
    found = standings({A0: reader, A1: reader}, {A0: at(3), B0: at(7)}, {A0: 10, A1: 5})
    assert [(one.partition, one.committed, one.end, one.lag) for one in found] == [
        (A0, 3, 10, 7),
        (A1, None, 5, None),
        (B0, 7, None, None),
    ]
    assert [one.member for one in found] == [reader, reader, None]
    assert total_lag(found) == 7
    assert total_lag(found[1:]) is None


def test_lag_is_never_below_0() -> None:
    (found,) = standings({}, {A0: at(12)}, {A0: 10})
    assert found.lag == 0


def test_assignments_that_nobody_understands_are_none() -> None:
    strange, good = member("strange", raw=b"\xff\xff\xff"), member("good", A0)
    group = GroupInfo("g", "Stable", "consumer", "range", (strange, good))
    assert partitions_read(group) == {A0: good}
    connect = GroupInfo("g", "Stable", "connect", "", (good,))
    assert partitions_read(connect) == {}


@pytest.mark.parametrize(
    ("asked", "after", "told"),
    [(5, 5, None), (2, 2, None), (9, 9, None), (1, 2, 1), (10, 9, 10), (-1, 9, None)],
)
def test_an_offset_that_is_not_there_becomes_the_nearest_that_is(
    asked: int, after: int, told: int | None
) -> None:
    (move,) = decide({A0: asked}, {A0: 4}, {A0: 2}, {A0: 9})
    assert (move.before, move.after, move.asked) == (4, after, told)
