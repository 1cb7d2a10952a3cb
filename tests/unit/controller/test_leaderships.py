"""Leaderships that move because a broker asks for it, or has come back; on virtual time."""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.commands import (
    AlterPartitions,
    Command,
    CreateTopic,
    PartitionChange,
    ReportDamage,
)
from ottla.controller.door import BeatAnswer
from ottla.controller.image import PartitionInfo
from ottla.controller.outcome import Outcome
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.controller.sightings import Verdict
from ottla.proto.ids import BrokerId
from tests.unit.controller.controllers import (
    SESSION_MS,
    Broker,
    Controllers,
    keep_beating,
    started,
    told,
)
from tests.unit.controller.metadata import topic_id

Brokers = dict[int, Broker]


async def _ask(stage: Controllers, broker: Broker, command: Command) -> Outcome:
    door = await stage.active()
    answer = await door.forward(broker.request(command), client="", caller=int(broker.number))
    assert isinstance(answer, Outcome)
    assert answer.refusal is None
    assert all(one.refusal is None for one in answer.results)
    return answer


async def _topic(stage: Controllers, broker: Broker, *replicas: int) -> None:
    configs = {"min.insync.replicas": "2"}
    wanted = NewTopic("t", assignments={0: tuple(map(BrokerId, replicas))}, configs=configs)
    await _ask(stage, broker, CreateTopic(wanted, topic_id(1), TopicDefaults(1, 1), 1))


def _partition(stage: Controllers) -> PartitionInfo:
    return stage.image.topics["t"].partitions[0]


async def _join(stage: Controllers, brokers: Brokers, *isr: int) -> None:
    """Have the leader ask for this in-sync set."""
    now = _partition(stage)
    assert now.leader is not None
    pairs = tuple((BrokerId(one), brokers[one].epoch) for one in isr)
    change = PartitionChange(topic_id(1), 0, now.leader_epoch, now.partition_epoch, pairs)
    leader = brokers[now.leader]
    await _ask(stage, leader, AlterPartitions(leader.number, leader.epoch, (change,)))


# ── Fenced by its own wish (rule 48) ──────────────────────────────────────────────────────────


def test_rule_48_what_a_broker_leads_moves_at_once_when_its_disk_fails() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        await _topic(stage, brokers[1], 1, 2, 3)
        await brokers[1].beat(wants_fence=True)
        assert await stage.until(lambda: _partition(stage).leader == 2) < 50
        assert _partition(stage).isr == (2, 3)
        (fenced,) = stage.events("broker_fenced")
        assert fenced["why"] == "it asked for it"

    told(story)


def test_rule_48_a_broker_stays_fenced_for_as_long_as_it_wants() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        await brokers[1].beat(wants_fence=True)
        await stage.until(lambda: stage.broker(1).is_fenced)
        version = stage.image.version
        for _ in range(20):
            assert await brokers[1].beat(wants_fence=True) == BeatAnswer(is_fenced=True)
            await keep_beating(stage, SESSION_MS // 10, brokers[2])
        assert stage.image.version == version
        # And it may go whenever it likes.
        answer = await brokers[1].beat(wants_fence=True, wants_shutdown=True)
        assert answer == BeatAnswer(is_fenced=True, may_exit=True)

    told(story)


def test_rules_17_and_48_the_last_in_sync_stays_eligible_when_its_disk_is_full() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        await _topic(stage, brokers[1], 1, 2)
        for broker in brokers.values():
            await broker.beat(wants_fence=True)
        await stage.until(lambda: _partition(stage).leader is None)
        assert _partition(stage).elr == (1, 2)
        # Somebody makes room, and starts one of them again.
        stage.verdicts[2] = Verdict.OTHER_INCARNATION
        await brokers[2].line.close(is_goodbye=False)
        await Broker(2, await stage.active(), incarnation=7).start()
        assert _partition(stage).leader == 2

    told(story)


# ── Given up for damage (rule 55) ─────────────────────────────────────────────────────────────


def test_rule_55_a_broker_reports_damage_itself_and_goes_on() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        await _topic(stage, brokers[1], 1, 2, 3)
        await _ask(stage, brokers[1], ReportDamage(BrokerId(1), brokers[1].epoch, _DAMAGED))
        assert (_partition(stage).leader, _partition(stage).isr) == (2, (2, 3))
        assert await brokers[1].beat() == BeatAnswer(is_fenced=False)
        # Nor is it the preferred leader, while it is not in sync.
        stage.balance_s = 1
        await keep_beating(stage, 3_000, *brokers.values())
        assert _partition(stage).leader == 2

    told(story)


_DAMAGED = {topic_id(1): (0,)}


# ── Balance ───────────────────────────────────────────────────────────────────────────────────


async def _lose_and_return(stage: Controllers, brokers: Brokers) -> None:
    """Broker 1 is cut off for a session, comes back and is in sync again."""
    await keep_beating(stage, SESSION_MS + 200, brokers[2])
    assert _partition(stage).leader == 2
    await brokers[1].beat()
    await stage.until(lambda: not stage.broker(1).is_fenced)
    await _join(stage, brokers, 1, 2)


def test_a_broker_that_returns_leads_again_within_the_interval_and_not_before() -> None:
    async def story(stage: Controllers) -> None:
        stage.balance_s = 8
        brokers = await started(stage, 1, 2)
        began_ms = stage.now_ms()
        await _topic(stage, brokers[1], 1, 2)
        await _lose_and_return(stage, brokers)
        left_ms = 8_000 - (stage.now_ms() - began_ms)
        await keep_beating(stage, left_ms - 500, *brokers.values())
        assert _partition(stage).leader == 2
        await keep_beating(stage, 1_500, *brokers.values())
        assert _partition(stage).leader == 1
        assert len(stage.events("leaders_balanced")) == 1

    told(story)


def test_an_interval_that_is_made_shorter_counts_at_once() -> None:
    async def story(stage: Controllers) -> None:
        stage.balance_s = 3_600
        brokers = await started(stage, 1, 2)
        await _topic(stage, brokers[1], 1, 2)
        await _lose_and_return(stage, brokers)
        await keep_beating(stage, 10_000, *brokers.values())
        assert _partition(stage).leader == 2
        stage.balance_s = 5
        await keep_beating(stage, 2_000, *brokers.values())
        assert _partition(stage).leader == 1

    told(story)


# ── Shutting down alone in sync (rule 12) ─────────────────────────────────────────────────────


def test_rule_12_the_last_in_sync_may_exit_and_leads_again_after_a_clean_end() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        await _topic(stage, brokers[1], 1, 2)
        await _join(stage, brokers, 1)
        assert (_partition(stage).isr, _partition(stage).elr) == ((1,), (2,))
        # It leaves the claim of 2 behind as well, so that nobody but 1 holds everything.
        await _ask(stage, brokers[2], ReportDamage(BrokerId(2), brokers[2].epoch, _DAMAGED))
        await brokers[1].beat(wants_shutdown=True)
        await stage.until(lambda: _partition(stage).leader is None)
        assert (_partition(stage).isr, _partition(stage).elr) == ((), (1,))
        version = stage.image.version
        await brokers[2].beat(applied=version)
        answer = await brokers[1].beat(wants_shutdown=True, applied=version)
        assert answer == BeatAnswer(is_fenced=False, may_exit=True)
        stage.verdicts[1] = Verdict.REFUSED
        await brokers[1].line.close(is_goodbye=True)
        # The machine was off meanwhile: the marker alone proves that nothing is missing.
        again = Broker(1, brokers[1].door, incarnation=7)
        again.wanted = replace(
            again.wanted, previous_epoch=brokers[1].epoch, boot_id=again.wanted.incarnation
        )
        await again.start()
        assert (_partition(stage).leader, _partition(stage).isr) == (1, (1,))
        assert not _partition(stage).is_recovering

    told(story)
