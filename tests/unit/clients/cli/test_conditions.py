"""What is wrong with a partition, in words."""

from __future__ import annotations

from dataclasses import replace

from ottla.clients.cli.conditions import Standing, problems, told_together

WHOLE = Standing(leader=1, replicas=(1, 2, 3), isr=(1, 2, 3), elr=(), offline=(), min_isr=2)
ABSENT = "(fenced: dead, cut off, or still starting)"


def _codes(standing: Standing) -> list[str]:
    return [one.code for one in problems(standing)]


def _sentence(standing: Standing) -> str:
    return problems(standing)[0].sentence


def test_nothing_is_wrong_with_a_whole_partition() -> None:
    assert problems(WHOLE) == ()


def test_who_is_missing_is_named_with_the_reason() -> None:
    one = replace(WHOLE, isr=(1, 2), offline=(3,))
    assert _sentence(one) == f"not in sync: broker 3 {ABSENT}."
    slow = replace(WHOLE, isr=(1, 2))
    assert _sentence(slow) == "not in sync: broker 3 (behind: it joins when it has caught up)."
    both = replace(WHOLE, isr=(1,), offline=(2,), min_isr=1)
    assert "broker 2 (fenced" in _sentence(both)
    assert "; broker 3 (behind" in _sentence(both)


def test_below_the_minimum_it_says_what_each_acks_gets() -> None:
    standing = replace(WHOLE, isr=(1,), offline=(2, 3), elr=(2, 3))
    assert _codes(standing) == ["under_min_isr", "under_replicated"]
    told = _sentence(standing)
    assert told.startswith("1 in sync, and min.insync.replicas asks for 2: ")
    assert "acks=all are refused" in told
    assert "acks=1 or 0 is taken, and stays invisible to consumers until 2 are in sync" in told
    assert _codes(replace(standing, min_isr=None)) == ["under_replicated"]


def test_without_a_leader_it_says_whom_to_start_and_what_the_last_resort_costs() -> None:
    lost = replace(WHOLE, leader=None, isr=(), elr=(2, 3), offline=(1, 2, 3))
    assert _codes(lost) == ["no_leader"]
    assert "only brokers 2 and 3 are known to have everything" in _sentence(lost)
    assert "Start one of them; " in _sentence(lost)
    assert "may lose records that were acknowledged" in _sentence(lost)
    one = replace(lost, isr=(2,), elr=())
    assert "only broker 2 is known to have everything" in _sentence(one)
    assert "Start it; if its disk is lost" in _sentence(one)


def test_without_a_leader_and_without_anybody_who_could_it_says_so() -> None:
    for elr in ((), None):
        nobody = replace(WHOLE, leader=None, isr=(), elr=elr, offline=(1,))
        assert "no replica is known to have everything" in _sentence(nobody)
        assert "If the disk of one of brokers 1, 2 and 3 was replaced" in _sentence(nobody)


def test_without_a_leader_although_somebody_could_it_is_about_the_controllers() -> None:
    waiting = replace(WHOLE, leader=None, offline=(1,))
    assert "the controllers have not elected one yet" in _sentence(waiting)


def test_the_same_sentence_stands_once_for_all_its_partitions() -> None:
    short = problems(replace(WHOLE, isr=(1, 2), offline=(3,)))
    none = problems(replace(WHOLE, leader=None))
    lines = list(told_together([(0, short), (1, ()), (2, none), (5, short)]))
    assert lines[0].startswith("partitions 0, 5: not in sync: broker 3 ")
    assert lines[1].startswith("partition 2: no leader, so nothing")
    assert len(lines) == 2


def test_a_compacted_partition_says_who_holds_back_its_cleaning() -> None:
    behind = replace(WHOLE, isr=(1, 2), offline=(3,))
    assert [one.code for one in problems(behind)] == ["under_replicated"]
    compacted = replace(behind, is_compacted=True)
    assert [one.code for one in problems(compacted)] == ["under_replicated", "keeps_deletions"]
    assert "when broker 3 is in sync" in problems(compacted)[-1].sentence
    two = replace(compacted, isr=(1,), min_isr=1)
    assert "when brokers 2 and 3 are in sync" in problems(two)[-1].sentence
    assert problems(replace(WHOLE, is_compacted=True)) == ()
