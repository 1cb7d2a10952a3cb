"""Rule 14: a leader's wish is granted only if nothing has changed that it does not know of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

from ottla.controller.commands import FenceBroker, PartitionChange
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID
from tests.unit.controller.cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    """Three brokers, one partition, led by 1 in leader epoch 2 and partition epoch 4 at least."""
    made = Cluster(4)
    made.create((1, 2, 3), configs={"min.insync.replicas": "2"})
    for _ in range(2):
        made.fence(1)
        made.start(1)
        assert made.alter_one(2, made.change([1, 2, 3])) is None
        made.elect("preferred", 0)
    assert made.partition().leader == 1
    return made


def test_a_wish_is_granted_and_the_partition_epoch_grows(cluster: Cluster) -> None:
    before = cluster.partition()
    (result,) = cluster.alter(1, cluster.change([1, 2])).results
    after = cluster.partition()
    assert result.refusal is None
    assert after.isr == (1, 2)
    assert result.partition_epoch == after.partition_epoch == before.partition_epoch + 1
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)


def test_a_wish_that_changes_nothing_is_granted_too(cluster: Cluster) -> None:
    before = cluster.partition()
    assert cluster.alter_one(1, cluster.change([1, 2, 3])) is None
    assert cluster.partition() == replace(before, partition_epoch=before.partition_epoch + 1)


Spoil = Callable[[Cluster, PartitionChange], PartitionChange]


def _stranger(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, partition=99)


def _later_leader_epoch(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, leader_epoch=LeaderEpoch(cluster.partition().leader_epoch + 1))


def _later_partition_epoch(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, partition_epoch=cluster.partition().partition_epoch + 1)


def _earlier_leader_epoch(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, leader_epoch=LeaderEpoch(cluster.partition().leader_epoch - 1))


def _earlier_partition_epoch(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, partition_epoch=cluster.partition().partition_epoch - 1)


def _no_replica(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, isr=(*change.isr, (BrokerId(4), -1)))


def _twice(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, isr=(*change.isr, change.isr[0]))


def _without_leader(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, isr=((BrokerId(2), -1), (BrokerId(3), -1)))


def _recovers_again(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, isr=change.isr[:1], is_recovering=True)


def _recovers_with_others(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    return replace(change, is_recovering=True)


def _another_life(cluster: Cluster, change: PartitionChange) -> PartitionChange:
    isr = [(one, cluster.broker(one).broker_epoch) for one, _ in change.isr]
    return replace(change, isr=(*isr[:-1], (isr[-1][0], isr[-1][1] - 1)))


# In rule 14's order. Where a request is wrong in two ways, the earlier row gives the answer.
CHECKS: list[tuple[Spoil, ErrorCode]] = [
    (_stranger, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (_later_leader_epoch, ErrorCode.NOT_CONTROLLER),
    (_later_partition_epoch, ErrorCode.NOT_CONTROLLER),
    (_earlier_leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
    (_earlier_partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
    (_no_replica, ErrorCode.INVALID_REQUEST),
    (_twice, ErrorCode.INVALID_REQUEST),
    (_without_leader, ErrorCode.INVALID_REQUEST),
    (_recovers_with_others, ErrorCode.INVALID_REQUEST),
    (_recovers_again, ErrorCode.INVALID_REQUEST),
    (_another_life, ErrorCode.INELIGIBLE_REPLICA),
]


def _name(value: object) -> str:
    return getattr(value, "__name__", str(value)).strip("_")


@pytest.mark.parametrize(("spoil", "code"), CHECKS, ids=_name)
def test_each_check_refuses_and_changes_nothing(
    cluster: Cluster, spoil: Spoil, code: ErrorCode
) -> None:
    before = cluster.image
    assert cluster.alter_one(1, spoil(cluster, cluster.change([1, 2, 3]))) is code
    assert cluster.image.topics is before.topics


@pytest.mark.parametrize(
    ("early", "late"), list(combinations(CHECKS, 2)), ids=lambda row: _name(row[0])
)
def test_the_first_check_that_fails_gives_the_answer(
    cluster: Cluster, early: tuple[Spoil, ErrorCode], late: tuple[Spoil, ErrorCode]
) -> None:
    spoiled = early[0](cluster, late[0](cluster, cluster.change([1, 2, 3])))
    assert cluster.alter_one(1, spoiled) is early[1]


def test_an_unknown_topic_id_is_told_apart(cluster: Cluster) -> None:
    change = replace(cluster.change([1]), topic_id=UUID(int=12345))
    assert cluster.alter_one(1, change) is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_caller_of_an_earlier_life_is_refused_before_anything_else(cluster: Cluster) -> None:
    stale = cluster.broker(1).broker_epoch - 1
    outcome = cluster.alter(1, replace(cluster.change([1]), partition=99), epoch=stale)
    assert outcome.refusal is not None
    assert outcome.refusal.code is ErrorCode.STALE_BROKER_EPOCH
    assert outcome.results == ()


def test_only_the_leader_is_asked_and_only_after_its_epoch_is_known_to_be_right(
    cluster: Cluster,
) -> None:
    assert cluster.alter_one(2, cluster.change([1, 2])) is ErrorCode.INVALID_REQUEST
    old = _earlier_leader_epoch(cluster, cluster.change([1, 2]))
    assert cluster.alter_one(2, old) is ErrorCode.FENCED_LEADER_EPOCH
    behind = _earlier_partition_epoch(cluster, cluster.change([1, 2]))
    assert cluster.alter_one(2, behind) is ErrorCode.INVALID_REQUEST


def test_a_fenced_replica_may_not_join(cluster: Cluster) -> None:
    cluster.fence(3)
    assert cluster.alter_one(1, cluster.change([1, 2, 3])) is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_that_shuts_down_may_not_join_although_it_is_not_fenced(
    cluster: Cluster,
) -> None:
    cluster.shut_down(3)
    assert not cluster.broker(3).is_fenced
    assert cluster.alter_one(1, cluster.change([1, 2, 3])) is ErrorCode.INELIGIBLE_REPLICA


def test_a_replica_that_started_again_joins_only_under_its_new_epoch(cluster: Cluster) -> None:
    old = cluster.broker(3).broker_epoch
    cluster.start(3)
    change = cluster.change([1, 2, (3, old)])
    assert cluster.alter_one(1, change) is ErrorCode.INELIGIBLE_REPLICA
    change = cluster.change([1, 2, (3, cluster.broker(3).broker_epoch)])
    assert cluster.alter_one(1, change) is None


def test_a_leader_that_recovers_lets_nobody_in_before_it_has_said_so(cluster: Cluster) -> None:
    cluster.fence(2, 3)
    cluster.register(1, directory=55)
    cluster.register(2, directory=56)
    cluster.register(3, directory=57)
    for number in (1, 2, 3):
        cluster.unfence(number)
    cluster.elect("unclean", 0)
    assert cluster.partition().is_recovering
    both = cluster.change([1, 2], is_recovering=True)
    assert cluster.alter_one(1, both) is ErrorCode.INVALID_REQUEST
    assert cluster.alter_one(1, cluster.change([1], is_recovering=True)) is None
    assert cluster.partition().is_recovering
    assert cluster.alter_one(1, cluster.change([1, 2])) is None
    assert not cluster.partition().is_recovering


def test_the_wishes_of_one_command_are_answered_one_by_one(cluster: Cluster) -> None:
    good = cluster.change([1, 2])
    bad = replace(good, partition=7)
    results = cluster.alter(1, bad, good, good).results
    assert [one.refusal and one.refusal.code for one in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
        # The first of the two has moved the partition epoch.
        ErrorCode.INVALID_UPDATE_VERSION,
    ]


def test_rule_15_a_deposed_leader_loses_the_race_whoever_proposes_for_it(
    cluster: Cluster,
) -> None:
    wish = cluster.change([1])
    cluster.ok(FenceBroker(BrokerId(1), cluster.broker(1).broker_epoch))
    assert cluster.alter_one(1, wish) is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.partition().isr == (2, 3)
