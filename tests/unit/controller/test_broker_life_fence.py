"""A broker that asks to be fenced, because its disk has failed (rule 48)."""

from __future__ import annotations

from ottla.controller.broker_life import State
from ottla.controller.door import BeatAnswer, NotActive, Registered
from ottla.controller.lifesigns import FenceWanted, ShutdownWanted
from tests.unit.controller.test_broker_life import FENCED, STALE, UNFENCED, Stage, _info, _unfenced


def test_rule_48_a_broker_whose_disk_failed_asks_to_be_fenced_at_once_and_with_every_beat() -> None:
    stage = _unfenced()
    stage.follow(45, _info(40, fenced=False))
    stage.answer(UNFENCED)
    stage.take(stage.life.step(FenceWanted(now_ms=stage.now_ms)))
    assert stage.beat.wants_fence
    stage.answer(UNFENCED)
    stage.follow(50, _info(40, fenced=True))
    assert stage.beat.wants_fence
    stage.answer(FENCED)
    assert stage.state() is State.FENCED
    assert not stage.life.is_heard(stage.now_ms)
    assert "wants to be fenced" in stage.life.describe()
    # Also at another controller, and after a registration that was doubted.
    stage.wake()
    stage.answer(NotActive(2))
    assert stage.beat.wants_fence
    stage.answer(STALE)
    stage.wake()
    stage.hear(Registered(40))
    assert stage.beat.wants_fence


def test_rule_48_a_disk_that_fails_before_the_registration_is_told_with_the_first_beat() -> None:
    stage = Stage()
    assert stage.life.step(FenceWanted(now_ms=stage.now_ms)) == []
    stage.begin()
    stage.hear(Registered(40))
    assert stage.beat.wants_fence


def test_who_wants_to_be_fenced_can_still_shut_down() -> None:
    stage = _unfenced()
    stage.take(stage.life.step(FenceWanted(now_ms=stage.now_ms)))
    stage.answer(FENCED)
    stage.take(stage.life.step(ShutdownWanted(now_ms=stage.now_ms)))
    assert (stage.beat.wants_fence, stage.beat.wants_shutdown) == (True, True)
    stage.answer(BeatAnswer(is_fenced=True, may_exit=True))
    assert stage.state() is State.MAY_EXIT
