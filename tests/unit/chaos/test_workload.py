"""Plans: the same seed gives the same list of things to do, and everything is read by somebody."""

from __future__ import annotations

from itertools import islice, product

import pytest

from ottla.chaos.transactions import Fate, decisions, transactions
from ottla.chaos.workload import (
    TRANSACTORS,
    Churn,
    Client,
    ProcessPlan,
    churns,
    plan_for,
    rewinds,
    rotations,
    sends,
    workload_names,
)
from ottla.proto.errors import ConfigError

NODES = (1, 2, 3)
WRITERS = (Client.RAW_PRODUCER, Client.LIBRDKAFKA_PRODUCER, *TRANSACTORS)
MEMBERS = (Client.RAW_MEMBER, Client.OWN_MEMBER, Client.LIBRDKAFKA_MEMBER)
COMMITTED = (Client.LIBRDKAFKA_COMMITTED_READER, Client.OWN_COMMITTED_READER)
READERS = (Client.RAW_CONSUMER, Client.LIBRDKAFKA_CONSUMER, *MEMBERS, *COMMITTED)


@pytest.mark.parametrize("name", workload_names())
def test_the_same_seed_gives_the_same_plan_and_the_same_draws(name: str) -> None:
    one, again = plan_for(name, 7, NODES), plan_for(name, 7, NODES)
    assert one == again
    for process in one.processes:
        if process.client in WRITERS:
            assert list(islice(sends(process), 50)) == list(islice(sends(process), 50))


def test_another_seed_gives_other_draws() -> None:
    first, second = (plan_for("W1", seed, NODES).processes[0] for seed in (1, 2))
    assert list(islice(sends(first), 50)) != list(islice(sends(second), 50))


def test_no_two_processes_do_the_same() -> None:
    writers = [one for one in plan_for("W1", 1, NODES).processes if one.client in WRITERS]
    lists = {tuple(islice(sends(one), 50)) for one in writers}
    assert len(lists) == len(writers)


@pytest.mark.parametrize("name", workload_names())
def test_every_partition_is_written_and_read(name: str) -> None:
    plan = plan_for(name, 1, NODES)
    places = {place for topic in plan.topics for place in topic.places}
    for clients in (WRITERS, READERS):
        chosen = [one for one in plan.processes if one.client in clients]
        assert {place for one in chosen for place in one.places} == places


@pytest.mark.parametrize("name", workload_names())
def test_names_of_processes_are_never_shared(name: str) -> None:
    names = [one.name for one in plan_for(name, 1, NODES).processes]
    assert len(set(names)) == len(names)


def test_workloads_that_are_joined_have_all_topics_once_and_all_processes() -> None:
    joined = plan_for("W1+W4+W5+WC", 1, NODES)
    alone = [plan_for(name, 1, NODES) for name in ("W1", "W4", "W5", "WC")]
    assert sorted(one.name for one in joined.topics) == ["events", "latest", "orders"]
    assert len(joined.processes) == sum(len(one.processes) for one in alone)
    names = [one.name for one in joined.processes]
    assert len(set(names)) == len(names)


def test_the_usual_load_is_as_the_table_says() -> None:
    plan = plan_for("W1", 1, NODES)
    assert [len(topic.assignments) for topic in plan.topics] == [3, 3]
    assert all(len(nodes) == 3 for topic in plan.topics for nodes in topic.assignments)
    assert {topic.options["min.insync.replicas"] for topic in plan.topics} == {"2"}
    producers = [one for one in plan.processes if one.client is Client.RAW_PRODUCER]
    assert len(producers) == 6
    assert all(one.acks == (-1,) for one in producers)
    assert sum(one.per_s for one in producers) >= 200
    assert {one.is_stubborn for one in producers} == {True, False}
    assert sum(one.client is Client.RAW_CONSUMER for one in plan.processes) == 3


def test_mixed_acks_are_really_mixed() -> None:
    process = plan_for("W2", 1, NODES).processes[0]
    assert {draw.acks for draw in islice(sends(process), 200)} == {-1, 0, 1}


def test_on_five_nodes_three_hold_a_partition_and_each_leads_some() -> None:
    assignments = rotations((1, 2, 3, 4, 5), 6)
    assert all(len(set(nodes)) == 3 for nodes in assignments)
    assert {nodes[0] for nodes in assignments} == {1, 2, 3, 4, 5}


def test_the_compacted_topic_is_cleaned_often() -> None:
    (topic,) = plan_for("WC", 1, NODES).topics
    assert topic.is_compacted
    assert int(topic.options["segment.ms"]) <= 1000


def test_a_consumer_seldom_goes_back() -> None:
    process = plan_for("W1", 1, NODES).processes[-1]
    back = [count for count in islice(rewinds(process), 2000) if count]
    assert 5 < len(back) < 100


def test_every_life_of_a_topic_begins_with_its_creation() -> None:
    (process, _) = plan_for("W5", 1, NODES).processes
    lives = list(islice(churns(process), 100))
    assert all(steps[0] is Churn.CREATE for steps in lives)
    assert any(Churn.CREATE_AGAIN in steps for steps in lives)
    assert any(steps[-1] is not Churn.DELETE for steps in lives)


def test_a_workload_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="'W9'"):
        plan_for("W1+W9", 1, NODES)


def test_the_judge_is_told_who_was_to_write_in_transactions() -> None:
    plan = plan_for("W1+WT", 7, NODES)
    assert set(plan.transactors().values()) == {one.value for one in TRANSACTORS}
    assert plan.transactional_groups() == ("tx1", "tx2", "tp2")
    assert not plan_for("W3", 7, NODES).transactors()
    assert not plan_for("W3", 7, NODES).transactional_groups()


def test_transactions_repeat_themselves_and_are_of_every_kind() -> None:
    plan = plan_for("WT", 7, NODES)
    for process in plan.processes:
        if process.client in TRANSACTORS:
            drawn = list(islice(transactions(process), 400))
            assert drawn == list(islice(transactions(process), 400))
            assert {one.fate for one in drawn} == set(Fate)
            assert all(2 <= len(set(one.places)) <= len(one.places) <= 6 for one in drawn)
            assert {place for one in drawn for place in one.places} == set(process.places)
            assert {one.has_late_end for one in drawn} == {True, False}


def test_who_reads_in_transactions_reads_what_it_writes_too() -> None:
    plan = plan_for("WT", 7, NODES)
    reading = [one for one in plan.processes if one.reads]
    assert all(set(one.reads) <= set(one.places) for one in reading)
    assert plan.groups() == {one.group: one.reads for one in reading}
    assert len(plan.transactors()) == 6
    assert plan.transactional_topics() == {"ledger-a", "ledger-b"}


def test_decisions_about_what_is_prepared_repeat_themselves_and_are_of_every_kind() -> None:
    process = ProcessPlan(name="p", client=Client.OWN_PREPARER, seed="7/p")
    drawn = list(islice(decisions(process), 400))
    assert drawn == list(islice(decisions(process), 400))
    kinds = {(one.is_commit, one.is_by_operator, len(one.waits_s)) for one in drawn}
    assert kinds == set(product((True, False), (True, False), (1, 2, 3)))
    long = [one for one in drawn if sum(one.waits_s) > 4]
    assert 40 < len(long) < 160, "some wait for long, and most do not"
    assert max(sum(one.waits_s) for one in drawn) < 11


def test_who_prepares_is_left_out_and_named_where_nothing_waits_for_a_decision() -> None:
    whole, least = plan_for("WT", 7, NODES), plan_for("WT", 7, NODES, can_prepare=False)
    preparers = [one for one in whole.processes if one.client is Client.OWN_PREPARER]
    assert [one.name for one in preparers] == ["tp1", "tp2"]
    assert {bool(one.reads) for one in preparers} == {True, False}
    assert (whole.left_out, least.left_out) == ((), ("tp1", "tp2"))
    assert list(least.processes) == [one for one in whole.processes if one not in preparers]
    assert "tp2" not in least.groups()
    assert plan_for("W1", 7, NODES, can_prepare=False).left_out == ()
