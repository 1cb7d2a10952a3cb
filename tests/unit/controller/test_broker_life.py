from __future__ import annotations

from dataclasses import replace

from ottla.controller.broker_life import DUPLICATE_SESSIONS, BrokerLife, State
from ottla.controller.door import Beat, BeatAnswer, Denied, NotActive, Registered
from ottla.controller.image import NO_CONTROLLER, BrokerInfo, MetadataImage
from ottla.controller.lifesigns import (
    BeatAnswered,
    CloseLine,
    Die,
    Doomed,
    Effect,
    Followed,
    OpenLine,
    Recovered,
    Register,
    RegistrationAnswered,
    RegistrationWanted,
    SendBeat,
    ShutdownWanted,
    TimePassed,
)
from ottla.controller.seeking import PAUSE_MS
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

SESSION_MS, BEAT_MS = 2_000, 300
US = BrokerId(7)
OURS, THEIRS = UUID(int=1), UUID(int=2)
TOPIC = UUID(int=9)
UNFENCED = BeatAnswer(is_fenced=False)
FENCED = BeatAnswer(is_fenced=True)
STALE = BeatAnswer(ErrorCode.STALE_BROKER_EPOCH)
DUPLICATE = Denied(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another process is this broker.")


class Stage:
    """A life, a clock, and what is under way."""

    def __init__(self, *controllers: int) -> None:
        self.now_ms = 10_000
        self.life = BrokerLife(
            broker_id=US,
            incarnation=OURS,
            controllers=controllers or (1, 2, 3),
            session_ms=SESSION_MS,
            heartbeat_ms=BEAT_MS,
        )
        self.effects: list[Effect] = []

    def state(self) -> State:
        return self.life.state

    def take(self, effects: list[Effect]) -> list[Effect]:
        self.effects = effects
        return effects

    def begin(self) -> list[Effect]:
        return self.take(self.life.step(RegistrationWanted(now_ms=self.now_ms)))

    @property
    def number(self) -> int:
        """Of the last question."""
        asked = [one for one in self.effects if isinstance(one, Register | SendBeat)]
        return asked[-1].number

    @property
    def asked(self) -> int:
        """Who was asked to register last."""
        return next(one.node_id for one in self.effects if isinstance(one, Register))

    @property
    def beat(self) -> Beat:
        return next(one.beat for one in self.effects if isinstance(one, SendBeat))

    def hear(self, answer: Registered | NotActive | Denied | None) -> list[Effect]:
        event = RegistrationAnswered(number=self.number, answer=answer, now_ms=self.now_ms)
        return self.take(self.life.step(event))

    def answer(self, answer: BeatAnswer | NotActive | None) -> list[Effect]:
        event = BeatAnswered(number=self.number, answer=answer, now_ms=self.now_ms)
        return self.take(self.life.step(event))

    def wake(self) -> list[Effect]:
        assert self.life.wake_ms is not None
        self.now_ms = self.life.wake_ms
        return self.take(self.life.step(TimePassed(now_ms=self.now_ms)))

    def follow(self, version: int, *brokers: BrokerInfo, office: tuple[int, int] = (-1, 0)) -> None:
        image = MetadataImage(
            version=version,
            cluster_id="test",
            controller_id=BrokerId(office[0]) if office[1] else NO_CONTROLLER,
            controller_epoch=office[1],
            brokers={one.broker_id: one for one in brokers},
        )
        self.take(self.life.step(Followed(image=image, now_ms=self.now_ms)))

    def recover(self) -> list[Effect]:
        return self.take(self.life.step(Recovered(damaged={TOPIC: (0,)}, now_ms=self.now_ms)))


def _info(epoch: int, *, incarnation: UUID = OURS, fenced: bool = True) -> BrokerInfo:
    return BrokerInfo(US, "h", 1, broker_epoch=epoch, incarnation=incarnation, is_fenced=fenced)


def _unfenced(epoch: int = 40) -> Stage:
    """A broker that registered at controller 1, and waits for its next beat."""
    stage = Stage()
    stage.begin()
    stage.hear(Registered(epoch))
    stage.answer(FENCED)
    stage.follow(epoch, _info(epoch))
    stage.answer(FENCED)
    stage.recover()
    stage.answer(UNFENCED)
    assert stage.state() is State.UNFENCED
    return stage


# ── Registering ───────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_is_registered_opens_a_line_and_beats_at_once() -> None:
    stage = Stage()
    assert stage.begin() == [Register(1, 1)]
    opened, sent = stage.hear(Registered(40))
    assert opened == OpenLine(1)
    assert isinstance(sent, SendBeat)
    assert sent.beat == Beat(broker_id=US, broker_epoch=40, applied_version=-1, is_recovered=False)
    assert stage.state() is State.FENCED
    assert stage.life.broker_epoch == 40


def test_nothing_is_asked_before_the_node_wants_to_be_a_broker() -> None:
    stage = Stage()
    stage.follow(5, office=(1, 3))
    stage.recover()
    assert stage.effects == []
    assert stage.life.wake_ms is None


def test_a_broker_turns_to_the_controller_that_is_named() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(NotActive(3))
    assert stage.asked == 3


def test_a_broker_asks_everybody_in_turn_and_pauses_between_rounds() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(None)
    assert stage.asked == 2
    stage.hear(NotActive(None))
    assert stage.asked == 3
    assert stage.hear(NotActive(None)) == []
    assert stage.life.wake_ms == stage.now_ms + PAUSE_MS
    stage.wake()
    assert stage.asked in (1, 2, 3)


def test_a_controller_that_does_not_answer_a_registration_is_left_after_a_session() -> None:
    stage = Stage()
    stage.begin()
    first = stage.number
    began = stage.now_ms
    stage.wake()
    assert stage.now_ms == began + SESSION_MS
    assert stage.asked == 2
    late = RegistrationAnswered(number=first, answer=Registered(40), now_ms=stage.now_ms)
    assert stage.life.step(late) == []
    assert stage.state() is State.UNREGISTERED


def test_an_id_that_another_process_has_is_waited_for_two_sessions_long() -> None:
    stage = Stage()
    stage.begin()
    began = stage.now_ms
    while stage.state() is not State.DEAD:
        assert stage.now_ms <= began + DUPLICATE_SESSIONS * SESSION_MS + SESSION_MS // 8
        stage.hear(DUPLICATE)
        if stage.state() is not State.DEAD:
            stage.wake()
            assert stage.asked == 1
    assert stage.now_ms >= began + DUPLICATE_SESSIONS * SESSION_MS
    (died,) = stage.effects
    assert isinstance(died, Die)
    assert "give this node another node.id" in died.sentence
    assert stage.life.reason == died.sentence
    assert stage.life.wake_ms is None


def test_whoever_is_refused_asks_less_and_less_often_until_it_is_registered() -> None:
    stage = Stage()
    stage.begin()
    pauses = []
    for _ in range(5):
        stage.hear(DUPLICATE)
        assert stage.life.wake_ms is not None
        pauses.append(stage.life.wake_ms - stage.now_ms)
        stage.wake()
    assert pauses == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS, SESSION_MS // 8, SESSION_MS // 8]
    stage.hear(Registered(41))
    stage.answer(BeatAnswer(refusal=ErrorCode.BROKER_ID_NOT_REGISTERED))
    stage.wake()
    stage.hear(DUPLICATE)
    assert stage.life.wake_ms == stage.now_ms + PAUSE_MS


def test_the_old_process_goes_and_the_new_one_is_registered() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(DUPLICATE)
    stage.wake()
    stage.hear(Registered(41))
    assert stage.state() is State.FENCED
    assert stage.life.last_denial is None


def test_a_new_controller_gives_the_other_process_a_new_session_so_the_wait_begins_anew() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(DUPLICATE)
    stage.now_ms += DUPLICATE_SESSIONS * SESSION_MS - PAUSE_MS
    stage.wake()
    stage.hear(NotActive(2))
    assert stage.hear(DUPLICATE) == []
    assert stage.state() is State.UNREGISTERED


def test_what_no_retry_mends_ends_the_broker_at_once() -> None:
    for code in (
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
    ):
        stage = Stage()
        stage.begin()
        assert stage.hear(Denied(code, "Because.")) == [
            Die("The controllers refuse this broker: Because.")
        ]
        assert stage.state() is State.DEAD
        assert stage.begin() == []


def test_other_refusals_are_tried_again() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(Denied(ErrorCode.REQUEST_TIMED_OUT, "Too slow."))
    assert stage.life.last_denial is not None
    stage.wake()
    assert stage.asked == 1


# ── Beating ───────────────────────────────────────────────────────────────────────────────────


def test_beats_keep_the_interval_however_long_an_answer_takes() -> None:
    stage = _unfenced()
    stage.wake()
    sent_ms = stage.now_ms
    stage.now_ms += 120
    assert stage.answer(UNFENCED) == []
    assert stage.life.wake_ms == sent_ms + BEAT_MS


def test_the_controller_hears_at_once_what_it_waits_for() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(Registered(40))
    stage.answer(FENCED)
    stage.follow(39)
    assert stage.effects == []
    stage.follow(41, _info(40))
    assert stage.beat.applied_version == 41
    stage.answer(FENCED)
    stage.recover()
    assert stage.beat.is_recovered
    assert stage.beat.damaged == {TOPIC: (0,)}
    stage.answer(FENCED)
    stage.follow(42, _info(40, fenced=False))
    assert stage.beat.applied_version == 42
    stage.answer(UNFENCED)
    assert stage.state() is State.UNFENCED


def test_news_that_come_while_a_beat_is_under_way_are_told_right_after_it() -> None:
    stage = Stage()
    stage.begin()
    stage.hear(Registered(40))
    sent = stage.effects
    stage.recover()
    assert stage.effects == []
    stage.effects = sent
    stage.answer(FENCED)
    assert stage.beat.is_recovered


def test_somebody_elses_shutdown_is_told_of_at_once_and_other_images_are_not() -> None:
    stage = _unfenced()
    own = _info(40, fenced=False)
    stage.follow(50, own)
    stage.answer(UNFENCED)
    other = BrokerInfo(BrokerId(8), "h", 1, broker_epoch=20)
    stage.follow(51, own, other)
    assert stage.effects == []
    stage.follow(52, own, replace(other, shutdown_version=52))
    assert stage.beat.applied_version == 52
    stage.answer(UNFENCED)
    stage.follow(53, own, replace(other, shutdown_version=52))
    assert stage.effects == []


def test_damage_is_told_until_the_broker_is_unfenced_and_never_again() -> None:
    stage = _unfenced()
    stage.wake()
    assert stage.beat.is_recovered
    assert stage.beat.damaged == {}


def test_a_silent_controller_is_given_up_within_a_part_of_the_session() -> None:
    stage = _unfenced()
    stage.wake()
    sent_ms, number = stage.now_ms, stage.number
    closed, opened, sent = stage.wake()
    assert stage.now_ms <= sent_ms + SESSION_MS // 4
    assert closed == CloseLine(is_goodbye=True)
    assert opened == OpenLine(2)
    assert isinstance(sent, SendBeat)
    late = BeatAnswered(number=number, answer=UNFENCED, now_ms=stage.now_ms)
    assert stage.life.step(late) == []


def test_a_broken_line_leads_to_another_controller_at_once() -> None:
    stage = _unfenced()
    stage.wake()
    closed, opened, _ = stage.answer(None)
    assert closed == CloseLine(is_goodbye=False)
    assert opened == OpenLine(2)
    closed, opened, _ = stage.answer(NotActive(3))
    assert closed == CloseLine(is_goodbye=True)
    assert opened == OpenLine(3)


def test_a_lost_controller_is_looked_for_without_a_storm_until_somebody_takes_office() -> None:
    stage = _unfenced()
    stage.wake()
    stage.answer(None)
    stage.answer(NotActive(1))
    assert stage.answer(NotActive(1)) == [CloseLine(is_goodbye=True)]
    assert stage.life.wake_ms == stage.now_ms + PAUSE_MS
    stage.follow(60, _info(40, fenced=False), office=(3, 60))
    assert stage.effects[0] == OpenLine(3)


def test_old_news_of_an_office_do_not_take_the_line_from_who_answers() -> None:
    stage = _unfenced()
    stage.follow(60, _info(40, fenced=False), office=(3, 60))
    assert [type(one) for one in stage.effects] == [SendBeat]
    stage.answer(UNFENCED)
    assert stage.life.line == 1
    assert stage.life.believed == 1


def test_a_fenced_broker_goes_on_beating_and_is_unfenced_again() -> None:
    stage = _unfenced()
    stage.wake()
    stage.answer(FENCED)
    assert stage.state() is State.FENCED
    assert stage.life.is_fenced
    stage.wake()
    stage.answer(UNFENCED)
    assert stage.state() is State.UNFENCED


# ── Rule 13 (a) ───────────────────────────────────────────────────────────────────────────────


def test_being_heard_counts_from_when_the_beat_was_sent() -> None:
    stage = _unfenced()
    stage.wake()
    sent_ms = stage.now_ms
    stage.now_ms += 400
    stage.answer(UNFENCED)
    assert stage.life.is_heard(sent_ms + SESSION_MS - 1)
    assert not stage.life.is_heard(sent_ms + SESSION_MS)


def test_who_is_not_active_or_says_fenced_has_not_heard() -> None:
    stage = _unfenced()
    stage.wake()
    sent_ms = stage.now_ms
    stage.answer(NotActive(2))
    assert not stage.life.is_heard(sent_ms + SESSION_MS)
    stage.answer(FENCED)
    assert not stage.life.is_heard(stage.now_ms)


# ── Another life ──────────────────────────────────────────────────────────────────────────────


def test_a_stale_epoch_is_registered_again_and_the_same_epoch_is_no_harm() -> None:
    # A controller that was deposed without knowing it may know an earlier life of this broker.
    stage = _unfenced()
    stage.wake()
    assert stage.answer(STALE) == [CloseLine(is_goodbye=True)]
    assert stage.state() is State.UNREGISTERED
    assert not stage.life.is_heard(stage.now_ms)
    stage.wake()
    assert stage.asked == 1
    stage.hear(NotActive(2))
    stage.hear(Registered(40))
    assert stage.state() is State.FENCED
    assert stage.beat.broker_epoch == 40


def test_another_epoch_after_a_stale_one_says_that_another_process_was_this_broker() -> None:
    stage = _unfenced()
    stage.wake()
    stage.answer(STALE)
    stage.wake()
    (died,) = stage.hear(Registered(90))
    assert isinstance(died, Die)
    assert "Another process has registered as broker 7" in died.sentence


def test_another_incarnation_in_the_metadata_ends_the_broker() -> None:
    stage = _unfenced()
    stage.follow(70, _info(70, incarnation=THEIRS))
    closed, died = stage.effects
    assert closed == CloseLine(is_goodbye=True)
    assert isinstance(died, Die)
    assert not stage.life.is_heard(stage.now_ms)


def test_an_earlier_incarnation_in_the_metadata_is_only_the_past() -> None:
    stage = Stage()
    stage.follow(30, _info(20, incarnation=THEIRS))
    stage.begin()
    stage.hear(Registered(40))
    stage.follow(35, _info(20, incarnation=THEIRS))
    assert stage.state() is State.FENCED


def test_a_broker_that_was_forgotten_registers_again_under_a_new_epoch() -> None:
    stage = _unfenced()
    stage.wake()
    stage.answer(BeatAnswer(ErrorCode.BROKER_ID_NOT_REGISTERED))
    stage.wake()
    stage.hear(Registered(90))
    assert stage.state() is State.FENCED
    assert stage.life.broker_epoch == 90


def test_a_program_that_cannot_go_on_ends_the_broker() -> None:
    stage = _unfenced()
    effects = stage.life.step(Doomed(sentence="Start a newer version.", now_ms=stage.now_ms))
    assert effects == [CloseLine(is_goodbye=True), Die("Start a newer version.")]


# ── Shutting down ─────────────────────────────────────────────────────────────────────────────


def test_a_shutdown_is_told_at_once_and_ends_when_the_controller_agrees() -> None:
    stage = _unfenced()
    stage.take(stage.life.step(ShutdownWanted(now_ms=stage.now_ms)))
    assert stage.beat.wants_shutdown
    assert stage.state() is State.SHUTTING_DOWN
    stage.answer(UNFENCED)
    before = stage.now_ms
    stage.wake()
    assert stage.now_ms < before + BEAT_MS
    assert stage.answer(BeatAnswer(is_fenced=False, may_exit=True)) == []
    assert stage.state() is State.MAY_EXIT
    assert stage.life.wake_ms is None


def test_who_was_never_registered_may_exit_without_asking() -> None:
    stage = Stage()
    stage.begin()
    assert stage.life.step(ShutdownWanted(now_ms=stage.now_ms)) == []
    assert stage.state() is State.MAY_EXIT
    assert stage.hear(Registered(40)) == []
    assert stage.state() is State.MAY_EXIT


def test_a_shutdown_outlives_the_loss_of_the_controller() -> None:
    stage = _unfenced()
    stage.take(stage.life.step(ShutdownWanted(now_ms=stage.now_ms)))
    stage.answer(None)
    assert stage.beat.wants_shutdown
    stage.answer(BeatAnswer(is_fenced=False, may_exit=True))
    assert stage.state() is State.MAY_EXIT
