"""A broker against controllers that answer anything, lose anything, and take any time.

Whatever happens, one question is under way at most, a line is opened and closed in turn, nobody who
did not answer is believed, and once a controller is there and answers, the broker is unfenced soon.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.controller.broker_life import BrokerLife, State
from ottla.controller.door import BeatAnswer, Denied, NotActive, Registered
from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.controller.lifesigns import (
    BeatAnswered,
    CloseLine,
    Die,
    Effect,
    Event,
    FenceWanted,
    Followed,
    OpenLine,
    Recovered,
    Register,
    RegistrationAnswered,
    RegistrationWanted,
    SendBeat,
    TimePassed,
)
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

SESSION_MS, BEAT_MS, EPOCH = 2_000, 300, 40
US, OURS = BrokerId(7), UUID(int=1)
CONTROLLERS = (1, 2, 3)


@dataclass(slots=True)
class World:
    """The broker, what it has asked, and when its beats were sent."""

    life: BrokerLife
    now_ms: int = 0
    line: int | None = None
    question: Register | SendBeat | None = None
    asked: int | None = None
    sent_ms: dict[int, int] = field(default_factory=dict)
    # Since the last answer to the contrary: who was told "unfenced", by the version of the answer,
    # and when the beat was sent.
    heard: list[tuple[int, int]] = field(default_factory=list)
    version: int = 0
    is_dead: bool = False
    wants_fence: bool = False

    def step(self, event: Event) -> None:
        self.wants_fence |= isinstance(event, FenceWanted)
        for effect in self.life.step(event):
            self.do(effect)
        if self.life.wake_ms is None:
            assert self.question is None
            assert self.is_dead or self.life.state is State.MAY_EXIT

    def do(self, effect: Effect) -> None:
        assert not self.is_dead
        match effect:
            case Register(node_id=node_id):
                assert self.line is None
                self.question, self.asked = effect, node_id
            case OpenLine(node_id):
                assert self.line is None
                self.line = node_id
            case SendBeat(number, beat):
                assert self.line is not None
                assert beat.wants_fence == self.wants_fence
                self.question, self.asked = effect, self.line
                self.sent_ms[number] = self.now_ms
            case CloseLine():
                assert self.line is not None
                self.line, self.question = None, None
            case Die():
                self.is_dead = True

    def pass_time(self, ms: int) -> None:
        """Let time pass, and tell whenever it is waited for."""
        end_ms = self.now_ms + ms
        while self.life.wake_ms is not None and self.life.wake_ms <= end_ms:
            self.now_ms = max(self.life.wake_ms, self.now_ms)
            before = self.question
            self.step(TimePassed(now_ms=self.now_ms))
            if self.question is before:
                # It was waited for in vain, and is given up.
                self.question = None
        self.now_ms = end_ms

    def answer(self, answer: Registered | NotActive | Denied | BeatAnswer | None) -> None:
        question, self.question = self.question, None
        if isinstance(question, SendBeat):
            if isinstance(answer, Registered | Denied):
                answer = None
            if isinstance(answer, BeatAnswer):
                if answer.refusal is None and not answer.is_fenced:
                    self.heard.append((answer.version, self.sent_ms[question.number]))
                else:
                    self.heard.clear()
            self.step(BeatAnswered(number=question.number, answer=answer, now_ms=self.now_ms))
        elif question is not None:
            if isinstance(answer, BeatAnswer):
                answer = None
            event = RegistrationAnswered(number=question.number, answer=answer, now_ms=self.now_ms)
            self.step(event)

    def follow(self, version: int) -> None:
        own = BrokerInfo(US, "h", 1, broker_epoch=EPOCH, incarnation=OURS, is_fenced=True)
        self.version = version
        brokers = {US: own} if version >= EPOCH else {}
        image = MetadataImage(version, "test", BrokerId(1), brokers, controller_epoch=version // 9)
        self.step(Followed(image=image, now_ms=self.now_ms))


ANSWERS = st.one_of(
    st.none(),
    st.sampled_from([NotActive(None), *map(NotActive, CONTROLLERS)]),
    st.just(Registered(EPOCH)),
    st.just(Denied(ErrorCode.REQUEST_TIMED_OUT, "Too slow.")),
    st.builds(BeatAnswer, is_fenced=st.booleans(), version=st.integers(-1, 150)),
    st.just(BeatAnswer(ErrorCode.STALE_BROKER_EPOCH)),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), ANSWERS),
        st.tuples(st.just("pass"), st.integers(0, SESSION_MS)),
        st.tuples(st.just("follow"), st.integers(1, 60)),
        st.tuples(st.just("recover"), st.none()),
        st.tuples(st.just("fence"), st.none()),
    ),
    max_size=60,
)


def _world() -> World:
    life = BrokerLife(
        broker_id=US,
        incarnation=OURS,
        controllers=CONTROLLERS,
        session_ms=SESSION_MS,
        heartbeat_ms=BEAT_MS,
    )
    world = World(life)
    world.step(RegistrationWanted(now_ms=0))
    return world


def _play(world: World, steps: list[tuple[str, object]]) -> int:
    """Let everything happen in turn; return how far the metadata has come."""
    version = 0
    for what, value in steps:
        match what, value:
            case "answer", answer:
                world.answer(answer)  # type: ignore[arg-type]
            case "pass", int(ms):
                world.pass_time(ms)
            case "follow", int(more):
                version += more
                world.follow(version)
            case "fence", _:
                world.step(FenceWanted(now_ms=world.now_ms))
            case _:
                world.step(Recovered(damaged={}, now_ms=world.now_ms))
        # Rule 13: of a beat within the session, and nothing that was known then is unknown here.
        if world.life.is_heard(world.now_ms):
            assert any(
                known <= world.version and world.now_ms < sent_ms + SESSION_MS
                for known, sent_ms in world.heard
            )
        assert world.life.broker_epoch in (None, EPOCH)
    return version


# Rule 13: fenced and unfenced at 50, while the metadata is still at 40.
@example(
    [
        ("follow", EPOCH),
        ("answer", Registered(EPOCH)),
        ("answer", BeatAnswer(is_fenced=False, version=50)),
    ]
)
@example(
    [
        ("answer", None),
        ("answer", None),
        ("answer", Registered(EPOCH)),
        ("answer", BeatAnswer(is_fenced=False, version=EPOCH + 1)),
    ]
)
@given(STEPS)
def test_whatever_controllers_answer_the_broker_finds_the_one_that_is_there(
    steps: list[tuple[str, object]],
) -> None:
    world = _world()
    version = _play(world, steps)
    # Now controller 2 is active and answers everything; the others say so.
    # Whoever was told of a version is not heard before it has followed as far.
    world.follow(max([version, *(told for told, _ in world.heard)]) + EPOCH)
    world.step(Recovered(damaged={}, now_ms=world.now_ms))
    deadline_ms = world.now_ms + SESSION_MS + 3 * BEAT_MS
    was_told = False
    while not was_told:
        assert world.now_ms <= deadline_ms, world.life.describe()
        if world.question is None:
            world.pass_time(10)
        elif world.asked != 2:
            world.answer(NotActive(2))
        elif isinstance(world.question, Register):
            world.answer(Registered(EPOCH))
        else:
            beat = world.question.beat
            was_told = beat.is_recovered and beat.wants_fence == world.wants_fence
            world.answer(BeatAnswer(is_fenced=beat.wants_fence or not beat.is_recovered))
    assert world.life.heard_by == 2
    is_fenced = world.wants_fence
    assert world.life.state is (State.FENCED if is_fenced else State.UNFENCED)
    assert world.life.is_heard(world.now_ms) is not is_fenced
