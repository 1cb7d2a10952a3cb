"""A controller process: a real member of the quorum with the real metadata, and a small driver.

The driver does what the shell of an active controller does: it takes office when its member leads,
feeds the real `Liveness` with what it sees of brokers, and proposes what that wants. The rest of
the process is real, down to the journal; only disk, wire, clock and dice are simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.controller.commands import Command, ElectLeaders, TakeOffice
from ottla.controller.door import (
    Beat,
    BeatAnswer,
    Denied,
    NotActive,
    Registered,
    Registration,
)
from ottla.controller.image import ClusterDefaults, MetadataImage
from ottla.controller.liveness import Liveness
from ottla.controller.office import (
    Requests,
    commands_for,
    heard,
    registration,
    wants_balance,
)
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import NO_REQUEST, Proposal, encode_proposal
from ottla.controller.quorum.port import Committed
from ottla.controller.quorum.port import Outcome as Told
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
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.sim.cluster.members import TIMEOUT_MS, MemberProcess

if TYPE_CHECKING:
    pass

SESSION_MS = 600
# What a broker is told: the outcome, or None and perhaps who is active.
Reply = Callable[[Outcome | None, int | None], None]
# With it goes, unseen by the broker, the version at which it was fenced last.
BeatReply = Callable[[BeatAnswer | NotActive, int], None]
RegistrationReply = Callable[[Registered | NotActive | Denied | None], None]


class ControllerProcess(MemberProcess):
    """One controller, active while its member leads and has taken office."""

    def _forget(self) -> None:
        super()._forget()
        self.office: Requests | None = None
        self.liveness: Liveness | None = None
        self._office_term = -1
        self._is_asking = False
        self._streams: dict[int, int] = {}
        self._replies: dict[UUID, tuple[Registration, RegistrationReply]] = {}

    @property
    def is_active(self) -> bool:
        return self.office is not None and self.leads

    def applied(
        self, before: MetadataImage, after: MetadataImage, command: bytes, outcome: Outcome
    ) -> None:
        super().applied(before, after, command, outcome)
        if self.office is not None and before.brokers is not after.brokers:
            self.world.schedule.after(0, "brokers changed", self._brokers_changed, self.node_id)

    # ── The office ────────────────────────────────────────────────────────────────────────────

    def _after_tick(self) -> None:
        if not self.leads:
            if self.office is not None:
                self._forget()
            return
        assert self.member is not None
        term = self.member._raft.term
        if self._office_term == term:
            self._see(TimePassed(now_ms=self.world.schedule.now_ms))
        elif not self._is_asking:
            self._is_asking = True
            image = self.image
            command = TakeOffice(BrokerId(self.node_id), image.controller_epoch, ClusterDefaults())
            data = encode_proposal(Proposal(NO_REQUEST, command))
            self.member.propose(data, TIMEOUT_MS, partial(self._took_office, self.life, term))

    def _took_office(self, life: int, term: int, told: Told) -> None:
        if life != self.life:
            return
        self._is_asking = False
        if not isinstance(told, Committed) or not isinstance(told.answer, Outcome):
            return
        epoch = told.answer.epoch
        if epoch is None or self.image.controller_epoch != epoch or not self.leads:
            return
        self._office_term = term
        self.world.invariants.took_office(self.node_id, self.image)
        self.office = Requests(BrokerId(self.node_id), epoch)
        self.liveness = Liveness(session_ms=SESSION_MS)
        self.world.schedule.note("controller %d takes office %d", self.node_id, epoch)
        assert self.member is not None
        heard = self.member.status().last_heard
        self._see(
            TookOffice(
                brokers=self.image.brokers,
                now_ms=self.world.schedule.now_ms,
                last_heard=None if heard is None else (BrokerId(heard[0]), heard[1]),
            )
        )

    def _brokers_changed(self) -> None:
        self._see(BrokersChanged(brokers=self.image.brokers, now_ms=self.world.schedule.now_ms))

    def propose(self, command: Command, done: Callable[[Outcome], None] | None = None) -> None:
        """Propose something by itself, if it is in office."""
        if self.office is None or self.member is None:
            return
        proposal = self.office.proposal(command)

        def proposed(told: Told) -> None:
            if isinstance(told, Committed) and isinstance(told.answer, Outcome):
                self.world.acknowledge(self.node_id, proposal.request, told.answer)
                if done is not None:
                    done(told.answer)

        self.member.propose(encode_proposal(proposal), TIMEOUT_MS, proposed)

    def balance(self) -> None:
        if self.is_active and wants_balance(self.image):
            self.propose(ElectLeaders("preferred", None))

    # ── What brokers ask ──────────────────────────────────────────────────────────────────────

    def take_proposal(self, data: bytes, reply: Reply) -> None:
        if not self.is_active or self.member is None:
            reply(None, None if self.member is None else self.member.leader)
            return

        def done(told: Told) -> None:
            answer = told.answer if isinstance(told, Committed) else None
            reply(answer if isinstance(answer, Outcome) else None, None)

        self.member.propose(data, TIMEOUT_MS, done)

    def take_registration(self, wanted: Registration, reply: RegistrationReply) -> None:
        if not self.is_active:
            reply(self._not_active())
            return
        self._replies[wanted.incarnation] = (wanted, reply)
        asked = RegistrationAsked(
            broker_id=wanted.broker_id,
            incarnation=wanted.incarnation,
            now_ms=self.world.schedule.now_ms,
        )
        self._see(asked)

    def take_heartbeat(self, beat: Beat, reply: BeatReply) -> None:
        if not self.is_active:
            reply(self._not_active(), -1)
            return
        self._streams[beat.broker_id] = beat.broker_epoch
        for effect in self._see(heard(beat, self.world.schedule.now_ms)):
            if isinstance(effect, AnswerHeartbeat):
                told = (effect.refusal, effect.is_fenced, effect.may_exit, self.image.version)
                life, version = (beat.broker_id, beat.broker_epoch), self.image.version
                reply(BeatAnswer(*told), self.world.invariants.fenced_at(*life, version))

    def _not_active(self) -> NotActive:
        return NotActive(None if self.member is None else self.member.leader)

    def end_line(self, broker_id: int, is_goodbye: bool) -> None:
        if is_goodbye:
            self._streams.pop(broker_id, None)
        else:
            self.break_stream(broker_id)

    def break_stream(self, broker_id: int) -> None:
        """The heartbeats of a broker end without a good-bye."""
        epoch = self._streams.pop(broker_id, None)
        if epoch is not None and self.is_active:
            now_ms = self.world.schedule.now_ms
            broke = StreamBroke(broker_id=BrokerId(broker_id), broker_epoch=epoch, now_ms=now_ms)
            self._see(broke)

    def _see(self, event: Event) -> list[Effect]:
        if self.liveness is None or self.office is None:
            return []
        if self.image.controller_epoch != self.office.epoch:
            # Another has taken office since.
            self._forget()
            return []
        effects = self.liveness.step(event)
        for effect in effects:
            self._do(effect)
        return effects

    def _do(self, effect: Effect) -> None:
        match effect:
            case Probe():
                self._probe(effect)
            case ProposeFence() | ProposeUnfence() | ProposeShutdown():
                for command in commands_for(effect):
                    self.propose(command)
            case AcceptRegistration():
                self._register(effect)
            case RefuseRegistration():
                asked = self._replies.pop(effect.incarnation, None)
                if asked is not None:
                    asked[1](Denied(ErrorCode.DUPLICATE_BROKER_REGISTRATION, effect.why))
            case AnswerHeartbeat():
                pass

    def _register(self, accepted: AcceptRegistration) -> None:
        asked = self._replies.pop(accepted.incarnation, None)
        if asked is None:
            return
        wanted, reply = asked
        command = registration(wanted, accepted.expected_epoch)

        def answer(outcome: Outcome | None, active: int | None) -> None:
            if outcome is None:
                reply(None if active is None else NotActive(active))
            elif outcome.epoch is not None:
                reply(Registered(outcome.epoch))
            elif outcome.refusal is not None:
                reply(Denied(outcome.refusal.code, outcome.refusal.sentence))

        self.take_proposal(encode_proposal(Proposal(NO_REQUEST, command)), answer)

    def _probe(self, probe: Probe) -> None:
        life, office = self.life, self.office

        def answered(verdict: Verdict) -> None:
            if life == self.life and office is self.office and self.is_active:
                found = ProbeAnswered(
                    broker_id=probe.broker_id,
                    broker_epoch=probe.broker_epoch,
                    verdict=verdict,
                    now_ms=self.world.schedule.now_ms,
                )
                self._see(found)

        self.world.probe(self.node_id, probe, answered)
