"""The life of a broker as the metadata sees it: rules 2, 7 to 10 and 12."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.controller.commands import (
    BeginShutdown,
    FenceBroker,
    ForgetBroker,
    ReportDamage,
    SetFeatureLevel,
    UnfenceBroker,
)
from ottla.controller.image import ALL_BROKERS, ClusterDefaults
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import Cluster
from tests.unit.controller.metadata import topic_id

MIN_2 = {"min.insync.replicas": "2"}
PAGECACHE = {**MIN_2, "ottla.durability": "pagecache"}


def _code(outcome: object) -> ErrorCode | None:
    refusal = getattr(outcome, "refusal", None)
    return None if refusal is None else refusal.code


# ── Registration ──────────────────────────────────────────────────────────────────────────────


def test_rule_2_every_registration_has_a_larger_broker_epoch() -> None:
    cluster = Cluster()
    epochs = []
    for number in (1, 2, 1, 1, 2):
        outcome = cluster.register(number)
        assert outcome.epoch == cluster.broker(number).broker_epoch == cluster.image.version
        epochs.append(outcome.epoch)
    assert epochs == sorted(set(epochs))


def test_rule_7_a_broker_of_another_cluster_is_refused() -> None:
    cluster = Cluster()
    assert _code(cluster.register(1, cluster_id="other")) is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not cluster.image.brokers


def test_rule_7_a_registration_that_was_decided_on_an_earlier_life_is_refused() -> None:
    cluster = Cluster()
    first = cluster.registration(1)
    cluster.feed(encode_proposal(Proposal(NO_REQUEST, first)))
    cluster.register(1)
    later = cluster.broker(1)
    # A copy of the first registration was under way all the time, and comes out now.
    late = cluster.feed(encode_proposal(Proposal(NO_REQUEST, first)))
    assert _code(late) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.broker(1) == later


def test_rule_68_a_registration_that_is_committed_twice_has_one_epoch() -> None:
    cluster = Cluster()
    data = encode_proposal(Proposal(NO_REQUEST, cluster.registration(1)))
    assert cluster.feed(data).epoch == cluster.feed(data).epoch == cluster.broker(1).broker_epoch


def test_two_brokers_on_copies_of_one_disk_are_not_both_let_in() -> None:
    cluster = Cluster(1)
    assert _code(cluster.register(2, directory=1)) is ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize("number", [-1, 2**31])
def test_an_id_that_is_no_int32_from_0_is_refused(number: int) -> None:
    cluster = Cluster()
    outcome = cluster.register(number, directory=5)
    assert _code(outcome) is ErrorCode.INVALID_REGISTRATION


def test_a_broker_that_is_too_old_for_the_feature_level_is_refused() -> None:
    cluster = Cluster()
    assert _code(cluster.register(1, level=0)) is ErrorCode.UNSUPPORTED_VERSION


def test_rule_8_a_new_life_is_fenced_and_in_no_in_sync_set() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), (2, 3, 1), configs=MIN_2)
    before = cluster.partition(0)
    version = cluster.image.version
    # It crashed and was back before anybody noticed.
    cluster.register(1)
    assert cluster.image.version == version + 1
    assert cluster.broker(1).is_fenced
    after = cluster.partition(0)
    assert (after.leader, after.isr) == (2, (2, 3))
    assert after.leader_epoch == before.leader_epoch + 1
    assert cluster.partition(1).isr == (2, 3)


def test_rule_8_the_leadership_of_a_sole_replica_does_not_span_its_lives() -> None:
    cluster = Cluster(1)
    cluster.create((1,))
    before = cluster.partition()
    cluster.start(1)
    after = cluster.partition()
    assert after.leader == before.leader == 1
    assert after.leader_epoch > before.leader_epoch


# ── Who keeps its claim (rule 8) ──────────────────────────────────────────────────────────────


def _eligible_after(**fields: object) -> tuple[int, ...]:
    """Return who is eligible of two replicas in the page cache, after 1 has started again."""
    cluster = Cluster(2)
    cluster.create((1, 2), configs=PAGECACHE)
    cluster.fence(2, 1)
    assert cluster.partition().elr == (1, 2)
    if fields.pop("is_clean", False):
        fields["previous"] = cluster.broker(1).broker_epoch
    cluster.register(1, **fields)
    return cluster.partition().elr


def test_rule_8_a_power_cut_ends_the_claim_to_what_was_in_the_page_cache() -> None:
    assert _eligible_after(boot=2) == (2,)


def test_rule_8_the_claim_survives_a_crash_of_the_process_alone() -> None:
    assert _eligible_after(boot=1) == (1, 2)


def test_rules_8_and_50_the_claim_survives_a_clean_shutdown() -> None:
    assert _eligible_after(boot=2, is_clean=True) == (1, 2)


def test_rules_8_and_50_a_marker_of_another_life_proves_nothing() -> None:
    assert _eligible_after(boot=2, previous=1) == (2,)


def test_rules_8_and_54_another_disk_ends_every_claim() -> None:
    assert _eligible_after(directory=9, is_clean=True) == (2,)


def test_rule_8_what_was_synced_survives_a_power_cut_of_all_nodes_at_once() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs=MIN_2)
    cluster.fence(1, 2, 3)
    for number in (3, 2, 1):
        cluster.register(number, boot=2)
    assert cluster.partition().elr == (2, 3)
    for number in (1, 3):
        cluster.unfence(number)
    assert cluster.partition().leader == 3


def test_rule_8_all_crash_at_once_before_anybody_was_fenced_and_nothing_is_lost() -> None:
    cluster = Cluster(3)
    cluster.create((1, 2, 3), configs=MIN_2)
    for number in (1, 2, 3):
        cluster.register(number)
    for number in (1, 2, 3):
        cluster.unfence(number)
    assert cluster.partition().leader is not None


def test_rule_8_a_sole_replica_is_always_electable_on_its_own_disk() -> None:
    cluster = Cluster(1)
    cluster.create((1,), configs=PAGECACHE)
    cluster.register(1, boot=2)
    cluster.unfence(1, {topic_id(1): (0,)})
    assert cluster.partition().leader == 1
    cluster.start(1, directory=9)
    assert cluster.partition().leader is None


def test_rule_8_damage_takes_the_claim_back_before_anybody_is_elected() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), (1, 2), configs=MIN_2)
    cluster.fence(2, 1)
    cluster.register(1)
    cluster.unfence(1, {topic_id(1): (1, 99), topic_id(50): (0,)})
    assert cluster.partition(0).leader == 1
    damaged = cluster.partition(1)
    assert (damaged.leader, damaged.elr) == (None, (2,))
    cluster.start(2)
    assert cluster.partition(1).leader == 2


def test_rule_8_damage_can_be_reported_in_pieces_before_the_unfencing() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), (1, 2), configs=MIN_2)
    cluster.fence(2, 1)
    cluster.register(1)
    epoch = cluster.broker(1).broker_epoch
    cluster.ok(ReportDamage(BrokerId(1), epoch, {topic_id(1): (0,)}))
    assert (cluster.partition(0).elr, cluster.partition(1).elr) == ((2,), (1, 2))
    cluster.unfence(1)
    assert [one.leader for one in cluster.image.topics["t"].partitions] == [None, 1]


# ── Durable or not is the controller's knowledge (rule 8) ─────────────────────────────────────


def test_rule_8_a_change_to_the_page_cache_ends_durability_in_the_same_command() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=MIN_2)
    before = cluster.partition()
    assert before.is_durable
    cluster.configure(ottla__durability="pagecache")
    after = cluster.partition()
    assert not after.is_durable
    assert after.partition_epoch == before.partition_epoch + 1


def test_rule_8_durability_is_back_only_by_the_leaders_word() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=PAGECACHE)
    assert not cluster.partition().is_durable
    # While the topic counts what is in the page cache, the word means nothing.
    assert cluster.alter_one(1, cluster.change([1, 2], is_synced=True)) is None
    assert not cluster.partition().is_durable
    cluster.configure(ottla__durability="fsync")
    assert not cluster.partition().is_durable
    assert cluster.alter_one(1, cluster.change([1, 2])) is None
    assert not cluster.partition().is_durable
    assert cluster.alter_one(1, cluster.change([1, 2], is_synced=True)) is None
    assert cluster.partition().is_durable


def test_rule_8_a_word_that_was_given_before_another_change_does_not_count() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=PAGECACHE)
    cluster.configure(ottla__durability="fsync")
    word = cluster.change([1, 2], is_synced=True)
    cluster.configure(ottla__durability="pagecache")
    cluster.configure(ottla__durability="fsync")
    assert cluster.alter_one(1, word) is ErrorCode.INVALID_UPDATE_VERSION
    assert not cluster.partition().is_durable


def test_rule_8_the_leaders_word_does_not_reach_who_is_eligible_and_away() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=PAGECACHE)
    cluster.fence(2)
    cluster.configure(ottla__durability="fsync")
    assert cluster.partition().elr == (2,)
    assert cluster.alter_one(1, cluster.change([1], is_synced=True)) is None
    assert not cluster.partition().is_durable
    # So the power cut that takes the end of its log takes its claim as well.
    cluster.register(2, boot=2)
    assert cluster.partition().elr == ()


def test_rule_8_durability_follows_the_defaults_where_a_topic_sets_nothing() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2))
    cluster.configure(ALL_BROKERS, "broker", ottla__durability="pagecache")
    assert not cluster.partition().is_durable

    cluster = Cluster(2)
    cluster.create((1, 2))
    cluster.take_office(2, ClusterDefaults(is_fsync=False))
    assert not cluster.partition().is_durable


# ── Fencing, unfencing, leaving ───────────────────────────────────────────────────────────────


def test_rule_9_a_broker_that_has_not_seen_its_own_registration_stays_fenced() -> None:
    cluster = Cluster()
    cluster.register(1)
    epoch = cluster.broker(1).broker_epoch
    behind = UnfenceBroker(BrokerId(1), epoch, epoch - 1, {})
    assert cluster.refusal(behind) is ErrorCode.INVALID_REQUEST
    assert cluster.broker(1).is_fenced
    cluster.ok(replace(behind, applied_version=epoch))
    assert not cluster.broker(1).is_fenced


def test_rule_10_fencing_is_one_command_however_much_the_broker_leads() -> None:
    cluster = Cluster(3)
    cluster.create(*[(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 50, configs=MIN_2)
    version = cluster.image.version
    cluster.fence(1)
    assert cluster.image.version == version + 1
    partitions = cluster.image.topics["t"].partitions
    assert all(1 not in one.isr and one.leader in (2, 3) for one in partitions)
    assert all(len(one.isr) == 2 for one in partitions)


def test_rule_11a_a_command_about_an_earlier_life_does_nothing() -> None:
    cluster = Cluster(1)
    old = cluster.broker(1).broker_epoch
    cluster.start(1)
    for command in (
        FenceBroker(BrokerId(1), old),
        UnfenceBroker(BrokerId(1), old, 999, {}),
        BeginShutdown(BrokerId(1), old),
        ReportDamage(BrokerId(1), old, {}),
        ForgetBroker(BrokerId(1), old),
    ):
        assert cluster.refusal(command) is ErrorCode.STALE_BROKER_EPOCH
    assert not cluster.broker(1).is_fenced
    stranger = FenceBroker(BrokerId(9), old)
    assert cluster.refusal(stranger) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_fencing_twice_is_fencing_once() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2))
    cluster.fence(1)
    before = cluster.image.topics
    cluster.fence(1)
    assert cluster.image.topics is before


def test_rule_12_a_broker_that_shuts_down_leads_nothing_and_joins_nothing() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), (2, 1), configs=MIN_2)
    outcome = cluster.shut_down(1)
    assert outcome.epoch == cluster.broker(1).shutdown_version == cluster.image.version
    assert not cluster.broker(1).is_fenced
    assert [one.leader for one in cluster.image.topics["t"].partitions] == [2, 2]
    assert all(1 not in one.isr for one in cluster.image.topics["t"].partitions)
    assert cluster.alter_one(2, cluster.change([1, 2])) is ErrorCode.INELIGIBLE_REPLICA
    # Asked again, it is the same shutdown.
    assert cluster.shut_down(1).epoch == outcome.epoch


def test_rule_12_the_next_life_may_serve_again() -> None:
    cluster = Cluster(2)
    cluster.create((1, 2), configs=MIN_2)
    cluster.shut_down(1)
    cluster.start(1, previous=cluster.broker(1).broker_epoch)
    assert cluster.broker(1).is_active
    assert cluster.alter_one(2, cluster.change([1, 2])) is None


def test_a_topic_is_placed_on_brokers_that_are_up_while_there_are_enough() -> None:
    cluster = Cluster(4)
    cluster.fence(4)
    cluster.create((1, 2, 4), name="told")
    assert cluster.partition(topic="told").isr == (1, 2)


def test_a_topic_whose_brokers_are_all_down_is_refused() -> None:
    cluster = Cluster(2)
    cluster.fence(2)
    with pytest.raises(AssertionError, match="INVALID_REPLICA_ASSIGNMENT"):
        cluster.create((2,))


def test_a_broker_is_forgotten_only_when_it_is_down_and_holds_nothing() -> None:
    cluster = Cluster(2)
    cluster.create((2,))
    command = ForgetBroker(BrokerId(2), cluster.broker(2).broker_epoch)
    assert cluster.refusal(command) is ErrorCode.INVALID_REQUEST
    cluster.fence(2)
    assert cluster.refusal(command) is ErrorCode.INVALID_REQUEST
    idle = ForgetBroker(BrokerId(1), cluster.broker(1).broker_epoch)
    cluster.fence(1)
    cluster.ok(idle)
    assert set(cluster.image.brokers) == {2}


def test_a_feature_level_needs_brokers_that_know_it_and_never_goes_back() -> None:
    cluster = Cluster(1)
    assert cluster.refusal(SetFeatureLevel(2)) is ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.refusal(SetFeatureLevel(0)) is ErrorCode.INVALID_UPDATE_VERSION
    cluster.ok(SetFeatureLevel(1))
    cluster.start(1, level=7)
    cluster.ok(SetFeatureLevel(2))
    assert cluster.image.feature_level == 2
