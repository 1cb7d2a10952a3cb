"""Who leads: rules 1 and 16 to 20, one partition at a time."""

from __future__ import annotations

import pytest

from ottla.controller.commands import ElectLeaders
from ottla.controller.election import min_insync_of
from ottla.controller.image import ALL_BROKERS, ClusterDefaults
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import NO_EPOCH
from tests.unit.controller.cluster import Cluster

MIN_2 = {"min.insync.replicas": "2"}
UNCLEAN = {"unclean.leader.election.enable": "true"}


def _cluster(*replicas: int, **options: str) -> Cluster:
    cluster = Cluster(max(replicas))
    cluster.create(replicas, configs={**MIN_2, **options})
    return cluster


def test_rule_1_a_new_leader_has_a_new_leader_epoch_also_when_it_is_nobody() -> None:
    cluster = _cluster(1)
    before = cluster.partition()
    cluster.fence(1)
    after = cluster.partition()
    assert after.leader is None
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.partition_epoch == before.partition_epoch + 1


def test_rule_1_an_in_sync_set_that_changes_alone_has_only_a_new_partition_epoch() -> None:
    cluster = _cluster(1, 2, 3)
    before = cluster.partition()
    cluster.fence(3)
    after = cluster.partition()
    assert (after.leader, after.isr) == (1, (1, 2))
    assert after.leader_epoch == before.leader_epoch
    assert after.partition_epoch == before.partition_epoch + 1


def test_rule_16_the_first_replica_in_sync_leads_in_the_order_of_the_assignment() -> None:
    cluster = _cluster(3, 1, 2)
    cluster.fence(3)
    assert cluster.partition().leader == 1


def test_rule_16_a_leader_that_is_still_good_stays() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.fence(1)
    cluster.start(1)
    assert cluster.alter_one(2, cluster.change([1, 2, 3])) is None
    # The preferred one is back in sync, and nobody moves the leadership for that alone.
    assert cluster.partition().leader == 2


def test_rule_16_nobody_leads_rather_than_somebody_who_may_lack_records() -> None:
    cluster = _cluster(1, 2)
    assert cluster.alter_one(1, cluster.change([1])) is None
    # 2 left the in-sync set below the minimum, so it is eligible, until min ISR is 1.
    cluster.configure(min__insync__replicas=1)
    cluster.fence(1)
    assert (cluster.partition().leader, cluster.partition().elr) == (None, (1,))


def test_rule_16_a_topic_may_opt_into_losing_records() -> None:
    cluster = _cluster(1, 2, **UNCLEAN)
    cluster.configure(min__insync__replicas=1)
    assert cluster.alter_one(1, cluster.change([1])) is None
    cluster.fence(1)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert partition.is_recovering
    # Rule 44: whoever is behind this epoch may truncate below its high watermark.
    assert partition.last_unclean_epoch == partition.leader_epoch


def test_rule_16_unclean_election_is_off_unless_somebody_asks_for_it() -> None:
    assert not ClusterDefaults().is_unclean_allowed
    cluster = _cluster(1, 2)
    cluster.configure(min__insync__replicas=1)
    assert cluster.alter_one(1, cluster.change([1])) is None
    cluster.fence(1)
    assert cluster.partition().leader is None
    # Asking for it later brings the partition back in the same command.
    cluster.configure(unclean__leader__election__enable=True)
    assert cluster.partition().leader == 2


def test_rule_64a_the_topics_of_coordinators_never_lose_records() -> None:
    cluster = Cluster(2, defaults=ClusterDefaults(1, is_unclean_allowed=True, is_fsync=False))
    cluster.create((1, 2), name="__consumer_offsets", configs=UNCLEAN)
    topic = "__consumer_offsets"
    assert cluster.alter_one(1, cluster.change([1], topic=topic)) is None
    cluster.fence(1)
    assert cluster.partition(topic=topic).leader is None
    assert cluster.partition(topic=topic).is_durable


def test_rule_17_who_leaves_below_the_minimum_is_eligible() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.fence(3)
    assert cluster.partition().elr == ()
    cluster.fence(2)
    partition = cluster.partition()
    assert (partition.isr, partition.elr) == ((1,), (2,))


def test_rule_17_with_nobody_in_sync_an_eligible_replica_leads_alone() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.fence(3, 2, 1)
    assert cluster.partition().elr == (1, 2)
    cluster.start(3)
    assert cluster.partition().leader is None
    cluster.start(2)
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    assert not partition.is_recovering
    assert partition.last_unclean_epoch == NO_EPOCH


def test_rule_17_enough_in_sync_leave_nobody_eligible() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.fence(3, 2)
    cluster.start(3)
    assert cluster.alter_one(1, cluster.change([1, 3])) is None
    partition = cluster.partition()
    assert (partition.isr, partition.elr) == ((1, 3), ())


def test_rule_17_a_replica_that_lost_its_disk_is_not_eligible_any_more() -> None:
    cluster = _cluster(1, 2)
    cluster.fence(2, 1)
    assert cluster.partition().elr == (1, 2)
    cluster.register(1, directory=77)
    assert cluster.partition().elr == (2,)
    cluster.unfence(1)
    assert cluster.partition().leader is None
    cluster.start(2)
    assert cluster.partition().leader == 2


def test_rule_20_a_lower_minimum_ends_eligibility_in_the_same_command() -> None:
    cluster = _cluster(1, 2)
    cluster.fence(2)
    assert cluster.partition().elr == (2,)
    before = cluster.image.version
    cluster.configure(min__insync__replicas=1)
    # The leader may commit alone from now on, so 2 may lack what it commits.
    assert cluster.partition().elr == ()
    assert cluster.image.version == before + 1


def test_rule_20_a_new_minimum_strands_no_partition_that_has_nobody_in_sync() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.fence(3, 2, 1)
    cluster.configure(min__insync__replicas=1)
    assert cluster.partition().elr == (1, 2)
    cluster.start(2)
    assert cluster.partition().leader == 2


def test_rule_20_holds_for_the_default_of_all_brokers_and_of_a_new_controller_too() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2))
    cluster.fence(2)
    assert cluster.partition().elr == (2,)
    cluster.configure(ALL_BROKERS, "broker", min__insync__replicas=1)
    assert cluster.partition().elr == ()

    cluster = Cluster(2)
    cluster.create((1, 2))
    cluster.fence(2)
    cluster.take_office(2, ClusterDefaults(min_insync_replicas=1))
    assert cluster.partition().elr == ()


def test_rule_25_a_topic_needs_no_more_in_sync_than_it_has_replicas() -> None:
    cluster = Cluster(3)
    cluster.create((1,), name="one")
    cluster.create((1, 2, 3), name="three")
    topics = cluster.image.topics
    assert min_insync_of(cluster.image, topics["one"]) == 1
    assert min_insync_of(cluster.image, topics["three"]) == 2


def test_a_minimum_that_makes_no_sense_counts_as_if_nobody_had_set_it() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs={"min.insync.replicas": "many"})
    assert min_insync_of(cluster.image, cluster.image.topics["t"]) == 2


# ── Elections that somebody asks for ──────────────────────────────────────────────────────────


def test_the_preferred_leader_is_restored_once_it_is_in_sync() -> None:
    cluster = _cluster(1, 2)
    cluster.fence(1)
    assert cluster.elect("preferred", 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.start(1)
    assert cluster.elect("preferred", 0) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.alter_one(2, cluster.change([1, 2])) is None
    before = cluster.partition()
    assert cluster.elect("preferred", 0) == [None]
    after = cluster.partition()
    assert (after.leader, after.leader_epoch) == (1, before.leader_epoch + 1)
    assert cluster.elect("preferred", 0) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_all_preferred_leaders_are_restored_by_one_command_that_names_none() -> None:
    cluster = Cluster(2)
    cluster.create(*[(1, 2)] * 20)
    cluster.fence(1)
    cluster.start(1)
    cluster.alter(2, *(cluster.change([1, 2], index=index) for index in range(20)))
    version = cluster.image.version
    cluster.elect("preferred")
    assert {one.leader for one in cluster.image.topics["t"].partitions} == {1}
    assert cluster.image.version == version + 1


def test_an_operator_can_bring_a_partition_back_and_lose_records() -> None:
    cluster = _cluster(1, 2)
    cluster.fence(1, 2)
    cluster.register(1, directory=77)
    cluster.register(2, directory=78)
    assert cluster.elect("unclean", 0) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.unfence(2)
    assert cluster.partition().leader is None
    assert cluster.elect("unclean", 0) == [None]
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.is_recovering) == (2, (2,), True)
    assert cluster.elect("unclean", 0) == [ErrorCode.ELECTION_NOT_NEEDED]


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_a_partition_that_is_not_there_gets_no_leader(kind: str) -> None:
    cluster = _cluster(1)
    assert cluster.elect(kind, 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]  # type: ignore[arg-type]


def test_one_command_names_a_bounded_number_of_partitions() -> None:
    cluster = _cluster(1)
    named = {cluster.image.topics["t"].topic_id: tuple(range(1001))}
    assert cluster.refusal(ElectLeaders("preferred", named)) is ErrorCode.INVALID_REQUEST
