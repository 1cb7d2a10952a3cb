"""When being heard counts: not before the metadata is followed as far as the answer had it."""

from __future__ import annotations

from ottla.controller.broker_life import State
from ottla.controller.door import BeatAnswer
from ottla.controller.lifesigns import TimePassed
from tests.unit.controller.test_broker_life import SESSION_MS, _info, _unfenced


def test_rule_13_a_leader_fenced_and_unfenced_by_one_beat_waits_for_its_metadata() -> None:
    stage = _unfenced()
    stage.follow(45, _info(40, fenced=False))
    stage.answer(BeatAnswer(is_fenced=False, version=45))
    assert stage.life.is_heard(stage.now_ms)
    # It is cut off for a session. It was fenced at 50, and is unfenced at 51 when it is back.
    stage.now_ms += SESSION_MS
    assert not stage.life.is_heard(stage.now_ms)
    stage.take(stage.life.step(TimePassed(now_ms=stage.now_ms)))
    stage.answer(BeatAnswer(is_fenced=False, version=51))
    assert stage.state() is State.UNFENCED
    assert not stage.life.is_heard(stage.now_ms)
    stage.follow(50, _info(40, fenced=True))
    assert not stage.life.is_heard(stage.now_ms)
    stage.follow(51, _info(40, fenced=False))
    assert stage.life.is_heard(stage.now_ms)


def test_rule_13_an_answer_counts_from_its_beat_however_late_the_metadata_is() -> None:
    stage = _unfenced()
    stage.wake()
    first_ms = stage.now_ms
    stage.answer(BeatAnswer(is_fenced=False, version=60))
    stage.wake()
    second_ms = stage.now_ms
    stage.answer(BeatAnswer(is_fenced=False, version=70))
    # What was heard before still counts.
    assert stage.life.is_heard(first_ms)
    stage.now_ms = second_ms + 1000
    stage.follow(65, _info(40, fenced=False))
    assert stage.life.is_heard(first_ms + SESSION_MS - 1)
    assert not stage.life.is_heard(first_ms + SESSION_MS)
    stage.follow(70, _info(40, fenced=False))
    assert stage.life.is_heard(second_ms + SESSION_MS - 1)
    assert not stage.life.is_heard(second_ms + SESSION_MS)


def test_rule_13_a_fenced_answer_outweighs_those_that_wait_for_their_metadata() -> None:
    stage = _unfenced()
    stage.wake()
    stage.answer(BeatAnswer(is_fenced=False, version=60))
    stage.wake()
    stage.answer(BeatAnswer(is_fenced=True, version=70))
    stage.follow(60, _info(40, fenced=False))
    assert not stage.life.is_heard(stage.now_ms)
    stage.answer(BeatAnswer(is_fenced=False, version=80))
    stage.follow(80, _info(40, fenced=False))
    assert stage.life.is_heard(stage.now_ms)


def test_rule_13_a_broker_that_lags_behind_does_not_lose_its_standing_for_it() -> None:
    stage = _unfenced()
    for version in range(100, 300):
        stage.wake()
        stage.answer(BeatAnswer(is_fenced=False, version=version))
        # Two beats behind, all the time.
        stage.follow(version - 2, _info(40, fenced=False))
        assert stage.life.is_heard(stage.now_ms)
