"""A broker that serves gives up single partitions, because its copy of them is damaged."""

from __future__ import annotations

from ottla.controller.commands import ReportDamage
from ottla.controller.image import PartitionInfo
from ottla.controller.outcome import Outcome
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.metadata import topic_id

MIN_2 = {"min.insync.replicas": "2"}
UNCLEAN = {**MIN_2, "unclean.leader.election.enable": "true"}


def _report(cluster: Cluster, number: int, *indexes: int) -> Outcome:
    epoch = cluster.broker(number).broker_epoch
    return cluster.ok(ReportDamage(BrokerId(number), epoch, {topic_id(1): indexes or (0,)}))


def _sets(partition: PartitionInfo) -> tuple[object, tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    return partition.leader, partition.isr, partition.elr


def test_rule_55_a_leader_gives_one_partition_up_and_leads_the_others_on() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), (1, 2, 3), configs=MIN_2)
    before, other = cluster.partition(0), cluster.partition(1)
    outcome = _report(cluster, 1)
    assert outcome.topics == ("t",)
    after = cluster.partition(0)
    assert _sets(after) == (2, (2, 3), ())
    assert after.leader_epoch == before.leader_epoch + 1
    assert cluster.partition(1) == other
    assert cluster.broker(1).is_active


def test_rule_44_a_follower_gives_a_partition_up_and_the_leader_stays() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs=MIN_2)
    before = cluster.partition()
    _report(cluster, 3)
    after = cluster.partition()
    assert _sets(after) == (1, (1, 2), ())
    assert after.leader_epoch == before.leader_epoch
    assert after.partition_epoch == before.partition_epoch + 1


def test_rule_17_who_is_damaged_is_not_eligible_although_too_few_are_left() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=MIN_2)
    _report(cluster, 2)
    assert _sets(cluster.partition()) == (1, (1,), ())
    cluster.fence(1)
    assert _sets(cluster.partition()) == (None, (), (1,))


def test_rule_17_an_eligible_replica_leads_when_nobody_else_is_in_sync() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=MIN_2)
    # The network is bad: 2 leaves, stays eligible, and is not fenced.
    assert cluster.alter_one(1, cluster.change([1])) is None
    assert _sets(cluster.partition()) == (1, (1,), (2,))
    _report(cluster, 1)
    assert _sets(cluster.partition()) == (2, (2,), ())


def test_the_last_copy_that_is_damaged_leaves_nobody_to_lead() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs={"min.insync.replicas": "1"})
    assert cluster.alter_one(1, cluster.change([1])) is None
    _report(cluster, 1)
    assert _sets(cluster.partition()) == (None, (), ())
    # Nobody is elected by coming and going either.
    cluster.start(2)
    cluster.start(1, previous=cluster.broker(1).broker_epoch)
    assert cluster.partition().leader is None
    assert cluster.elect("preferred", 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.elect("unclean", 0) == [None]


def test_where_unclean_leaders_are_allowed_another_than_the_damaged_one_is_elected() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs=UNCLEAN)
    assert cluster.alter_one(1, cluster.change([1, 3])) is None
    assert cluster.alter_one(1, cluster.change([1])) is None
    cluster.fence(3)
    _report(cluster, 1)
    after = cluster.partition()
    assert (after.leader, after.isr, after.is_recovering) == (2, (2,), True)


def test_where_unclean_leaders_are_allowed_and_nobody_else_is_there_nobody_is_elected() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=UNCLEAN)
    cluster.fence(2)
    _report(cluster, 1)
    assert _sets(cluster.partition()) == (None, (), (2,))


def test_rule_8_the_sole_replica_leads_whatever_it_has() -> None:
    cluster = Cluster(1)
    cluster.create((1,))
    before = cluster.partition()
    _report(cluster, 1)
    assert cluster.partition() is before


def test_rule_15_an_in_sync_set_that_was_asked_for_before_the_report_comes_too_late() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs=MIN_2)
    assert cluster.alter_one(1, cluster.change([1, 2])) is None
    # 3 has caught up, so the leader asks for it; meanwhile 3 finds that its copy is damaged.
    late = cluster.change([1, 2, 3])
    _report(cluster, 3)
    assert cluster.alter_one(1, late) is ErrorCode.INVALID_UPDATE_VERSION
    assert _sets(cluster.partition()) == (1, (1, 2), ())


def test_a_broker_that_is_shutting_down_can_report_too() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=MIN_2)
    cluster.fence(2)
    cluster.shut_down(1)
    assert _sets(cluster.partition()) == (None, (), (1, 2))
    _report(cluster, 1)
    assert _sets(cluster.partition()) == (None, (), (2,))


def test_strange_reports_do_nothing() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2), configs=MIN_2)
    before = cluster.image.topics
    epoch = cluster.broker(1).broker_epoch
    for damaged in ({}, {topic_id(50): (0,)}, {topic_id(1): (99,)}):
        assert cluster.ok(ReportDamage(BrokerId(1), epoch, damaged)).topics == ()
    # Broker 3 holds no copy of it.
    assert _report(cluster, 3).topics == ()
    assert cluster.image.topics is before
    stale = ReportDamage(BrokerId(1), epoch - 1, {topic_id(1): (0,)})
    assert cluster.refusal(stale) is ErrorCode.STALE_BROKER_EPOCH


def test_many_partitions_are_given_up_in_one_command() -> None:
    cluster = Cluster(3)
    cluster.create(*[(1, 2, 3)] * 200, configs=MIN_2)
    version = cluster.image.version
    _report(cluster, 1, *range(0, 200, 2))
    assert cluster.image.version == version + 1
    leaders = [one.leader for one in cluster.image.topics["t"].partitions]
    assert leaders == [2, 1] * 100
