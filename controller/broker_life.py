"""The life of this process as a broker: whom it asks, when it registers and when it beats.

  UNREGISTERED ──Registered──▶ FENCED ◀──answers──▶ UNFENCED
                                  │  shutdown wanted  │
                                  └──▶ SHUTTING_DOWN ◀┘ ──the controller agrees──▶ MAY_EXIT
  any of them ──no retry mends it──▶ DEAD

One question is under way at a time: a registration, or a heartbeat on the line to one controller. A
beat is sent every interval, and at once when something changed that the controller waits for.
What it hears decides what comes next:

  not active       turn to whoever is named, else to the next one (`seeking.py`)
  no answer        turn to another at once, and back if there is no other
  a stale epoch    register again. The same incarnation gets the same epoch back; another epoch says
                   that another process was this broker meanwhile, and that is the end of this one

Being heard says that no session of this broker has run out since, and nothing of before. A leader
that was cut off may have been fenced, replaced and, by the very beat that came through again,
unfenced: the answer sounds as if nothing had happened, and its metadata still says that it leads.
The answer tells how far the metadata had come, and whatever happened to this broker before lies
below that. So it counts once that much is followed, and what this broker then believes to lead was
true within the session. An answer that came earlier goes on to count until its own session is over.

Not here: sockets, timers and tasks (`ottla.node.lifeline`), and the other side (`liveness.py`).

H1  answers to questions that were given up change nothing
H2  `is_heard` counts from when the beat was sent, counts no beat that says "fenced", and none
    before the metadata is followed as far as the answer had it (rule 13)
H3  a live process that has our id is waited for, two sessions long; what no wait mends ends us
H4  metadata is committed, so a later life of another incarnation in it ends us, whatever is said
H5  damage is told until the controller has unfenced us, and then never again: later logs are whole
H6  who wants to be fenced says so with every beat to its end: a disk that failed is not believed
    again in this life (rule 48)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from ottla.controller.commands import Partitions
from ottla.controller.door import Beat, BeatAnswer, Denied, NotActive, Registered
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
from ottla.controller.seeking import PAUSE_MS, Seeking
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

# Sessions for which a registration waits until the other process with this id is gone.
DUPLICATE_SESSIONS: Final = 2
# A beat that is not answered within this part of the session is given up, and so is the line.
_PATIENCE_PARTS: Final = 4
# Whoever was refused asks again after a pause that grows up to this part of a session: what is in
# its way, another process above all, goes away within one or not at all.
_DENIED_PARTS: Final = 8
# While it waits for the end of its shutdown, a broker asks more often.
_SHUTDOWN_BEAT_MS: Final = 50
# Answers that wait for the metadata. Of more the oldest are forgotten, which only costs standing.
_UNPROVEN_MAX: Final = 64
_FINAL: Final = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_NOT_THIS_LIFE: Final = frozenset(
    {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED}
)


class State(Enum):
    """What this process is to the cluster, as far as it was told."""

    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting down"
    MAY_EXIT = "may exit"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class _Question:
    """What is under way."""

    number: int
    node_id: int
    sent_ms: int
    is_beat: bool


class BrokerLife:
    """One life of a broker, as the process that lives it sees it."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        incarnation: UUID,
        controllers: Sequence[int],
        session_ms: int,
        heartbeat_ms: int,
    ) -> None:
        # The options may change while the node runs.
        self.session_ms = session_ms
        self.heartbeat_ms = heartbeat_ms
        self.state = State.UNREGISTERED
        # Why it is dead.
        self.reason: str | None = None
        # What was last said against a registration.
        self.last_denial: Denied | None = None
        self.broker_epoch: int | None = None
        self.applied_version = -1
        # Whom we beat at, and who answered last as the active one.
        self.line: int | None = None
        self.heard_by: int | None = None
        # When to tell `TimePassed`; None: nothing is waited for.
        self.wake_ms: int | None = None
        self._broker_id: Final = broker_id
        self._incarnation: Final = incarnation
        self._seeking: Final = Seeking(controllers)
        self._is_wanted = False
        self._question: _Question | None = None
        self._count = 0
        # Something changed that the present question does not tell.
        self._is_urgent = False
        # When the newest beat was sent whose answer counts.
        self._heard_ms: int | None = None
        # Answers that do not count yet: their version, and when the beat was sent.
        self._unproven: deque[tuple[int, int]] = deque(maxlen=_UNPROVEN_MAX)
        # The epoch that was refused as stale, until it is given to us again.
        self._doubted_epoch: int | None = None
        # Who says since when that another process has our id.
        self._duplicate: tuple[int, int] | None = None
        self._denied_pause_ms = PAUSE_MS
        self._is_recovered = False
        self._damaged: Partitions = {}
        self._wants_fence = False
        self._wants_shutdown = False
        self._shutdown_seen = -1
        self._was_fenced: bool | None = None
        self._office = 0

    def is_heard(self, now_ms: int) -> bool:
        """Whether a beat that was sent within the session was answered by the active one (H2).

        What this broker has followed of the metadata is then no older than that beat.
        """
        return self._heard_ms is not None and now_ms < self._heard_ms + self.session_ms

    @property
    def is_fenced(self) -> bool:
        """Whether it may lead nothing, as far as it was told."""
        return self.state not in (State.UNFENCED, State.SHUTTING_DOWN)

    @property
    def believed(self) -> int | None:
        """Who is the active controller, as far as this broker heard."""
        return self._seeking.believed

    def step(self, event: Event) -> list[Effect]:
        """Take in one fact; return what must be done about it, in this order."""
        if self.state is State.DEAD:
            return []
        match event:
            case RegistrationWanted():
                return self._on_registration_wanted(event.now_ms)
            case RegistrationAnswered():
                return self._on_registration_answered(event)
            case BeatAnswered():
                return self._on_beat_answered(event)
            case Followed():
                return self._on_followed(event.image, event.now_ms)
            case Recovered():
                self._is_recovered, self._damaged = True, event.damaged
                return self._hurry(event.now_ms)
            case FenceWanted() | ShutdownWanted():
                return self._on_wish(event)
            case Doomed():
                return self._die(event.sentence)
            case TimePassed():
                return self._on_time_passed(event.now_ms)
            case _:
                assert_never(event)

    def describe(self) -> str:
        told = [self.state.value, f"epoch {self.broker_epoch}", f"applied {self.applied_version}"]
        if self._wants_fence:
            told.append("wants to be fenced")
        if self.line is not None:
            told.append(f"line to {self.line}")
        if self._question is not None:
            told.append(f"asking {self._question.node_id}")
        return ", ".join(told)

    # ── Asking ────────────────────────────────────────────────────────────────────────────────

    def _ask(self, now_ms: int) -> list[Effect]:
        """Ask the next question now, or plan to, if everybody was asked just now."""
        self._question, self.wake_ms = None, None
        if not self._is_wanted or self.state in (State.MAY_EXIT, State.DEAD):
            return []
        effects: list[Effect] = []
        node_id = self.line if self.line is not None else self._seeking.next()
        if node_id is None:
            self._seeking.begin_round()
            self.wake_ms = now_ms + PAUSE_MS
            return []
        self._count += 1
        is_beat = self.broker_epoch is not None
        self._question = _Question(self._count, node_id, now_ms, is_beat)
        patience_ms = self.session_ms // _PATIENCE_PARTS if is_beat else self.session_ms
        self.wake_ms = now_ms + max(patience_ms, 1)
        if self.broker_epoch is None:
            return [Register(self._count, node_id)]
        if self.line is None:
            self.line = node_id
            effects.append(OpenLine(node_id))
        self._is_urgent = False
        return [*effects, SendBeat(self._count, self._beat(self.broker_epoch))]

    def _beat(self, broker_epoch: int) -> Beat:
        return Beat(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            applied_version=self.applied_version,
            is_recovered=self._is_recovered,
            wants_fence=self._wants_fence,
            wants_shutdown=self._wants_shutdown,
            damaged=self._damaged if self._is_recovered else {},
        )

    def _hurry(self, now_ms: int) -> list[Effect]:
        """Beat at once: the controller waits for what is new. A search goes on as it does."""
        if self._question is not None:
            self._is_urgent = True
            return []
        return self._ask(now_ms) if self.line is not None else []

    def _hang_up(self, *, is_goodbye: bool) -> list[Effect]:
        if self.line is None:
            return []
        self.line = None
        return [CloseLine(is_goodbye)]

    def _turn_away(self, from_node: int, now_ms: int, *, is_goodbye: bool) -> list[Effect]:
        """Look for another controller than the one that did not answer."""
        self._seeking.was_silent(from_node)
        return [*self._hang_up(is_goodbye=is_goodbye), *self._ask(now_ms)]

    def _on_time_passed(self, now_ms: int) -> list[Effect]:
        if self.wake_ms is None or now_ms < self.wake_ms:
            return []
        if self._question is None:
            return self._ask(now_ms)
        return self._turn_away(self._question.node_id, now_ms, is_goodbye=True)

    # ── Registering ───────────────────────────────────────────────────────────────────────────

    def _on_registration_wanted(self, now_ms: int) -> list[Effect]:
        self._is_wanted = True
        return [] if self._question else self._ask(now_ms)

    def _on_registration_answered(self, event: RegistrationAnswered) -> list[Effect]:
        question = self._question
        if question is None or question.number != event.number:
            return []
        match event.answer:
            case Registered(epoch):
                return self._on_registered(epoch, question.node_id, event.now_ms)
            case NotActive(leader):
                self._seeking.was_named(leader)
                return self._ask(event.now_ms)
            case Denied():
                return self._on_denied(event.answer, question.node_id, event.now_ms)
            case None:
                return self._turn_away(question.node_id, event.now_ms, is_goodbye=False)
            case _:
                assert_never(event.answer)

    def _on_registered(self, epoch: int, node_id: int, now_ms: int) -> list[Effect]:
        doubted, self._doubted_epoch = self._doubted_epoch, None
        if doubted is not None and epoch != doubted:
            return self._die(self._taken_sentence())
        self._seeking.was_found(node_id)
        self._duplicate, self.last_denial = None, None
        self._denied_pause_ms = PAUSE_MS
        self.broker_epoch = epoch
        self.state = State.SHUTTING_DOWN if self._wants_shutdown else State.FENCED
        return self._ask(now_ms)

    def _on_denied(self, denied: Denied, node_id: int, now_ms: int) -> list[Effect]:
        self.last_denial = denied
        if denied.code in _FINAL:
            return self._die(f"The controllers refuse this broker: {denied.sentence}")
        # Only the active controller denies.
        self._seeking.was_found(node_id)
        if denied.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            if self._duplicate is None or self._duplicate[0] != node_id:
                # Another controller gives the other process another session.
                self._duplicate = (node_id, now_ms)
            if now_ms >= self._duplicate[1] + DUPLICATE_SESSIONS * self.session_ms:
                return self._die(
                    f"Another process is broker {self._broker_id} and does not go away: "
                    f"{denied.sentence} Stop that process, or give this node another node.id."
                )
        self._question = None
        self.wake_ms = now_ms + self._denied_pause_ms
        longest_ms = max(PAUSE_MS, self.session_ms // _DENIED_PARTS)
        self._denied_pause_ms = min(2 * self._denied_pause_ms, longest_ms)
        return []

    def _die(self, sentence: str) -> list[Effect]:
        self.state, self.reason = State.DEAD, sentence
        self._question, self.wake_ms = None, None
        self._forget_hearing()
        return [*self._hang_up(is_goodbye=True), Die(sentence)]

    def _taken_sentence(self) -> str:
        return (
            f"Another process has registered as broker {self._broker_id} since this one did. Only "
            "one process may have a node.id; look for the other, and start the right one again."
        )

    # ── Beating ───────────────────────────────────────────────────────────────────────────────

    def _on_beat_answered(self, event: BeatAnswered) -> list[Effect]:
        question = self._question
        if question is None or question.number != event.number:
            return []
        match event.answer:
            case BeatAnswer():
                self._seeking.was_found(question.node_id)
                self.heard_by = question.node_id
                return self._on_answer(event.answer, question.sent_ms, event.now_ms)
            case NotActive(leader):
                self._seeking.was_named(leader)
                return [*self._hang_up(is_goodbye=True), *self._ask(event.now_ms)]
            case None:
                return self._turn_away(question.node_id, event.now_ms, is_goodbye=False)
            case _:
                assert_never(event.answer)

    def _on_answer(self, answer: BeatAnswer, sent_ms: int, now_ms: int) -> list[Effect]:
        if answer.refusal in _NOT_THIS_LIFE:
            return self._doubt(answer.refusal, now_ms)
        if answer.refusal is None:
            self._hear(answer, sent_ms)
        if self.state is State.MAY_EXIT:
            self._question, self.wake_ms = None, None
            return []
        if self._is_urgent:
            return self._ask(now_ms)
        self._question = None
        interval_ms = self.heartbeat_ms
        if self._wants_shutdown:
            interval_ms = min(interval_ms, _SHUTDOWN_BEAT_MS)
        self.wake_ms = max(sent_ms + interval_ms, now_ms + 1)
        return []

    def _hear(self, answer: BeatAnswer, sent_ms: int) -> None:
        if answer.is_fenced:
            self._forget_hearing()
        else:
            self._damaged = {}
            if self._unproven and self._unproven[-1][0] == answer.version:
                self._unproven.pop()
            self._unproven.append((answer.version, sent_ms))
            self._prove()
        if self._wants_shutdown:
            self.state = State.MAY_EXIT if answer.may_exit else State.SHUTTING_DOWN
        else:
            self.state = State.FENCED if answer.is_fenced else State.UNFENCED

    def _prove(self) -> None:
        """Count the answers up to whose metadata this broker has followed (H2)."""
        while self._unproven and self._unproven[0][0] <= self.applied_version:
            _, self._heard_ms = self._unproven.popleft()

    def _forget_hearing(self) -> None:
        self._heard_ms = None
        self._unproven.clear()

    def _doubt(self, refusal: ErrorCode | None, now_ms: int) -> list[Effect]:
        """Register again: the controller knows another life of this broker, or none."""
        is_stale = refusal is ErrorCode.STALE_BROKER_EPOCH
        self._doubted_epoch = self.broker_epoch if is_stale else None
        self.broker_epoch = None
        self._forget_hearing()
        self.state = State.UNREGISTERED
        # Not at once: two who are wrong about each other would spin.
        self._question, self.wake_ms = None, now_ms + PAUSE_MS
        return self._hang_up(is_goodbye=True)

    # ── What changes here ─────────────────────────────────────────────────────────────────────

    def _on_wish(self, event: FenceWanted | ShutdownWanted) -> list[Effect]:
        if isinstance(event, ShutdownWanted):
            return self._on_shutdown_wanted(event.now_ms)
        self._wants_fence = True
        return self._hurry(event.now_ms)

    def _on_shutdown_wanted(self, now_ms: int) -> list[Effect]:
        self._wants_shutdown = True
        has_lived = self.broker_epoch is not None or self._doubted_epoch is not None
        if not has_lived:
            # A registration that is under way leads nothing before it beats.
            self.state = State.MAY_EXIT
            self._question, self.wake_ms = None, None
            return []
        if self.broker_epoch is not None:
            self.state = State.SHUTTING_DOWN
        return self._hurry(now_ms)

    def _on_followed(self, image: MetadataImage, now_ms: int) -> list[Effect]:
        before, self.applied_version = self.applied_version, image.version
        self._prove()
        own = image.brokers.get(self._broker_id)
        last_epoch = self._doubted_epoch if self.broker_epoch is None else self.broker_epoch
        is_other = own is not None and own.incarnation != self._incarnation
        if is_other and own and last_epoch is not None and own.broker_epoch > last_epoch:
            return self._die(self._taken_sentence())
        leaving = max((one.shutdown_version or -1 for one in image.brokers.values()), default=-1)
        was_fenced, self._was_fenced = self._was_fenced, own.is_fenced if own else None
        is_news = leaving > self._shutdown_seen or was_fenced != self._was_fenced
        self._shutdown_seen = max(leaving, self._shutdown_seen)
        if self.broker_epoch is not None and before < self.broker_epoch <= image.version:
            is_news = True
        if image.controller_epoch > self._office:
            self._office = image.controller_epoch
            return self._on_office(image.controller_id, now_ms, is_news=is_news)
        return self._hurry(now_ms) if is_news else []

    def _on_office(self, node_id: int, now_ms: int, *, is_news: bool) -> list[Effect]:
        """Somebody took office: a search ends there, at once."""
        self._seeking.was_named(node_id)
        if self.line is not None:
            # This may be old news, from before the one who hears us: a beat will tell.
            return self._hurry(now_ms) if is_news or self.line != node_id else []
        if self._question is not None and self._question.node_id == node_id:
            return []
        self._seeking.begin_round()
        return self._ask(now_ms)
