"""Which brokers are there: sessions on the active controller's own clock (rules 7 and 9 to 12).

A process that dies closes its sockets: its stream breaks, a probe is refused, and it is fenced at
once. It closes them one after another, so the first probe may still find a listener, and be
connected, reset and none the wiser: whoever was not found dead is probed again soon. Silence is
different: it may be the network's, so it counts only when a whole session has passed. Every
decision here becomes a command that carries the broker epoch it was made about, so that a wrong one
costs a failover and no record.

Not here: sockets and timers (the shell), and what fencing does (`brokers.py`).

V1  silence fences nobody before a full session has passed on this clock, in this office (rule 11);
    of the leader before, since this voter heard it last, with half a session to find this office
V2  a probe that finds the same incarnation, or nothing that says for certain, fences nobody (11a)
V3  while more than half of the brokers are refused it is this node that has trouble: silence (11a)
V4  a process that may be alive keeps its id: another incarnation is refused (rule 7)
V5  what is proposed is not proposed again before the retry time
V6  a broken stream is probed again and again, one probe at a time and less and less often, until it
    is back, or its broker is found dead or silent for a session
V7  whoever is about to be fenced is answered as if it were: it must not rely on being heard (13)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from ottla.controller.commands import NO_BROKER_EPOCH
from ottla.controller.image import BrokerInfo
from ottla.controller.sightings import (
    AcceptRegistration,
    AnswerHeartbeat,
    BrokersChanged,
    Effect,
    Event,
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
from ottla.proto.kafka.uuids import UUID

# Probes that were sent together are judged together, unless one of them takes longer than this.
GATHER_MS: Final = 50
RETRY_MS: Final = 500
# How soon somebody is probed again who was not found dead, at first and at last.
AGAIN_MIN_MS: Final = 20
AGAIN_MAX_MS: Final = 250


@dataclass(slots=True)
class _Session:
    """What is known of the registered life of a broker."""

    broker_epoch: int
    deadline_ms: int
    # None before it was heard of in this office.
    heard_ms: int | None = None
    has_stream: bool = False
    # The stream broke, and none has come since.
    is_broken: bool = False
    applied_version: int = -1
    # When the probe that is under way was sent.
    probed_ms: int | None = None
    # When to probe again, and how long to wait the next time.
    again_ms: int | None = None
    pause_ms: int = AGAIN_MIN_MS
    refused_ms: int | None = None
    is_judged: bool = True
    # A probe said so; only another life can follow.
    is_dead: bool = False
    # Before this nothing is proposed again.
    retry_ms: int = 0
    # Until then a proposal to fence it may be under way.
    condemned_ms: int = 0

    def heard(self, now_ms: int, session_ms: int) -> None:
        """Take in that it speaks, so that whatever a probe said was wrong."""
        self.deadline_ms, self.heard_ms = now_ms + session_ms, now_ms
        self.has_stream, self.is_broken = True, False
        self.again_ms, self.pause_ms = None, AGAIN_MIN_MS
        self.is_dead, self.refused_ms, self.is_judged = False, None, True

    def look_again(self, now_ms: int) -> None:
        """Plan the next probe."""
        self.again_ms = now_ms + self.pause_ms
        self.pause_ms = min(2 * self.pause_ms, AGAIN_MAX_MS)


class Liveness:
    """The sessions of all brokers, in one office of one controller."""

    __slots__ = ("_brokers", "_now_ms", "_sessions", "_waiting", "session_ms")

    def __init__(self, *, session_ms: int) -> None:
        self.session_ms: Final = session_ms
        self._brokers: Mapping[BrokerId, BrokerInfo] = {}
        self._sessions: dict[BrokerId, _Session] = {}
        # Incarnations whose registration waits for a probe.
        self._waiting: dict[BrokerId, UUID] = {}
        self._now_ms: int | None = None

    @property
    def tick_ms(self) -> int:
        """How often `TimePassed` must be told: more often while somebody is to be probed again."""
        is_waiting = any(one.again_ms is not None for one in self._sessions.values())
        most_ms = AGAIN_MIN_MS if is_waiting else GATHER_MS
        return min(most_ms, max(1, self.session_ms // 8))

    def step(self, event: Event) -> list[Effect]:
        """Take in one fact; return what must be done about it."""
        match event:
            case TookOffice():
                return self._on_took_office(event)
            case BrokersChanged():
                self._follow(event.brokers, event.now_ms)
                return []
            case HeartbeatCame():
                return self._on_heartbeat(event)
            case StreamBroke():
                return self._on_stream_broke(event)
            case ProbeAnswered():
                return self._on_probe_answered(event)
            case RegistrationAsked():
                return self._on_registration_asked(event)
            case TimePassed():
                return self._on_time_passed(event.now_ms)
            case _:
                assert_never(event)

    def describe(self) -> str:
        told = [
            f"{key}@{one.broker_epoch}{' dead' if one.is_dead else ''} until {one.deadline_ms}"
            for key, one in sorted(self._sessions.items())
        ]
        return ", ".join(told) or "no sessions"

    # ── Coming and going of registrations ─────────────────────────────────────────────────────

    def _on_took_office(self, event: TookOffice) -> list[Effect]:
        self._sessions.clear()
        self._waiting.clear()
        self._now_ms = event.now_ms
        self._follow(event.brokers, event.now_ms)
        if event.last_heard is not None:
            key, heard_ms = event.last_heard
            session = self._sessions.get(key)
            if session is not None:
                least_ms = event.now_ms + self.session_ms // 2
                until_ms = max(heard_ms + self.session_ms, least_ms)
                session.deadline_ms = min(session.deadline_ms, until_ms)
        unfenced = [key for key, one in sorted(self._brokers.items()) if not one.is_fenced]
        return [self._probe(key, event.now_ms) for key in unfenced]

    def _follow(self, brokers: Mapping[BrokerId, BrokerInfo], now_ms: int) -> None:
        for key, broker in brokers.items():
            session = self._sessions.get(key)
            if session is None or session.broker_epoch != broker.broker_epoch:
                self._sessions[key] = _Session(broker.broker_epoch, now_ms + self.session_ms)
            elif self._brokers.get(key) != broker:
                # What was proposed has happened, so the next proposal need not wait.
                session.retry_ms = session.condemned_ms = 0
        for key in [key for key in self._sessions if key not in brokers]:
            del self._sessions[key]
        self._brokers = brokers

    def _on_registration_asked(self, event: RegistrationAsked) -> list[Effect]:
        key, now_ms = event.broker_id, event.now_ms
        registered = self._brokers.get(key)
        if registered is None:
            return [AcceptRegistration(key, event.incarnation, NO_BROKER_EPOCH)]
        accept = AcceptRegistration(key, event.incarnation, registered.broker_epoch)
        session = self._live_session(key, now_ms)
        if session is None or registered.incarnation == event.incarnation:
            return [accept]
        if session.has_stream:
            return [RefuseRegistration(key, event.incarnation, "Another process is this broker.")]
        effects: list[Effect] = []
        before = self._waiting.get(key)
        if before is not None and before != event.incarnation:
            effects.append(RefuseRegistration(key, before, "Another process asked later."))
        self._waiting[key] = event.incarnation
        if session.probed_ms is None:
            effects.append(self._probe(key, now_ms))
        return effects

    def _live_session(self, key: BrokerId, now_ms: int) -> _Session | None:
        session = self._sessions.get(key)
        if session is None or session.is_dead or now_ms >= session.deadline_ms:
            return None
        return session

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────

    def _on_heartbeat(self, event: HeartbeatCame) -> list[Effect]:
        broker = self._brokers.get(event.broker_id)
        if broker is None:
            return [AnswerHeartbeat(event.broker_id, ErrorCode.BROKER_ID_NOT_REGISTERED)]
        if broker.broker_epoch != event.broker_epoch:
            return [AnswerHeartbeat(event.broker_id, ErrorCode.STALE_BROKER_EPOCH)]
        session = self._sessions.setdefault(
            event.broker_id, _Session(broker.broker_epoch, event.now_ms)
        )
        session.heard(event.now_ms, self.session_ms)
        session.applied_version = max(session.applied_version, event.applied_version)
        proposals = self._wishes(broker, session, event)
        may_exit = event.wants_shutdown and self._may_exit(broker)
        is_fenced = broker.is_fenced or event.now_ms < session.condemned_ms
        answer = AnswerHeartbeat(event.broker_id, is_fenced=is_fenced, may_exit=may_exit)
        return [answer, *proposals]

    def _wishes(self, broker: BrokerInfo, session: _Session, event: HeartbeatCame) -> list[Effect]:
        key, epoch = broker.broker_id, broker.broker_epoch
        wished: Effect | None = None
        is_leaving = event.wants_shutdown or broker.shutdown_version is not None
        if broker.is_fenced:
            is_ready = event.is_recovered and event.applied_version >= epoch
            if is_ready and not event.wants_fence and not is_leaving:
                wished = ProposeUnfence(key, epoch, event.applied_version, event.damaged)
        elif event.wants_fence:
            wished = ProposeFence(key, epoch, "it asked for it")
        elif event.wants_shutdown and broker.shutdown_version is None:
            wished = ProposeShutdown(key, epoch)
        return [] if wished is None else self._proposed(session, wished, event.now_ms)

    def _may_exit(self, broker: BrokerInfo) -> bool:
        """Whether everybody who serves clients knows that the broker leads nothing (rule 12)."""
        if broker.is_fenced:
            return True
        version = broker.shutdown_version
        if version is None:
            return False
        for key, other in self._brokers.items():
            session = self._sessions.get(key)
            is_behind = session is None or session.applied_version < version
            if other.is_active and is_behind:
                return False
        return True

    def _proposed(self, session: _Session, wished: Effect, now_ms: int) -> list[Effect]:
        if now_ms < session.retry_ms:
            return []
        session.retry_ms = now_ms + RETRY_MS
        if isinstance(wished, ProposeFence):
            session.condemned_ms = session.retry_ms
        return [wished]

    # ── Broken streams and probes ─────────────────────────────────────────────────────────────

    def _on_stream_broke(self, event: StreamBroke) -> list[Effect]:
        session = self._sessions.get(event.broker_id)
        if session is None or session.broker_epoch != event.broker_epoch:
            return []
        session.has_stream, session.is_broken = False, True
        if session.probed_ms is not None or session.is_dead:
            return []
        return [self._probe(event.broker_id, event.now_ms)]

    def _probe(self, key: BrokerId, now_ms: int) -> Probe:
        session = self._sessions[key]
        session.probed_ms, session.again_ms = now_ms, None
        return Probe(key, session.broker_epoch, self._brokers[key].incarnation)

    def _on_probe_answered(self, event: ProbeAnswered) -> list[Effect]:
        key = event.broker_id
        session = self._sessions.get(key)
        if session is None or session.broker_epoch != event.broker_epoch:
            return self._judge(event.now_ms)
        sent_ms, session.probed_ms = session.probed_ms, None
        effects: list[Effect] = []
        has_spoken_since = (
            sent_ms is not None and session.heard_ms is not None and session.heard_ms > sent_ms
        )
        if has_spoken_since or event.verdict is Verdict.SAME_INCARNATION:
            effects = self._turn_away(key, "Another process is this broker.")
            if session.is_broken:
                session.look_again(event.now_ms)
        elif event.verdict is Verdict.OTHER_INCARNATION:
            effects = self._bury(key, "it has started again", event.now_ms)
        elif event.verdict is Verdict.REFUSED and self._brokers[key].shutdown_version is not None:
            # It said that it would go, so this is no sign of trouble.
            effects = self._bury(key, "it has shut down", event.now_ms)
        elif event.verdict is Verdict.REFUSED:
            session.refused_ms, session.is_judged = event.now_ms, False
        else:
            effects = self._turn_away(key, "Another process may be this broker; try again.")
            if not session.has_stream:
                session.look_again(event.now_ms)
        return effects + self._judge(event.now_ms)

    def _judge(self, now_ms: int) -> list[Effect]:
        """Fence who was refused, once the probes that were sent with theirs are answered."""
        unjudged = {key: one for key, one in self._sessions.items() if not one.is_judged}
        if not unjudged:
            return []
        first_ms = min(one.refused_ms or 0 for one in unjudged.values())
        is_gathering = any(one.probed_ms is not None for one in self._sessions.values())
        if is_gathering and now_ms < first_ms + GATHER_MS:
            return []
        refused = {
            key
            for key, one in self._sessions.items()
            if one.refused_ms is not None and now_ms < one.refused_ms + self.session_ms
        }
        unfenced = {key for key, one in self._brokers.items() if not one.is_fenced}
        is_our_trouble = 2 * len(refused) > len(unfenced | refused)
        effects: list[Effect] = []
        for key in sorted(unjudged):
            unjudged[key].is_judged = True
            if is_our_trouble:
                effects += self._turn_away(key, "Too many brokers cannot be reached; try again.")
            else:
                effects += self._bury(key, "nobody listens at its address", now_ms)
        return effects

    def _bury(self, key: BrokerId, why: str, now_ms: int) -> list[Effect]:
        session, broker = self._sessions[key], self._brokers[key]
        session.is_dead = True
        incarnation = self._waiting.pop(key, None)
        if incarnation is not None:
            # The registration ends the old life itself, so one command does for both.
            return [AcceptRegistration(key, incarnation, broker.broker_epoch)]
        if broker.is_fenced:
            return []
        return self._proposed(session, ProposeFence(key, broker.broker_epoch, why), now_ms)

    def _turn_away(self, key: BrokerId, why: str) -> list[Effect]:
        incarnation = self._waiting.pop(key, None)
        return [] if incarnation is None else [RefuseRegistration(key, incarnation, why)]

    # ── Time ──────────────────────────────────────────────────────────────────────────────────

    def _on_time_passed(self, now_ms: int) -> list[Effect]:
        self._forgive_pause(now_ms)
        effects = self._judge(now_ms)
        for key, session in sorted(self._sessions.items()):
            broker = self._brokers[key]
            is_over = broker.is_fenced or session.is_dead or now_ms >= session.deadline_ms
            if session.again_ms is not None and (is_over or now_ms >= session.again_ms):
                session.again_ms = None
                if not is_over:
                    effects.append(self._probe(key, now_ms))
            if broker.is_fenced or not is_over:
                continue
            why = "it is dead" if session.is_dead else "it was silent for a whole session"
            fence = ProposeFence(key, broker.broker_epoch, why)
            effects += self._proposed(session, fence, now_ms)
        return effects

    def _forgive_pause(self, now_ms: int) -> None:
        """Give everybody the time that this process slept: nobody could be heard meanwhile."""
        before, self._now_ms = self._now_ms, now_ms
        if before is None or now_ms - before <= self.session_ms // 2:
            return
        for session in self._sessions.values():
            session.deadline_ms += now_ms - before
