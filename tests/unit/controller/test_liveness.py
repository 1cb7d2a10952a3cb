"""Sessions, probes and fencing on the controller's clock: rules 7 and 9 to 12."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.image import BrokerInfo
from ottla.controller.liveness import AGAIN_MIN_MS, GATHER_MS, RETRY_MS, Liveness
from ottla.controller.sightings import (
    AcceptRegistration,
    AnswerHeartbeat,
    BrokersChanged,
    Effect,
    HeartbeatCame,
    Probe,
    ProbeAnswered,
    ProposeFence,
    ProposeShutdown,
    ProposeUnfence,
    RefuseRegistration,
    RegistrationAsked,
    StreamBroke,
    TimePassed,
    TookOffice,
    Verdict,
)
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.cluster import some_id

SESSION_MS = 2000
ONE, TWO, THREE, NINE = map(BrokerId, (1, 2, 3, 9))


def _broker(number: int, **fields: object) -> BrokerInfo:
    made = BrokerInfo(
        BrokerId(number), "h", 9092, broker_epoch=10 + number, incarnation=some_id(100 + number)
    )
    return replace(made, **fields)  # type: ignore[arg-type]


class Stage:
    """A controller in office over some brokers, and its clock."""

    def __init__(
        self,
        *brokers: BrokerInfo,
        now_ms: int = 1000,
        last_heard: tuple[BrokerId, int] | None = None,
    ) -> None:
        self.core = Liveness(session_ms=SESSION_MS)
        self.now_ms = now_ms
        self.brokers = {one.broker_id: one for one in brokers}
        self.first = self.core.step(
            TookOffice(brokers=self.brokers, now_ms=now_ms, last_heard=last_heard)
        )

    def settle_probes(self) -> None:
        """Have all the probes of the first moment find what they should."""
        for number in self.brokers:
            self.probed(number, Verdict.SAME_INCARNATION)

    def beat(self, number: int, **fields: object) -> list[Effect]:
        epoch = self.brokers[BrokerId(number)].broker_epoch
        told = {"broker_epoch": epoch, "applied_version": 999, "is_recovered": True, **fields}
        event = HeartbeatCame(broker_id=BrokerId(number), now_ms=self.now_ms, **told)  # type: ignore[arg-type]
        return self.core.step(event)

    def broke(self, number: int) -> list[Effect]:
        epoch = self.brokers[BrokerId(number)].broker_epoch
        return self.core.step(
            StreamBroke(broker_id=BrokerId(number), broker_epoch=epoch, now_ms=self.now_ms)
        )

    def probed(self, number: int, verdict: Verdict, *, epoch: int | None = None) -> list[Effect]:
        known = self.brokers[BrokerId(number)].broker_epoch if epoch is None else epoch
        return self.core.step(
            ProbeAnswered(
                broker_id=BrokerId(number), broker_epoch=known, verdict=verdict, now_ms=self.now_ms
            )
        )

    def asks(self, number: int, incarnation: int) -> list[Effect]:
        return self.core.step(
            RegistrationAsked(
                broker_id=BrokerId(number), incarnation=some_id(incarnation), now_ms=self.now_ms
            )
        )

    def changed(self, number: int, **fields: object) -> None:
        key = BrokerId(number)
        self.brokers = {**self.brokers, key: replace(self.brokers[key], **fields)}  # type: ignore[arg-type]
        self.core.step(BrokersChanged(brokers=self.brokers, now_ms=self.now_ms))

    def wait(self, ms: int, *, beating: Iterable[int] = ()) -> list[Effect]:
        """Let time pass in ticks, while some brokers send heartbeats; return the proposals."""
        found: list[Effect] = []
        end = self.now_ms + ms
        while self.now_ms < end:
            self.now_ms = min(end, self.now_ms + self.core.tick_ms)
            for number in beating:
                found += [one for one in self.beat(number) if not isinstance(one, AnswerHeartbeat)]
            found += self.core.step(TimePassed(now_ms=self.now_ms))
        return found


def _fenced(effects: list[Effect]) -> list[int]:
    return [one.broker_id for one in effects if isinstance(one, ProposeFence)]


@pytest.fixture
def stage() -> Stage:
    made = Stage(_broker(1), _broker(2), _broker(3))
    made.settle_probes()
    for number in (1, 2, 3):
        made.beat(number)
    return made


# ── Taking office, silence ────────────────────────────────────────────────────────────────────


def test_rule_11_a_new_controller_probes_every_unfenced_broker_at_once() -> None:
    stage = Stage(_broker(1), _broker(2, is_fenced=True), _broker(3))
    assert stage.first == [Probe(ONE, 11, some_id(101)), Probe(THREE, 13, some_id(103))]


def test_rule_11_with_a_new_controller_every_session_starts_full() -> None:
    stage = Stage(_broker(1), now_ms=50_000)
    assert stage.wait(SESSION_MS - 1) == []
    assert _fenced(stage.wait(1)) == [1]


def test_the_silence_of_the_leader_before_counts_from_when_this_voter_heard_it_last() -> None:
    # It fell silent, 900 ms went by before the election was won, and everybody else is there.
    stage = Stage(_broker(1), _broker(2), now_ms=50_000, last_heard=(ONE, 49_100))
    assert stage.wait(SESSION_MS - 900 - 1, beating=[2]) == []
    assert _fenced(stage.wait(1, beating=[2])) == [1]


def test_a_leader_before_that_speaks_again_has_a_full_session() -> None:
    stage = Stage(_broker(1), now_ms=50_000, last_heard=(ONE, 49_100))
    stage.beat(1)
    assert stage.wait(SESSION_MS - 1) == []
    assert _fenced(stage.wait(1)) == [1]


def test_a_voter_that_slept_itself_gives_the_leader_before_half_a_session() -> None:
    stage = Stage(_broker(1), now_ms=50_000, last_heard=(ONE, 20_000))
    assert stage.wait(SESSION_MS // 2 - 1) == []
    assert _fenced(stage.wait(1)) == [1]


@pytest.mark.parametrize("last_heard", [(NINE, 49_900), (ONE, 60_000)])
def test_who_is_no_broker_or_was_heard_just_now_changes_no_session(
    last_heard: tuple[BrokerId, int],
) -> None:
    stage = Stage(_broker(1), now_ms=50_000, last_heard=last_heard)
    assert stage.wait(SESSION_MS - 1) == []
    assert _fenced(stage.wait(1)) == [1]


def test_rule_11_an_office_that_is_taken_again_remembers_nothing_of_the_last() -> None:
    stage = Stage(_broker(1))
    stage.wait(SESSION_MS - 1)
    stage.core.step(TookOffice(brokers=stage.brokers, now_ms=stage.now_ms))
    assert stage.wait(SESSION_MS - 1) == []


def test_rule_10_silence_fences_after_the_session_and_not_before(stage: Stage) -> None:
    assert stage.wait(SESSION_MS - 1, beating=[1, 2]) == []
    assert _fenced(stage.wait(1, beating=[1, 2])) == [3]


def test_what_is_proposed_is_not_proposed_again_at_every_tick(stage: Stage) -> None:
    assert _fenced(stage.wait(SESSION_MS, beating=[1, 2])) == [3]
    assert stage.wait(RETRY_MS - 1, beating=[1, 2]) == []
    # Nobody said that it happened, so it is tried again.
    assert _fenced(stage.wait(1, beating=[1, 2])) == [3]
    stage.changed(3, is_fenced=True)
    assert stage.wait(5 * SESSION_MS, beating=[1, 2]) == []


def test_a_controller_that_slept_gives_everybody_the_time_it_slept(stage: Stage) -> None:
    stage.now_ms += 10 * SESSION_MS
    assert stage.core.step(TimePassed(now_ms=stage.now_ms)) == []
    assert stage.wait(SESSION_MS - 1) == []
    assert _fenced(stage.wait(1)) == [1, 2, 3]


# ── Broken streams and probes (rule 11a) ──────────────────────────────────────────────────────


def test_rule_11a_a_refused_probe_after_a_broken_stream_fences_at_once(stage: Stage) -> None:
    assert stage.broke(2) == [Probe(TWO, 12, some_id(102))]
    (fence,) = stage.probed(2, Verdict.REFUSED)
    assert fence == ProposeFence(TWO, 12, "nobody listens at its address")


def test_rule_11a_a_probe_that_finds_another_incarnation_fences_at_once(stage: Stage) -> None:
    stage.broke(2)
    assert _fenced(stage.probed(2, Verdict.OTHER_INCARNATION)) == [2]


@pytest.mark.parametrize("verdict", [Verdict.SAME_INCARNATION, Verdict.SILENCE])
def test_rule_11a_anything_else_waits_for_the_session(stage: Stage, verdict: Verdict) -> None:
    stage.broke(2)
    assert stage.probed(2, verdict) == []
    assert _fenced(stage.wait(SESSION_MS - 1, beating=[1, 3])) == []
    assert _fenced(stage.wait(1, beating=[1, 3])) == [2]


def test_rule_11a_a_stream_or_a_probe_of_an_earlier_life_means_nothing(stage: Stage) -> None:
    stage.changed(2, broker_epoch=50, incarnation=some_id(200))
    event = StreamBroke(broker_id=TWO, broker_epoch=12, now_ms=stage.now_ms)
    assert stage.core.step(event) == []
    assert stage.probed(2, Verdict.REFUSED, epoch=12) == []


def test_rule_11a_one_probe_is_under_way_at_a_time(stage: Stage) -> None:
    assert len(stage.broke(2)) == 1
    assert stage.broke(2) == []


def test_rule_11a_a_heartbeat_after_the_probe_was_sent_outweighs_it(stage: Stage) -> None:
    stage.broke(2)
    stage.now_ms += 1
    stage.beat(2)
    assert stage.probed(2, Verdict.REFUSED) == []


def test_rule_11a_more_than_half_refused_is_our_own_trouble() -> None:
    stage = Stage(*map(_broker, range(1, 6)))
    stage.probed(1, Verdict.SAME_INCARNATION)
    stage.probed(2, Verdict.SAME_INCARNATION)
    assert stage.probed(3, Verdict.REFUSED) == []
    assert stage.probed(4, Verdict.REFUSED) == []
    assert stage.probed(5, Verdict.REFUSED) == []
    assert stage.wait(SESSION_MS - 1, beating=[1, 2]) == []
    # Silence, which it may be as well, has its own time.
    assert _fenced(stage.wait(1, beating=[1, 2])) == [3, 4, 5]


def test_rule_11a_up_to_half_are_fenced_once_all_probes_are_answered() -> None:
    stage = Stage(*map(_broker, range(1, 6)))
    assert stage.probed(4, Verdict.REFUSED) == []
    assert stage.probed(5, Verdict.REFUSED) == []
    stage.probed(1, Verdict.SAME_INCARNATION)
    stage.probed(2, Verdict.SAME_INCARNATION)
    assert _fenced(stage.probed(3, Verdict.SAME_INCARNATION)) == [4, 5]


def test_rule_11a_a_probe_that_takes_long_does_not_hold_the_others_up() -> None:
    stage = Stage(*map(_broker, range(1, 4)))
    assert stage.probed(3, Verdict.REFUSED) == []
    assert _fenced(stage.wait(GATHER_MS)) == [3]


def test_rule_11a_who_was_refused_a_moment_ago_still_counts(stage: Stage) -> None:
    stage.broke(1)
    assert _fenced(stage.probed(1, Verdict.REFUSED)) == [1]
    stage.changed(1, is_fenced=True)
    stage.now_ms += 10
    stage.broke(2)
    assert stage.probed(2, Verdict.REFUSED) == []
    # After a session it is another story.
    stage.wait(SESSION_MS - 20, beating=[2, 3])
    stage.now_ms += 20
    stage.broke(2)
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]


def test_rule_11a_one_broker_alone_is_never_fenced_by_a_probe() -> None:
    stage = Stage(_broker(1))
    assert stage.probed(1, Verdict.REFUSED) == []


# ── Heartbeats ────────────────────────────────────────────────────────────────────────────────


def test_rule_10_a_heartbeat_of_an_earlier_life_is_refused(stage: Stage) -> None:
    assert stage.beat(2, broker_epoch=11) == [AnswerHeartbeat(TWO, ErrorCode.STALE_BROKER_EPOCH)]
    # And does not keep the session alive.
    stage.wait(SESSION_MS - 1, beating=[1, 3])
    stage.beat(2, broker_epoch=11)
    assert _fenced(stage.wait(1, beating=[1, 3])) == [2]


def test_a_heartbeat_of_a_stranger_is_refused(stage: Stage) -> None:
    stage.brokers[NINE] = _broker(9)
    core = Stage(_broker(1)).core
    event = HeartbeatCame(
        broker_id=NINE, broker_epoch=1, applied_version=1, is_recovered=True, now_ms=1
    )
    assert core.step(event) == [AnswerHeartbeat(NINE, ErrorCode.BROKER_ID_NOT_REGISTERED)]


@pytest.mark.parametrize(
    ("fields", "is_unfenced"),
    [
        ({"applied_version": 12}, True),
        ({"applied_version": 11}, False),
        ({"is_recovered": False}, False),
        ({"wants_fence": True}, False),
        ({"wants_shutdown": True}, False),
    ],
    ids=str,
)
def test_rule_9_who_is_unfenced_follows_the_metadata_and_has_read_its_logs(
    fields: dict[str, object], is_unfenced: bool
) -> None:
    stage = Stage(_broker(1), _broker(2, is_fenced=True))
    effects = stage.beat(2, **fields)
    assert any(isinstance(one, ProposeUnfence) for one in effects) == is_unfenced


def test_rule_8_what_is_damaged_is_told_with_the_unfencing() -> None:
    stage = Stage(_broker(1, is_fenced=True))
    damaged = {some_id(5): (1, 2)}
    answer, unfence = stage.beat(1, damaged=damaged, applied_version=30)
    assert unfence == ProposeUnfence(ONE, 11, 30, damaged)
    assert answer == AnswerHeartbeat(ONE, is_fenced=True)


def test_rule_10_a_broker_can_ask_to_be_fenced(stage: Stage) -> None:
    assert _fenced(stage.beat(2, wants_fence=True)) == [2]


def test_rule_11a_a_live_broker_that_was_fenced_is_unfenced_by_its_next_heartbeat(
    stage: Stage,
) -> None:
    stage.broke(2)
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]
    stage.changed(2, is_fenced=True)
    stage.now_ms += 1
    assert any(isinstance(one, ProposeUnfence) for one in stage.beat(2))


# ── Controlled shutdown (rule 12) ─────────────────────────────────────────────────────────────


def test_rule_12_a_broker_exits_when_everybody_knows_that_it_leads_nothing(stage: Stage) -> None:
    answer, shutdown = stage.beat(2, wants_shutdown=True)
    assert shutdown == ProposeShutdown(TWO, 12)
    assert answer == AnswerHeartbeat(TWO, is_fenced=False, may_exit=False)
    stage.changed(2, shutdown_version=2000)
    stage.beat(1, applied_version=2000)
    (answer,) = stage.beat(2, wants_shutdown=True)
    assert answer == AnswerHeartbeat(TWO, is_fenced=False, may_exit=False)
    stage.beat(3, applied_version=2001)
    (answer,) = stage.beat(2, wants_shutdown=True)
    assert answer == AnswerHeartbeat(TWO, is_fenced=False, may_exit=True)


def test_rule_12_nobody_waits_for_a_broker_that_is_fenced(stage: Stage) -> None:
    stage.changed(2, shutdown_version=2000)
    stage.changed(3, is_fenced=True)
    stage.beat(1, applied_version=2000)
    (answer,) = stage.beat(2, wants_shutdown=True)
    assert isinstance(answer, AnswerHeartbeat)
    assert answer.may_exit


def test_rule_12_a_fenced_broker_may_just_go(stage: Stage) -> None:
    stage.changed(2, is_fenced=True)
    (answer,) = stage.beat(2, wants_shutdown=True)
    assert isinstance(answer, AnswerHeartbeat)
    assert answer.may_exit


def test_rules_11a_and_12_who_said_that_it_would_go_is_no_sign_of_trouble(stage: Stage) -> None:
    stage.changed(2, shutdown_version=2000)
    stage.broke(2)
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]
    stage.changed(2, is_fenced=True)
    stage.broke(1)
    assert _fenced(stage.probed(1, Verdict.REFUSED)) == [1]


# ── Registration (rule 7) ─────────────────────────────────────────────────────────────────────


def test_rule_7_a_new_broker_is_accepted(stage: Stage) -> None:
    assert stage.asks(9, 900) == [AcceptRegistration(NINE, some_id(900), -1)]


def test_rule_7_a_live_process_keeps_its_id(stage: Stage) -> None:
    (answer,) = stage.asks(2, 900)
    assert isinstance(answer, RefuseRegistration)


def test_rule_7_a_registration_while_the_stream_is_broken_waits_for_the_probe(
    stage: Stage,
) -> None:
    stage.broke(2)
    # The probe of the broken stream is under way; one is enough.
    assert stage.asks(2, 900) == []
    assert stage.probed(2, Verdict.OTHER_INCARNATION) == [
        AcceptRegistration(TWO, some_id(900), expected_epoch=12)
    ]


def test_rule_7_a_registration_sends_a_probe_if_none_is_under_way(stage: Stage) -> None:
    stage.broke(2)
    stage.probed(2, Verdict.SILENCE)
    # Now, and not when it would have been its turn again.
    assert stage.asks(2, 900) == [Probe(TWO, 12, some_id(102))]
    assert stage.wait(AGAIN_MIN_MS, beating=[1, 3]) == []
    (answer,) = stage.probed(2, Verdict.SAME_INCARNATION)
    assert isinstance(answer, RefuseRegistration)


def test_rule_7_a_dead_broker_registers_again_at_once(stage: Stage) -> None:
    stage.broke(2)
    stage.probed(2, Verdict.REFUSED)
    # The fencing is under way, or done; either way the epoch is still the same.
    assert stage.asks(2, 900) == [AcceptRegistration(TWO, some_id(900), expected_epoch=12)]


def test_rule_7_after_the_session_nothing_keeps_the_id(stage: Stage) -> None:
    stage.wait(SESSION_MS, beating=[1, 3])
    assert stage.asks(2, 900) == [AcceptRegistration(TWO, some_id(900), expected_epoch=12)]


def test_rule_7_the_same_life_may_ask_again(stage: Stage) -> None:
    assert stage.asks(2, 102) == [AcceptRegistration(TWO, some_id(102), expected_epoch=12)]


def test_rule_7_while_more_than_half_are_refused_nobody_takes_an_id_over(stage: Stage) -> None:
    stage.broke(1)
    stage.broke(2)
    assert stage.asks(2, 900) == []
    assert stage.probed(1, Verdict.REFUSED) == []
    (answer,) = stage.probed(2, Verdict.REFUSED)
    assert isinstance(answer, RefuseRegistration)


def test_of_two_that_wait_for_one_id_the_later_stays(stage: Stage) -> None:
    stage.broke(2)
    assert stage.asks(2, 900) == []
    (answer,) = stage.asks(2, 901)
    assert isinstance(answer, RefuseRegistration)
    assert answer.incarnation == some_id(900)
    assert stage.probed(2, Verdict.OTHER_INCARNATION) == [
        AcceptRegistration(TWO, some_id(901), expected_epoch=12)
    ]


def test_a_broker_that_is_forgotten_has_no_session(stage: Stage) -> None:
    del stage.brokers[TWO]
    stage.core.step(BrokersChanged(brokers=dict(stage.brokers), now_ms=stage.now_ms))
    assert stage.wait(SESSION_MS, beating=[1, 3]) == []
    assert "2@" not in stage.core.describe()


# ── Whatever happens ──────────────────────────────────────────────────────────────────────────

_happenings = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.integers(1, 3)),
        st.tuples(st.just("broke"), st.integers(1, 3)),
        st.tuples(st.sampled_from(list(Verdict)), st.integers(1, 3)),
        st.tuples(st.just("asks"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, SESSION_MS)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(_happenings)
def test_rules_11_and_11a_nobody_is_fenced_without_a_verdict_or_a_session_of_silence(
    happenings: list[tuple[object, int]],
) -> None:
    stage = Stage(_broker(1), _broker(2), _broker(3))
    heard = dict.fromkeys((1, 2, 3), stage.now_ms)
    verdicts: dict[int, object] = {}
    for what, number in happenings:
        if what == "wait":
            effects = stage.wait(number)
        elif what == "beat":
            effects = stage.beat(number)
            heard[number] = stage.now_ms
            verdicts.pop(number, None)
        elif what == "broke":
            effects = stage.broke(number)
        elif what == "asks":
            effects = stage.asks(number, 900)
        else:
            if what in (Verdict.REFUSED, Verdict.OTHER_INCARNATION):
                verdicts[number] = what
            effects = stage.probed(number, what)  # type: ignore[arg-type]
        for fenced in _fenced(effects):
            is_silent = stage.now_ms - heard[fenced] >= SESSION_MS
            assert is_silent or fenced in verdicts
