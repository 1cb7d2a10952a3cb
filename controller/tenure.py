"""One office of an active controller, from its taking to its end.

It gives `Liveness` its clock and its events, and does what that wants done: probes, commands,
answers. Everything happens on one event loop; whoever waits for something is answered at the
latest when the office ends.

Not here: who is alive (`liveness.py`), what is proposed (`office.py`), and how the office is won
(`active.py`).

N1  one line of heartbeats is current for each life of a broker: the one that was opened last
N2  a command is proposed with the same bytes until its fate is known, or the office has ended
N3  one command of a kind is under way for one life of a broker
N4  when the office has ended nothing is decided in its name any more
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from ottla.controller.commands import Command, ElectLeaders
from ottla.controller.door import Beat, BeatAnswer, Denied, Registered, Registration
from ottla.controller.feed import MetadataFeed, Tell
from ottla.controller.image import BrokerInfo, MetadataImage
from ottla.controller.liveness import Liveness
from ottla.controller.office import Requests, commands_for, heard, registration, wants_balance
from ottla.controller.outcome import Outcome, Refusal
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.controller.quorum import port
from ottla.controller.quorum.port import Committed, QuorumStatus, Refused, Why
from ottla.controller.sightings import (
    AcceptRegistration,
    AnswerHeartbeat,
    BrokersChanged,
    Effect,
    Event,
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
from ottla.proto.errors import ErrorCode, RequestError, ensure
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

COMMIT_MS: Final = 5_000
RETRY_S: Final = 0.05
# A probe that takes longer found silence.
PROBE_S: Final = 2.0
ADMISSION_S: Final = 2 * PROBE_S

T = TypeVar("T")
# One life of a broker: its id and its epoch.
Life = tuple[BrokerId, int]
Wish = ProposeFence | ProposeUnfence | ProposeShutdown

_DONE: Final[dict[type[Wish], str]] = {
    ProposeFence: "broker_fenced",
    ProposeUnfence: "broker_unfenced",
    ProposeShutdown: "broker_shutdown_begun",
}


class AskedQuorum(Protocol):
    """A member of the quorum, as an event loop asks it: `RunningMember`."""

    async def propose(self, command: bytes, timeout_ms: int) -> port.Outcome: ...

    async def read(self, timeout_ms: int) -> port.Outcome: ...

    def status(self) -> QuorumStatus:
        """Return how it was after the last tick, and when that was by the clock of `now_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a controller works with."""

    node_id: BrokerId
    quorum: AskedQuorum
    feed: MetadataFeed
    # Monotonic: sessions are measured by it.
    now_ms: Callable[[], int]
    session_ms: Callable[[], int]
    balance_s: Callable[[], int]
    # Given the broker, and the address that its heartbeats came from if they did.
    probe: Callable[[BrokerInfo, str | None], Awaitable[Verdict]]
    tell: Tell


@dataclass(slots=True, eq=False)
class Stream:
    """A line of heartbeats, as the office knows it."""

    # Counts all lines of this process.
    number: int
    peer: str | None
    life: Life | None = None


class Tenure:
    """One office: sessions of brokers, and everything that is proposed in its name."""

    def __init__(self, means: Means, *, term: int, epoch: int) -> None:
        self.term: Final = term
        self.epoch: Final = epoch
        self._means = means
        self._requests = Requests(means.node_id, epoch)
        self._liveness = Liveness(session_ms=means.session_ms())
        self._brokers = means.feed.image.brokers
        self._streams: dict[Life, Stream] = {}
        self._applied: dict[BrokerId, int] = {}
        self._asking: dict[tuple[BrokerId, UUID], list[asyncio.Future[int | str]]] = {}
        self._under_way: set[tuple[type[Wish], Life]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def has_ended(self) -> bool:
        return self._ended.done()

    @property
    def applied(self) -> dict[BrokerId, int]:
        """How much of the metadata each broker has followed that was heard in this office."""
        return dict(self._applied)

    def begin(self) -> None:
        heard = self._means.quorum.status().last_heard
        self._step(
            TookOffice(
                brokers=self._brokers,
                now_ms=self._means.now_ms(),
                last_heard=None if heard is None else (BrokerId(heard[0]), heard[1]),
            )
        )
        self._start(self._watch_the_clock())
        self._start(self._keep_balance())

    def end(self) -> None:
        """Let everybody go who waits. Nothing is decided here any more (N4)."""
        if not self._ended.done():
            self._ended.set_result(None)
            for task in self._tasks:
                task.cancel()

    async def until_ended(self) -> None:
        await asyncio.wait({self._ended})

    async def until_idle(self) -> None:
        """Wait for what was under way when the office ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def follow(self, image: MetadataImage) -> None:
        """Take in the next image."""
        if image.controller_epoch != self.epoch:
            self.end()
        elif image.brokers is not self._brokers:
            self._brokers = image.brokers
            lives = {(key, one.broker_epoch) for key, one in image.brokers.items()}
            self._streams = {life: one for life, one in self._streams.items() if life in lives}
            self._applied = {key: n for key, n in self._applied.items() if key in image.brokers}
            self._step(BrokersChanged(brokers=image.brokers, now_ms=self._means.now_ms()))

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────

    def beat(self, stream: Stream, beat: Beat) -> BeatAnswer | None:
        """Hear a broker; None if a later line has taken the place of this one (N1)."""
        life = (beat.broker_id, beat.broker_epoch)
        current = self._streams.get(life)
        if current is not None and current.number > stream.number:
            return None
        effects = self._liveness.step(heard(beat, self._means.now_ms()))
        answer = next(one for one in effects if isinstance(one, AnswerHeartbeat))
        if answer.refusal is None:
            stream.life, self._streams[life] = life, stream
            before = self._applied.get(beat.broker_id, -1)
            self._applied[beat.broker_id] = max(before, beat.applied_version)
        self._carry_out(effects)
        version = self._means.feed.image.version
        return BeatAnswer(answer.refusal, answer.is_fenced, answer.may_exit, version)

    def line_ended(self, stream: Stream, *, is_goodbye: bool) -> None:
        life = stream.life
        # None: it was heard in an earlier office of this node, and not yet in this one.
        if life is None or self._streams.get(life) not in (stream, None):
            return
        # The probe goes to where it came from (rule 11a).
        self._streams[life] = Stream(stream.number, stream.peer)
        broker = self._brokers.get(life[0])
        # One that said it would go and is gone must not be waited for when it starts again.
        is_leaving = broker is not None and broker.shutdown_version is not None
        if not is_goodbye or is_leaving:
            now_ms = self._means.now_ms()
            self._step(StreamBroke(broker_id=life[0], broker_epoch=life[1], now_ms=now_ms))

    # ── Registration ──────────────────────────────────────────────────────────────────────────

    async def register(self, wanted: Registration) -> Registered | Denied | None:
        """Begin the life that is wanted, if its id is free; None if the office ended."""
        admitted = await self._admission(wanted)
        if admitted is None:
            return None
        if isinstance(admitted, str):
            return Denied(ErrorCode.DUPLICATE_BROKER_REGISTRATION, admitted)
        try:
            data = encode_proposal(Proposal(NO_REQUEST, registration(wanted, admitted)))
        except RequestError as error:
            return Denied(error.code, error.sentence)
        outcome = await self.while_in_office(self._commit(data))
        if outcome is None:
            return None
        if outcome.refusal is not None:
            return Denied(outcome.refusal.code, outcome.refusal.sentence)
        ensure(outcome.epoch is not None, "a registration that was not refused has an epoch")
        facts = {"broker": wanted.broker_id, "epoch": outcome.epoch, "host": wanted.host}
        self._means.tell("broker_registered", facts)
        return Registered(outcome.epoch or 0)

    async def _admission(self, wanted: Registration) -> int | str | None:
        """Return the epoch to replace, or why not; None if the office ended."""
        key = (wanted.broker_id, wanted.incarnation)
        future: asyncio.Future[int | str] = asyncio.get_running_loop().create_future()
        self._asking.setdefault(key, []).append(future)
        asked = RegistrationAsked(
            broker_id=wanted.broker_id,
            incarnation=wanted.incarnation,
            now_ms=self._means.now_ms(),
        )
        self._step(asked)
        waited_for: set[asyncio.Future[Any]] = {future, self._ended}
        try:
            await asyncio.wait(waited_for, timeout=ADMISSION_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking = self._asking.get(key, [])
            if future in asking:
                asking.remove(future)
            if not asking:
                self._asking.pop(key, None)
        if future.done():
            return future.result()
        return None if self.has_ended else "It is not known yet who is this broker; try again."

    def _admit(self, key: tuple[BrokerId, UUID], answer: int | str) -> None:
        for future in self._asking.pop(key, []):
            if not future.done():
                future.set_result(answer)

    # ── What is wanted done ───────────────────────────────────────────────────────────────────

    def _step(self, event: Event) -> None:
        if not self.has_ended:
            self._carry_out(self._liveness.step(event))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Probe():
                    self._start(self._probe(effect, self._brokers[effect.broker_id]))
                case ProposeFence() | ProposeUnfence() | ProposeShutdown():
                    self._wish(effect)
                case AcceptRegistration():
                    self._admit((effect.broker_id, effect.incarnation), effect.expected_epoch)
                case RefuseRegistration():
                    self._admit((effect.broker_id, effect.incarnation), effect.why)
                case AnswerHeartbeat():
                    # Whoever told the heartbeat takes it.
                    continue

    async def _probe(self, wanted: Probe, broker: BrokerInfo) -> None:
        stream = self._streams.get((wanted.broker_id, wanted.broker_epoch))
        verdict = Verdict.SILENCE
        try:
            async with asyncio.timeout(PROBE_S):
                verdict = await self._means.probe(broker, None if stream is None else stream.peer)
        except (TimeoutError, OSError):
            verdict = Verdict.SILENCE
        self._means.tell("broker_probed", {"broker": wanted.broker_id, "found": verdict.value})
        answered = ProbeAnswered(
            broker_id=wanted.broker_id,
            broker_epoch=wanted.broker_epoch,
            verdict=verdict,
            now_ms=self._means.now_ms(),
        )
        self._step(answered)

    def _wish(self, wish: Wish) -> None:
        key = (type(wish), (wish.broker_id, wish.broker_epoch))
        if key not in self._under_way:
            self._under_way.add(key)
            task = self._start(self._fulfil(wish))
            task.add_done_callback(lambda _: self._under_way.discard(key))

    async def _fulfil(self, wish: Wish) -> None:
        facts: dict[str, object] = {"broker": wish.broker_id, "epoch": wish.broker_epoch}
        if isinstance(wish, ProposeFence):
            facts["why"] = wish.why
        outcome: Outcome | None = None
        for command in commands_for(wish):
            outcome = await self.commit(command)
            if outcome is None:
                return
            if outcome.refusal is not None:
                told = {**facts, "kind": type(command).__name__, "why": outcome.refusal.sentence}
                self._means.tell("proposal_refused", told)
                return
        version = None if outcome is None else outcome.version
        self._means.tell(_DONE[type(wish)], {**facts, "version": version})

    # ── Commands ──────────────────────────────────────────────────────────────────────────────

    async def commit(self, command: Command) -> Outcome | None:
        """Have a command of this office committed; None if the office ended first."""
        return await self._commit(encode_proposal(self._requests.proposal(command)))

    async def _commit(self, data: bytes) -> Outcome | None:
        while not self.has_ended:
            found = await self._means.quorum.propose(data, COMMIT_MS)
            match found:
                case Committed():
                    return outcome_of(found)
                case Refused(why=Why.NOT_LEADER | Why.HALTED | Why.TOO_LARGE):
                    # The office is about to end; nothing is too large that was encoded.
                    return None
                case _:
                    await asyncio.sleep(RETRY_S)
        return None

    async def while_in_office(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what the work comes to; None if the office ends first."""
        task = self._start(work)
        waited_for: set[asyncio.Future[Any]] = {task, self._ended}
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() and not task.cancelled() else None

    # ── Time ──────────────────────────────────────────────────────────────────────────────────

    async def _watch_the_clock(self) -> None:
        while True:
            await asyncio.sleep(self._liveness.tick_ms / 1000)
            self._step(TimePassed(now_ms=self._means.now_ms()))

    async def _keep_balance(self) -> None:
        waited_s = 0
        while True:
            # A second at a time: the option may change while its old value is waited for.
            await asyncio.sleep(1)
            waited_s += 1
            if waited_s < self._means.balance_s():
                continue
            waited_s = 0
            if wants_balance(self._means.feed.image):
                outcome = await self.commit(ElectLeaders("preferred", None))
                if outcome is not None:
                    self._means.tell("leaders_balanced", {"version": outcome.version})

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        if self.has_ended:
            task.cancel()
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a task of the active controller failed", "exception": error}
            task.get_loop().call_exception_handler(what)


def outcome_of(committed: Committed) -> Outcome:
    """Return what came of a command, also where `apply` itself failed."""
    answer = committed.answer
    if isinstance(answer, Outcome):
        return answer
    sentence = getattr(answer, "sentence", "The command was committed and has no answer.")
    return Outcome(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, sentence))
