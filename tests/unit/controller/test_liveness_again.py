"""Broken streams that a first probe did not settle, and whoever is about to be fenced."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.liveness import AGAIN_MAX_MS, AGAIN_MIN_MS, GATHER_MS, RETRY_MS
from ottla.controller.sightings import (
    AnswerHeartbeat,
    Effect,
    Probe,
    ProposeUnfence,
    TimePassed,
    Verdict,
)
from tests.unit.controller.cluster import some_id
from tests.unit.controller.test_liveness import SESSION_MS, TWO, Stage, _broker, _fenced, stage

__all__ = ["stage"]


def _probed(effects: list[Effect]) -> list[int]:
    return [one.broker_id for one in effects if isinstance(one, Probe)]


def _probe_times(stage: Stage, verdict: Verdict, ms: int) -> list[int]:
    """Let time pass and answer every probe of broker 2; return when they were sent."""
    times: list[int] = []
    end_ms = stage.now_ms + ms
    while stage.now_ms < end_ms:
        stage.now_ms += 1
        stage.beat(1)
        stage.beat(3)
        if _probed(stage.core.step(TimePassed(now_ms=stage.now_ms))):
            times.append(stage.now_ms)
            stage.probed(2, verdict)
    return times


@pytest.mark.parametrize("verdict", [Verdict.SAME_INCARNATION, Verdict.SILENCE])
def test_rule_11a_a_process_whose_listener_was_closed_last_is_found_dead_soon(
    stage: Stage, verdict: Verdict
) -> None:
    stage.broke(2)
    # The probe reached a process that was being killed: it was connected, and then reset.
    stage.probed(2, verdict)
    assert stage.wait(AGAIN_MIN_MS, beating=[1, 3]) == [Probe(TWO, 12, some_id(102))]
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]


@pytest.mark.parametrize("verdict", [Verdict.SAME_INCARNATION, Verdict.SILENCE])
def test_rule_11a_a_broken_stream_is_looked_after_less_and_less_often_until_the_session_ends(
    stage: Stage, verdict: Verdict
) -> None:
    stage.broke(2)
    stage.probed(2, verdict)
    begin_ms = stage.now_ms
    times = _probe_times(stage, verdict, 3 * SESSION_MS)
    assert times[:5] == [begin_ms + ms for ms in (20, 60, 140, 300, 550)]
    assert times[5] - times[4] == times[-1] - times[-2] == AGAIN_MAX_MS
    assert begin_ms + SESSION_MS - AGAIN_MAX_MS <= times[-1] < begin_ms + SESSION_MS


def test_rule_11a_one_probe_is_under_way_however_long_it_takes(stage: Stage) -> None:
    stage.broke(2)
    stage.probed(2, Verdict.SILENCE)
    assert _probed(stage.wait(SESSION_MS - 1, beating=[1, 3])) == [2]


def test_rule_11a_nobody_is_probed_whose_stream_is_back_and_the_next_break_is_a_new_one(
    stage: Stage,
) -> None:
    stage.broke(2)
    stage.probed(2, Verdict.SILENCE)
    _probe_times(stage, Verdict.SILENCE, 500)
    stage.beat(2)
    assert _probed(stage.wait(SESSION_MS - 1, beating=[1, 2, 3])) == []
    assert _probed(stage.broke(2)) == [2]
    stage.probed(2, Verdict.SILENCE)
    assert _probed(stage.wait(AGAIN_MIN_MS, beating=[1, 3])) == [2]


def test_rule_11a_a_stream_that_breaks_while_a_probe_is_under_way_is_not_forgotten(
    stage: Stage,
) -> None:
    stage.broke(2)
    stage.now_ms += 1
    stage.beat(2)
    stage.broke(2)
    # What it found was before the heartbeat, perhaps.
    assert stage.probed(2, Verdict.REFUSED) == []
    assert _probed(stage.wait(AGAIN_MIN_MS, beating=[1, 3])) == [2]
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]


def test_rule_11a_refused_by_too_many_is_silence_and_is_not_asked_again(stage: Stage) -> None:
    for number in (2, 3):
        stage.broke(number)
        stage.probed(number, Verdict.SILENCE)
    assert _probed(stage.wait(AGAIN_MIN_MS, beating=[1])) == [2, 3]
    assert stage.probed(2, Verdict.REFUSED) == []
    assert stage.probed(3, Verdict.REFUSED) == []
    assert stage.wait(SESSION_MS - AGAIN_MIN_MS - 1, beating=[1]) == []
    assert _fenced(stage.wait(1, beating=[1])) == [2, 3]


def test_rule_11a_who_is_fenced_already_is_not_looked_after(stage: Stage) -> None:
    stage.changed(2, is_fenced=True)
    stage.broke(2)
    stage.probed(2, Verdict.SILENCE)
    assert stage.wait(SESSION_MS, beating=[1, 3]) == []


def test_rule_11a_in_a_new_office_only_silence_is_looked_after() -> None:
    stage = Stage(_broker(1), _broker(2))
    stage.probed(1, Verdict.SAME_INCARNATION)
    stage.probed(2, Verdict.SILENCE)
    assert _probed(stage.wait(AGAIN_MIN_MS)) == [2]
    assert _fenced(stage.probed(2, Verdict.REFUSED)) == [2]


def test_the_clock_is_told_more_often_while_somebody_is_to_be_probed_again(stage: Stage) -> None:
    before_ms = stage.core.tick_ms
    assert before_ms > AGAIN_MIN_MS
    stage.broke(2)
    stage.probed(2, Verdict.SILENCE)
    assert stage.core.tick_ms == AGAIN_MIN_MS
    stage.beat(2)
    assert stage.core.tick_ms == before_ms


def test_rule_13_whoever_is_about_to_be_fenced_is_told_so(stage: Stage) -> None:
    assert _fenced(stage.wait(SESSION_MS, beating=[1, 3])) == [2]
    # It is back, and nobody knows yet that it is fenced.
    assert stage.beat(2) == [AnswerHeartbeat(TWO, is_fenced=True)]
    stage.changed(2, is_fenced=True)
    answer, unfence = stage.beat(2)
    assert answer == AnswerHeartbeat(TWO, is_fenced=True)
    assert isinstance(unfence, ProposeUnfence)
    stage.changed(2, is_fenced=False)
    assert stage.beat(2) == [AnswerHeartbeat(TWO, is_fenced=False)]


def test_rule_13_a_fencing_that_came_to_nothing_is_not_held_against_a_broker(stage: Stage) -> None:
    stage.wait(SESSION_MS, beating=[1, 3])
    stage.wait(RETRY_MS - 1, beating=[1, 3])
    assert stage.beat(2) == [AnswerHeartbeat(TWO, is_fenced=True)]
    stage.now_ms += 1
    assert stage.beat(2) == [AnswerHeartbeat(TWO, is_fenced=False)]


# ── Whatever happens ──────────────────────────────────────────────────────────────────────────

_happenings = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["beat", "broke", "asks", "fenced"]), st.integers(1, 5)),
        st.tuples(st.sampled_from([Verdict.SAME_INCARNATION, Verdict.SILENCE]), st.integers(1, 5)),
        st.tuples(st.just("wait"), st.integers(1, SESSION_MS // 2)),
    ),
    max_size=40,
)


class Watched:
    """Five brokers, and whose probes are under way."""

    def __init__(self) -> None:
        self.stage = Stage(*map(_broker, range(1, 6)))
        self.under_way: set[int] = set()
        self.take(self.stage.first)

    def take(self, effects: list[Effect]) -> list[Effect]:
        for number in _probed(effects):
            assert number not in self.under_way
            self.under_way.add(number)
        return effects

    def answer(self, number: int, verdict: Verdict) -> list[Effect]:
        if number not in self.under_way:
            return []
        self.under_way.discard(number)
        return self.take(self.stage.probed(number, verdict))

    def happen(self, what: object, number: int) -> None:
        match what:
            case "wait":
                self.take(self.stage.wait(number))
            case "beat":
                self.take(self.stage.beat(number))
            case "broke":
                self.take(self.stage.broke(number))
            case "asks":
                self.take(self.stage.asks(number, 900))
            case "fenced":
                self.stage.changed(number, is_fenced=True)
            case Verdict():
                self.answer(number, what)
            case _:
                pytest.fail(f"{what}?")


@settings(deadline=None)
@given(_happenings)
def test_rule_11a_whatever_was_found_before_a_process_that_dies_is_fenced_soon(
    happenings: list[tuple[object, int]],
) -> None:
    watched = Watched()
    for what, number in happenings:
        watched.happen(what, number)
    stage = watched.stage
    for number in sorted(watched.under_way):
        watched.answer(number, Verdict.SAME_INCARNATION)
    for number in range(1, 6):
        # What was proposed has happened, and is past.
        stage.changed(number, is_fenced=True)
        stage.changed(number, is_fenced=False)
        watched.take(stage.beat(number))
    # Now broker 2 is killed. For a moment there is still somebody at its address.
    watched.take(stage.broke(2))
    watched.answer(2, Verdict.SILENCE)
    fenced: list[int] = []
    begin_ms = stage.now_ms
    while not fenced:
        assert stage.now_ms - begin_ms <= 2 * AGAIN_MIN_MS + GATHER_MS
        fenced += _fenced(watched.take(stage.wait(1, beating=[1, 3, 4, 5])))
        fenced += _fenced(watched.answer(2, Verdict.REFUSED))
    assert fenced == [2]
