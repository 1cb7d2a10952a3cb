"""The active controller: offices, brokers and proposals, on virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ottla.controller.commands import (
    ForgetBroker,
    ReportDamage,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.door import (
    BeatAnswer,
    Denied,
    DoorClosedError,
    NotActive,
    Registered,
    Unresolved,
)
from ottla.controller.image import ClusterDefaults
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import RequestId, decode_proposal
from ottla.controller.quorum.port import Role
from ottla.controller.sightings import Verdict
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import ZERO_UUID
from tests.unit.controller.cluster import some_id
from tests.unit.controller.controllers import (
    SESSION_MS,
    Broker,
    Controllers,
    keep_beating,
    started,
    told,
)

# ── The office ────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_answered_before_the_office_is_taken() -> None:
    async def story(stage: Controllers) -> None:
        door = stage.controllers[1]
        broker = Broker(1, door)
        assert await door.register(broker.wanted) == NotActive(None)
        assert await broker.beat() == NotActive(None)
        assert await door.propose(b"", client="c") == NotActive(None)
        assert await door.read_version() == NotActive(None)
        assert await door.describe_quorum() == NotActive(None)
        await stage.active()
        assert stage.image.controller_id == 1
        assert door.office_epoch == stage.image.controller_epoch == 1
        assert stage.image.defaults == ClusterDefaults()

    told(story)


def test_those_who_do_not_lead_name_the_one_who_does() -> None:
    async def story(stage: Controllers) -> None:
        door = await stage.active()
        others = [one for one in stage.controllers.values() if one is not door]
        assert len(others) == 2
        for other in others:
            assert await Broker(1, other).beat() == NotActive(door.node_id)
            assert await other.register(Broker(1, other).wanted) == NotActive(door.node_id)

    told(story, 3)


def test_rule_11_a_new_controller_probes_every_unfenced_broker_at_once() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 7, 8, 9)
        stage.verdicts[8] = Verdict.REFUSED
        first = await stage.active()
        await brokers[9].line.close(is_goodbye=True)
        stage.probed.clear()
        stage.cluster.crash(first.node_id)
        del stage.members[first.node_id]
        await first.stop()
        second = await stage.active()
        assert second is not first
        assert await stage.until(lambda: stage.broker(8).is_fenced) < 100
        assert sorted(stage.probed) == [(7, None), (8, None), (9, None)]
        assert [stage.broker(number).is_fenced for number in (7, 9)] == [False, False]
        assert stage.image.controller_id == second.node_id

    told(story, 3)


def test_a_leader_that_is_cut_off_lets_everybody_go_and_answers_no_heartbeat() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        door = await stage.active()
        proposed = asyncio.ensure_future(
            door.forward(brokers[1].request(TakeProducerIds(1)), client="c", caller=1)
        )
        stage.cluster.cut_off(door.node_id)
        await asyncio.sleep(0.005)
        assert isinstance(await brokers[1].beat(), BeatAnswer)
        answer = await proposed
        assert isinstance(answer, Unresolved), answer
        assert not door.is_active
        assert await brokers[1].beat() == NotActive(None)
        assert await door.read_version() == NotActive(None)

    told(story, 3)


def test_rule_13_a_member_whose_thread_hangs_is_not_active() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        member = stage.members[1]
        member.stuck = member.status()
        assert isinstance(await brokers[1].beat(), BeatAnswer)
        await asyncio.sleep(1.1)
        assert await brokers[1].beat() == NotActive(None)
        member.stuck = None
        assert isinstance(await brokers[1].beat(), BeatAnswer)

    told(story)


def test_a_member_that_has_just_stopped_to_lead_is_not_active_though_nobody_said_so() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        member = stage.members[1]
        for change in ({"role": Role.FOLLOWER}, {"term": member.status().term + 1}):
            member.stuck = replace(member.status(), **change)
            assert isinstance(await brokers[1].beat(), NotActive)
            member.stuck = None
            assert isinstance(await brokers[1].beat(), BeatAnswer)

    told(story)


def test_a_registration_that_waits_for_a_probe_is_let_go_when_the_office_ends() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        door = await stage.active()
        await brokers[1].line.close(is_goodbye=False)
        asked = asyncio.ensure_future(door.register(Broker(1, door, incarnation=7).wanted))
        await asyncio.sleep(0)
        await door.stop()
        assert await asked == NotActive(None)

    told(story)


def test_whoever_takes_office_twice_in_one_term_begins_anew() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        door = await stage.active()
        command = TakeOffice(BrokerId(3), stage.image.controller_epoch, ClusterDefaults())
        # Another controller's, so it is fed behind the back of this one.
        stage.cluster.append(brokers[1].request(command))
        await stage.until(lambda: stage.image.controller_epoch > 1)
        await stage.until(lambda: door.is_active)
        assert stage.image.controller_id == 1
        assert [one["epoch"] for one in stage.events("controller_elected")] == [1, 5]
        assert isinstance(await brokers[1].beat(), BeatAnswer)

    told(story)


# ── Registration ──────────────────────────────────────────────────────────────────────────────


def test_rule_2_whoever_asks_twice_with_one_incarnation_is_registered_once() -> None:
    async def story(stage: Controllers) -> None:
        broker = Broker(1, await stage.active())
        epochs = await asyncio.gather(broker.register(), broker.register())
        assert epochs[0] == epochs[1] == stage.broker(1).broker_epoch
        assert await broker.register() == epochs[0]
        assert stage.broker(1).is_fenced

    told(story)


def test_rule_7_a_broker_of_another_cluster_is_turned_away_with_both_names() -> None:
    async def story(stage: Controllers) -> None:
        door = await stage.active()
        answer = await door.register(replace(Broker(1, door).wanted, cluster_id="elsewhere"))
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "'elsewhere'" in answer.sentence
        assert "'test'" in answer.sentence
        assert 1 not in stage.image.brokers

    told(story)


def test_a_registration_that_contradicts_itself_is_refused_by_what_is_committed() -> None:
    async def story(stage: Controllers) -> None:
        door = await stage.active()
        wanted = Broker(1, door).wanted
        answer = await door.register(replace(wanted, directory_id=ZERO_UUID))
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INVALID_REGISTRATION
        answer = await door.register(replace(wanted, host="h" * 40_000))
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INVALID_REQUEST
        assert [one["broker"] for one in stage.events("registration_refused")] == [1, 1]

    told(story)


def test_rule_7_the_id_of_a_live_broker_is_refused_to_others() -> None:
    async def story(stage: Controllers) -> None:
        await started(stage, 1)
        door = await stage.active()
        answer = await door.register(Broker(1, door, incarnation=7).wanted)
        assert answer == Denied(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another process is this broker."
        )
        assert not stage.probed

    told(story)


@pytest.mark.parametrize("verdict", [Verdict.OTHER_INCARNATION, Verdict.REFUSED])
def test_rule_7_a_supervisor_that_restarts_a_dead_broker_need_not_wait(verdict: Verdict) -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        door = await stage.active()
        stage.verdicts[1] = verdict
        await brokers[1].line.close(is_goodbye=False)
        start_ms = stage.now_ms()
        assert await Broker(1, door, incarnation=7).register() > brokers[1].epoch
        assert stage.now_ms() - start_ms < 100
        assert stage.broker(1).incarnation == some_id(7)

    told(story)


def test_rule_11a_a_broker_that_may_be_alive_keeps_its_id_for_a_session() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        door = await stage.active()
        stage.verdicts[1] = Verdict.SILENCE
        await brokers[1].line.close(is_goodbye=False)
        new = Broker(1, door, incarnation=7)
        answer = await door.register(new.wanted)
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await keep_beating(stage, SESSION_MS, brokers[2], brokers[3])
        assert isinstance(await door.register(new.wanted), Registered)

    told(story)


def test_a_registration_that_waits_is_answered_though_the_old_life_vanishes_meanwhile() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        door = await stage.active()
        await brokers[1].beat(wants_fence=True)
        await stage.until(lambda: stage.broker(1).is_fenced)
        stage.probe_s = 1
        await brokers[1].line.close(is_goodbye=False)
        new = Broker(1, door, incarnation=7)
        asked = asyncio.ensure_future(door.register(new.wanted))
        await asyncio.sleep(0.1)
        forget = brokers[2].request(ForgetBroker(BrokerId(1), brokers[1].epoch))
        assert isinstance(await door.forward(forget, client="c", caller=2), Outcome)
        answer = await asked
        assert isinstance(answer, Denied)
        assert answer.sentence.endswith("try again.")
        assert await new.register() > brokers[1].epoch

    told(story)


@pytest.mark.parametrize("trouble", [OSError("no more files"), TimeoutError(), None])
def test_rule_11a_a_probe_that_fails_or_does_not_end_is_silence(trouble: OSError | None) -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        stage.probe_s, stage.probe_fails = 60, trouble
        await brokers[2].line.close(is_goodbye=False)
        await stage.until(lambda: bool(stage.events("broker_probed")))
        assert stage.events("broker_probed") == [{"broker": 2, "found": "silence"}]

    told(story)


# ── Heartbeats ────────────────────────────────────────────────────────────────────────────────


def test_rule_9_a_broker_that_has_read_its_logs_is_unfenced() -> None:
    async def story(stage: Controllers) -> None:
        broker = Broker(1, await stage.active())
        await broker.register()
        assert await broker.beat(is_recovered=False) == BeatAnswer(is_fenced=True)
        assert await broker.beat(applied=broker.epoch - 1) == BeatAnswer(is_fenced=True)
        await asyncio.sleep(0.1)
        assert stage.broker(1).is_fenced
        await broker.beat()
        assert await stage.until(lambda: not stage.broker(1).is_fenced) < 50
        assert await broker.beat() == BeatAnswer(is_fenced=False)
        assert await replaced(broker, epoch=1).beat() == BeatAnswer(ErrorCode.STALE_BROKER_EPOCH)
        unknown = Broker(5, broker.door)
        assert await unknown.beat() == BeatAnswer(ErrorCode.BROKER_ID_NOT_REGISTERED)

    told(story)


def replaced(broker: Broker, *, epoch: int) -> Broker:
    other = Broker(broker.number, broker.door)
    other.epoch = epoch
    return other


def test_rule_8_a_long_list_of_damage_is_reported_before_the_unfencing() -> None:
    async def story(stage: Controllers) -> None:
        broker = Broker(1, await stage.active())
        await broker.register()
        damaged = {some_id(900 + n): tuple(range(0, 4000, 2)) for n in range(2)}
        stage.members[1].asked.clear()
        await broker.beat(damaged=damaged)
        await broker.beat(damaged=damaged)
        await stage.until(lambda: not stage.broker(1).is_fenced)
        asked = [decode_proposal(data, feature_level=1) for data in stage.members[1].asked]
        kinds = [type(one.command) for one in asked]
        assert kinds == [ReportDamage, ReportDamage, UnfenceBroker]
        assert [one.request for one in asked] == [RequestId(BrokerId(1), 1, n) for n in range(3)]

    told(story)


def test_rule_11a_a_broken_stream_and_a_refused_probe_fence_at_once() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        stage.verdicts[2] = Verdict.REFUSED
        await brokers[2].line.close(is_goodbye=False)
        assert await stage.until(lambda: stage.broker(2).is_fenced) < 50
        assert stage.probed == [(2, None)]
        (fenced,) = stage.events("broker_fenced")
        assert fenced["why"] == "nobody listens at its address"

    told(story)


def test_rule_11a_a_probe_that_met_a_dying_process_is_repeated_at_once() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        stage.verdicts[2] = Verdict.SILENCE
        await brokers[2].line.close(is_goodbye=False)
        assert await stage.until(lambda: bool(stage.events("broker_probed"))) < 50
        stage.verdicts[2] = Verdict.REFUSED
        assert await stage.until(lambda: stage.broker(2).is_fenced) < 100

    told(story)


def test_rule_11a_the_probe_goes_to_where_the_heartbeats_came_from() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        door = await stage.active()
        brokers[2].line = door.open_line("192.0.2.7")
        await brokers[2].beat()
        await brokers[2].line.close(is_goodbye=False)
        await asyncio.sleep(0.1)
        # It is there, and its stream is not: it is looked after again.
        assert set(stage.probed) == {(2, "192.0.2.7")}

    told(story)


def test_rule_10_silence_fences_after_a_whole_session_and_not_before() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        await brokers[2].beat()
        heard_ms = stage.now_ms()
        await keep_beating(stage, SESSION_MS - 100, brokers[1], brokers[3])
        assert not stage.broker(2).is_fenced
        await stage.until(lambda: stage.broker(2).is_fenced)
        assert SESSION_MS <= stage.now_ms() - heard_ms < SESSION_MS + 150
        assert [one["why"] for one in stage.events("broker_fenced")] == [
            "it was silent for a whole session"
        ]

    told(story)


def test_while_the_quorum_is_slow_a_broker_is_fenced_by_one_command() -> None:
    async def story(stage: Controllers) -> None:
        await started(stage, 1)
        member = stage.members[1]
        member.asked.clear()
        member.delay_s = 4
        await stage.until(lambda: stage.broker(1).is_fenced)
        assert len(member.asked) == 1

    told(story)


def test_a_fenced_broker_that_is_alive_is_unfenced_by_its_next_heartbeat() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1)
        await asyncio.sleep(2 * SESSION_MS / 1000)
        assert stage.broker(1).is_fenced
        assert await brokers[1].beat() == BeatAnswer(is_fenced=True)
        assert await stage.until(lambda: not stage.broker(1).is_fenced) < 50

    told(story)


def test_a_later_line_of_one_life_takes_the_place_of_the_earlier() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        earlier, broker.line = broker.line, broker.door.open_line()
        await broker.beat()
        await earlier.close(is_goodbye=False)
        await asyncio.sleep(0.1)
        assert not stage.probed
        broker.line, current = broker.door.open_line(), broker.line
        await broker.beat()
        broker.line = current
        with pytest.raises(DoorClosedError, match="replaced"):
            await broker.beat()

    told(story)


def test_a_line_of_an_earlier_office_that_breaks_is_noticed_in_the_next() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2, 3)
        door = await stage.active()
        door.on_status(replace(stage.members[1].status(), role=Role.FOLLOWER))
        assert not door.is_active
        door.on_status(stage.members[1].status())
        await stage.until(lambda: len(stage.probed) == 3)
        await asyncio.sleep(0.1)
        stage.verdicts[2] = Verdict.REFUSED
        await brokers[2].line.close(is_goodbye=False)
        assert await stage.until(lambda: stage.broker(2).is_fenced) < 50

    told(story)


def test_after_a_goodbye_nobody_probes() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        await broker.line.close(is_goodbye=True)
        await asyncio.sleep(0.5)
        assert not stage.probed
        with pytest.raises(DoorClosedError):
            await broker.beat()

    told(story)


def test_rule_12_a_broker_that_shut_down_may_come_back_at_once() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        answer = await brokers[1].beat(wants_shutdown=True)
        assert answer == BeatAnswer(is_fenced=False)
        await stage.until(lambda: stage.broker(1).shutdown_version is not None)
        assert await brokers[1].beat(wants_shutdown=True) == BeatAnswer(is_fenced=False)
        await brokers[2].beat(applied=stage.image.version)
        answer = await brokers[1].beat(wants_shutdown=True, applied=stage.image.version)
        assert answer == BeatAnswer(is_fenced=False, may_exit=True)
        stage.verdicts[1] = Verdict.REFUSED
        await brokers[1].line.close(is_goodbye=True)
        start_ms = stage.now_ms()
        await Broker(1, brokers[1].door, incarnation=7).start()
        assert stage.now_ms() - start_ms < 150

    told(story)
