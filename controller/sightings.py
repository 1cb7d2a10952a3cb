"""What the active controller sees of brokers, and what it wants done about it.

Not here: deciding (`liveness.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.controller.commands import Partitions
from ottla.controller.image import BrokerInfo
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID


class Verdict(Enum):
    """What a probe found (rule 11a)."""

    # Nobody listens at the address of the broken stream.
    REFUSED = "refused"
    # The node is there, and has started again since.
    OTHER_INCARNATION = "other incarnation"
    SAME_INCARNATION = "same incarnation"
    # Anything else: a time-out, a reset, another node, trouble of our own.
    SILENCE = "silence"


# ── Events ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class TookOffice:
    """This node's `TakeOffice` was applied: from now on it watches over the brokers."""

    brokers: Mapping[BrokerId, BrokerInfo]
    now_ms: int
    # The node whose office came before, and when this one heard it last: it was listened to all
    # the time, so that its silence has begun already.
    last_heard: tuple[BrokerId, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersChanged:
    """A command about brokers was applied."""

    brokers: Mapping[BrokerId, BrokerInfo]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatCame:
    """A broker said how it is (rule 10)."""

    broker_id: BrokerId
    broker_epoch: int
    # How much of the metadata it has followed.
    applied_version: int
    # Its logs are read and mended.
    is_recovered: bool
    wants_fence: bool = False
    wants_shutdown: bool = False
    # What its disk does not hold although it should; complete once it is recovered.
    damaged: Partitions = field(default_factory=dict)
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBroke:
    """The stream of heartbeats of this life of a broker ended without a good-bye."""

    broker_id: BrokerId
    broker_epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswered:
    """Every `Probe` is answered, in the end by `SILENCE`."""

    broker_id: BrokerId
    broker_epoch: int
    verdict: Verdict
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationAsked:
    """A process wants to be this broker (rule 7)."""

    broker_id: BrokerId
    incarnation: UUID
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Told at least every `tick_ms`, so that a pause of this process can be noticed."""

    now_ms: int


Event = (
    TookOffice
    | BrokersChanged
    | HeartbeatCame
    | StreamBroke
    | ProbeAnswered
    | RegistrationAsked
    | TimePassed
)


# ── Effects ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Probe:
    """Connect to where the broken stream came from and ask who is there (rule 11a)."""

    broker_id: BrokerId
    broker_epoch: int
    incarnation: UUID


@dataclass(frozen=True, slots=True)
class ProposeFence:
    """Propose `FenceBroker`."""

    broker_id: BrokerId
    broker_epoch: int
    # For people, in the log.
    why: str


@dataclass(frozen=True, slots=True)
class ProposeUnfence:
    """Propose `UnfenceBroker`."""

    broker_id: BrokerId
    broker_epoch: int
    applied_version: int
    damaged: Partitions


@dataclass(frozen=True, slots=True)
class ProposeShutdown:
    """Propose `BeginShutdown`."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class AnswerHeartbeat:
    """Answer the heartbeat that was just told."""

    broker_id: BrokerId
    refusal: ErrorCode | None = None
    is_fenced: bool = True
    # The controlled shutdown is done (rule 12).
    may_exit: bool = False


@dataclass(frozen=True, slots=True)
class AcceptRegistration:
    """Propose `RegisterBroker` in place of the life with this epoch."""

    broker_id: BrokerId
    incarnation: UUID
    expected_epoch: int


@dataclass(frozen=True, slots=True)
class RefuseRegistration:
    """Answer DUPLICATE_BROKER_REGISTRATION, for this reason."""

    broker_id: BrokerId
    incarnation: UUID
    why: str


Effect = (
    Probe
    | ProposeFence
    | ProposeUnfence
    | ProposeShutdown
    | AnswerHeartbeat
    | AcceptRegistration
    | RefuseRegistration
)
