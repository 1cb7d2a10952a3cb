"""This process as a broker: it follows the metadata, registers, beats, and says good-bye.

Three tasks and a timer: one follows the metadata at one controller after another, one asks the
question that is under way (a registration or a heartbeat), and one looks now and then whether what
is followed keeps up with the active controller. What to do when is decided in
`controller/broker_life.py`.

Not here: what is done with the metadata (`following.py`), and how controllers are reached
(`internal/`).

J1  news are taken one after the other, and never given up half-way for a better controller
J2  a controller that is cut off does not hold this broker back for longer than about a session
J3  whatever a door raises, the life goes on: what is not an answer is silence
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ottla.controller.broker_life import BrokerLife, State
from ottla.controller.commands import Partitions
from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    Door,
    DoorClosedError,
    Line,
    News,
    NotActive,
    Registered,
    Registration,
)
from ottla.controller.image import MetadataImage
from ottla.controller.lifesigns import (
    BeatAnswered,
    CloseLine,
    Die,
    Doomed,
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
    ShutdownWanted,
    TimePassed,
)
from ottla.controller.seeking import PAUSE_MS
from ottla.node.clock import Clock
from ottla.node.cluster import ClusterController
from ottla.node.facts import BrokerFacts, broker_facts
from ottla.node.logs import logger
from ottla.node.misplaced import Elsewhere
from ottla.proto.errors import ConfigError, CorruptionError, InvariantError, StorageError

_log = logger("node.lifeline")

# How often somebody who waits for the first registration is told why.
_PATIENCE_S: Final = 5.0
_GOODBYE_S: Final = 1.0
# For making the logs of many partitions.
_OBEY_S: Final = 10.0


class Lifeline:
    """Keeps this broker in the cluster, over the doors of its controllers."""

    def __init__(
        self,
        *,
        registration: Registration,
        doors: Mapping[int, Door],
        clock: Clock,
        session_ms: Callable[[], int],
        heartbeat_ms: Callable[[], int],
        follower: ClusterController,
        on_death: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._registration = registration
        self._doors: Final = doors
        self._clock: Final = clock
        self._session_ms: Final = session_ms
        self._heartbeat_ms: Final = heartbeat_ms
        self._follower: Final = follower
        self._on_death: Final = on_death
        self._life: Final = BrokerLife(
            broker_id=registration.broker_id,
            incarnation=registration.incarnation,
            controllers=tuple(doors),
            session_ms=session_ms(),
            heartbeat_ms=heartbeat_ms(),
        )
        # The controller in this process is the first to be followed.
        self._sources: Final = sorted(doors, key=lambda one: one != registration.broker_id)
        self._source: int | None = None
        self._next_source: int | None = None
        self._stream: asyncio.Task[bool] | None = None
        self._line: Line | None = None
        self._question: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # How far the metadata has come, as the active controller said, and when it said so.
        self._newest = -1
        self._answered_ms: int | None = None
        # Why the last controller that was followed gives no metadata.
        self._why_closed: str | None = None
        self._elsewhere: Final = Elsewhere(len(doors))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._moved = asyncio.Event()
        # Why this broker wants to be fenced, or None.
        self._fence_reason: str | None = None
        # Who was last told of in the log.
        self._heard_by: int | None = None
        self._is_stopped = False

    # ── What the node asks ────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> State:
        return self._life.state

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of this life; None while it is not registered."""
        return self._life.broker_epoch

    @property
    def active_controller(self) -> int | None:
        """Who is active, as far as this broker heard."""
        return self._life.believed

    @property
    def source(self) -> int | None:
        """Whose metadata this broker follows at the moment."""
        return self._source

    def facts(self) -> BrokerFacts:
        """What is told of this broker."""
        return replace(
            broker_facts(self._life, self._now(), self._answered_ms, self._newest),
            trouble=self._why_closed,
            not_obeyed=self._follower.following.trouble,
            fence_reason=self._fence_reason,
        )

    def is_heard(self, now_ms: int) -> bool:
        """Whether a beat sent within the session was answered by the active controller (13a).

        `now_ms` is the clock's `monotonic_ms`.
        """
        return self._life.is_heard(now_ms)

    def _obeyed(self, image: MetadataImage) -> None:
        self._follower.note_office()
        self._step(Followed(image=image, now_ms=self._now()))

    async def start(self) -> None:
        """Begin to follow the metadata."""
        self._follower.following.on_obeyed = self._obeyed
        self._spawn(self._follow())
        self._spawn(self._keep_up())

    async def first_image(self) -> MetadataImage:
        """Wait until this node has followed any image at all."""
        await self._until(
            lambda: self._follower.following.has_image,
            lambda: _log.warning(
                "metadata_waits", controllers=list(self._doors), why=self._why_closed or "unknown"
            ),
        )
        return self._follower.image

    def belongs_to(self, cluster_id: str) -> None:
        """Register with this cluster: a node that is new learns it from the first image."""
        self._registration = replace(self._registration, cluster_id=cluster_id)

    async def register(self) -> int:
        """Return the broker epoch, however long it takes; raises `ConfigError` if it never will."""
        self._step(RegistrationWanted(now_ms=self._now()))
        await self._until(lambda: self._life.broker_epoch is not None, self._tell_waiting)
        assert self._life.broker_epoch is not None
        return self._life.broker_epoch

    def recovered(self, damaged: Partitions) -> None:
        """Tell the controllers that the logs are read and mended, but for these."""
        self._step(Recovered(damaged=damaged, now_ms=self._now()))

    def want_fence(self, why: str) -> None:
        """Ask to be fenced, now and for as long as this process lives (rule 48).

        What is led here moves to others at once. The node stays up, for whoever has to look at it.
        """
        if self._fence_reason is None:
            self._fence_reason = why
            _log.error("fence_wanted", reason=why)
            self._step(FenceWanted(now_ms=self._now()))

    async def unfenced(self) -> None:
        """Wait until this broker may lead, and sees so in its own image."""
        await self._until(
            lambda: self._life.state is State.UNFENCED and self._is_unfenced_here(),
            lambda: _log.warning(
                "unfencing_waits", life=self._life.describe(), why=self._fence_reason or "unknown"
            ),
        )

    async def shut_down(self, timeout_ms: int) -> bool:
        """Give every leadership away; True: nobody relies on this broker any more (rule 12)."""
        self._step(ShutdownWanted(now_ms=self._now()))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._until(lambda: self._life.state is State.MAY_EXIT)
        except (TimeoutError, ConfigError):
            return False
        return True

    async def stop(self) -> None:
        """Say good-bye, and end every task; what is being obeyed is obeyed first (J1)."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        line, self._line = self._line, None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_OBEY_S):
                await self._follower.following.idle()
        if line is not None:
            await self._close(line, is_goodbye=True)

    # ── The life, and what it wants done ──────────────────────────────────────────────────────

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    def _step(self, event: Event) -> None:
        if self._is_stopped:
            return
        life = self._life
        life.session_ms, life.heartbeat_ms = self._session_ms(), self._heartbeat_ms()
        before = life.state, life.broker_epoch
        for effect in life.step(event):
            self._do(effect)
        if life.broker_epoch is not None:
            # The same epoch again is the same session.
            self._follower.begin_session(life.broker_epoch)
        if life.line is not None and life.believed is not None:
            self._follower.asking.believed = life.believed
        self._tell(*before)
        self._set_timer()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Register(number, node_id):
                self._ask(self._register_at(number, self._doors[node_id]))
            case OpenLine(node_id):
                self._line = self._doors[node_id].open_line()
            case SendBeat(number, beat):
                assert self._line is not None
                self._ask(self._beat_on(number, self._line, beat))
            case CloseLine(is_goodbye):
                self._forget_question()
                line, self._line = self._line, None
                if line is not None:
                    self._spawn(self._close(line, is_goodbye=is_goodbye))
            case Die(sentence):
                self._forget_question()
                _log.error("broker_ended", reason=sentence)
                self._on_death(sentence)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_ms = self._life.wake_ms
        if wake_ms is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(wake_ms - self._now(), 0) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._step(TimePassed(now_ms=self._now()))

    def _ask(self, question: Coroutine[Any, Any, None]) -> None:
        self._forget_question()
        self._question = self._spawn(question)

    def _forget_question(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            question.cancel()

    async def _register_at(self, number: int, door: Door) -> None:
        answer: Registered | NotActive | Denied | None = None
        try:
            answer = await door.register(self._registration)
        except DoorClosedError:
            pass
        except Exception as error:  # noqa: BLE001
            _tell_bug(error)
        if isinstance(answer, Denied):
            _log.warning("registration_refused", code=answer.code.name, reason=answer.sentence)
        self._answered(RegistrationAnswered(number=number, answer=answer, now_ms=self._now()))

    async def _beat_on(self, number: int, line: Line, beat: Beat) -> None:
        answer: BeatAnswer | NotActive | None = None
        try:
            answer = await line.beat(beat)
        except DoorClosedError:
            pass
        except Exception as error:  # noqa: BLE001
            _tell_bug(error)
        if isinstance(answer, BeatAnswer):
            self._newest = max(self._newest, answer.version)
            self._answered_ms = self._now()
        self._answered(BeatAnswered(number=number, answer=answer, now_ms=self._now()))

    def _answered(self, event: Event) -> None:
        # This task ends here: what follows must not cancel it.
        if self._question is asyncio.current_task():
            self._question = None
        self._step(event)

    async def _close(self, line: Line, *, is_goodbye: bool) -> None:
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await line.close(is_goodbye=is_goodbye)
        except (DoorClosedError, TimeoutError):
            # Whoever does not hear it probes, or waits for the session.
            pass
        except Exception as error:  # noqa: BLE001
            _tell_bug(error)

    # ── Following ─────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        """Follow one controller after another, for ever."""
        at, misses = 0, 0
        while self._life.state is not State.DEAD:
            node_id, self._next_source = self._next_source, None
            if node_id is None:
                node_id = self._sources[at % len(self._sources)]
            self._source = node_id
            version = self._follower.applied_version
            stream = asyncio.create_task(self._follow_at(self._doors[node_id]))
            self._stream = stream
            try:
                await asyncio.wait({stream})
            finally:
                stream.cancel()
                await asyncio.wait({stream})
            is_elsewhere = stream.cancelled()
            if not is_elsewhere and stream.result():
                # A gap: the same one gives a whole image.
                continue
            misses = 0 if self._follower.applied_version > version else misses + 1
            at += not is_elsewhere
            if misses >= len(self._sources):
                misses = 0
                await asyncio.sleep(PAUSE_MS / 1000)

    async def _follow_at(self, door: Door) -> bool:
        """Take the news of one controller to their end; True: there was a gap."""
        news = door.follow(*self._follower.following.position)
        try:
            async for one in news:
                if not self._follower.following.learn(one):
                    _log.info(
                        "metadata_gap", version=one.version, have=self._follower.image.version
                    )
                    return True
                self._why_closed = None
        except DoorClosedError as error:
            self._why_closed = str(error)
            if (
                why := self._elsewhere.note(self._source, error)
            ) and self._life.applied_version < 0:
                self._step(Doomed(sentence=why, now_ms=self._now()))
        except CorruptionError as error:
            _log.error("metadata_unreadable", source=self._source, error=str(error))
        except StorageError as error:
            # A newer version has written it: no controller can give anything else.
            self._step(Doomed(sentence=str(error), now_ms=self._now()))
        except InvariantError:
            raise
        except Exception as error:  # noqa: BLE001
            _tell_bug(error)
        finally:
            await _finish(news)
        return False

    async def _keep_up(self) -> None:
        """Turn to the active controller when whoever is followed falls behind it (J2)."""
        while True:
            await asyncio.sleep(self._session_ms() / 2000)
            active, version = self._life.line, self._newest
            if active is None or self._source in (None, active):
                continue
            try:
                async with asyncio.timeout(self._session_ms() / 4000):
                    await self._follower.following.reached(version)
            except TimeoutError:
                self._turn_to(active, version)

    def _turn_to(self, active: int, version: int) -> None:
        if self._follower.following.is_busy or self._stream is None:
            return
        have = self._follower.applied_version
        _log.warning("metadata_stalled", source=self._source, have=have, want=version)
        self._next_source = active
        self._stream.cancel()

    def _is_unfenced_here(self) -> bool:
        own = self._follower.image.brokers.get(self._registration.broker_id)
        return own is not None and own.broker_epoch == self._life.broker_epoch and not own.is_fenced

    # ── Waiting, tasks, telling ───────────────────────────────────────────────────────────────

    async def _until(
        self, is_so: Callable[[], bool], while_waiting: Callable[[], None] = lambda: None
    ) -> None:
        loop = asyncio.get_running_loop()
        tell_s = loop.time() + _PATIENCE_S
        while not is_so():
            if self._life.reason is not None:
                raise ConfigError(self._life.reason)
            try:
                # Something may move all the time, and nothing come of it.
                async with asyncio.timeout_at(tell_s):
                    await self._moved.wait()
            except TimeoutError:
                while_waiting()
                tell_s = loop.time() + _PATIENCE_S

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _tell_bug(error)

    def _tell_waiting(self) -> None:
        denial = self._life.last_denial
        reason = "no controller is active" if denial is None else denial.sentence
        _log.warning("registration_waits", controllers=list(self._doors), reason=reason)

    def _tell(self, was: State, epoch: int | None) -> None:
        life = self._life
        if life.broker_epoch is not None and life.broker_epoch != epoch:
            _log.info("broker_registered", epoch=life.broker_epoch, controller=life.believed)
        if life.heard_by is not None and life.heard_by != self._heard_by:
            self._heard_by = life.heard_by
            _log.info("controller_found", controller=life.heard_by)
        if life.state is was:
            return
        match life.state:
            case State.UNFENCED:
                _log.info("broker_unfenced", epoch=life.broker_epoch)
            case State.FENCED if was is State.UNFENCED:
                _log.warning("broker_fenced", epoch=life.broker_epoch)
            case State.UNREGISTERED:
                _log.warning("registration_lost", epoch=epoch)
            case State.MAY_EXIT:
                _log.info("shutdown_agreed", epoch=life.broker_epoch)
            case _:
                pass


async def _finish(news: AsyncIterator[News]) -> None:
    """Close a stream of news that has an end of its own to tidy up."""
    close = getattr(news, "aclose", None)
    if close is not None:
        await close()


def _tell_bug(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "the lifeline met an error", "exception": error}
    )
