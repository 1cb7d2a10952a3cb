"""What an active controller proposes: by itself, for a broker that registers, and for brokers.

Not here: when (`liveness.py`, and the shell's timers), and proposing (`active.py`).

F1  one `Requests` gives every number once, and there is one of them for a session
F2  every command that is made here fits into one proposal
F3  a broker has only that proposed which is in `FORWARDED`, in its own name
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from ottla.controller.commands import (
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    ForgetBroker,
    Partitions,
    RegisterBroker,
    ReportDamage,
    SetFeatureLevel,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.door import Beat, Registration
from ottla.controller.election import active_brokers, prefer, terms_of
from ottla.controller.image import MetadataImage
from ottla.controller.proposal import Proposal, RequestId, decode_proposal
from ottla.controller.sightings import (
    HeartbeatCame,
    ProposeFence,
    ProposeShutdown,
    ProposeUnfence,
)
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

# A topic id and the number of its runs take 19 bytes, and a run of numbers takes up to 8: of these
# many pieces, a command stays below 32 KiB whatever they are.
_PIECES_MAX: Final = 1500

# What people ask brokers for; who asked is told in the log.
ADMIN: Final[frozenset[type[Command]]] = frozenset(
    {
        CreateTopic,
        DeleteTopic,
        CreatePartitions,
        ChangeConfigs,
        ForgetBroker,
        ElectLeaders,
        SetFeatureLevel,
    }
)
# What the active controller proposes for a broker. The rest it decides on by itself (F3).
FORWARDED: Final = ADMIN | {TakeProducerIds, AlterPartitions, ReportDamage}


class Requests:
    """Numbers the commands of one life of a broker, or of one office (rule 68)."""

    __slots__ = ("_numbers", "epoch", "node_id")

    def __init__(self, node_id: BrokerId, epoch: int) -> None:
        self.node_id: Final = node_id
        self.epoch: Final = epoch
        self._numbers = count()

    def proposal(self, command: Command) -> Proposal:
        """Return a command under the next number. To ask again, send the very same bytes."""
        return Proposal(RequestId(self.node_id, self.epoch, next(self._numbers)), command)


def commands_for(wished: ProposeFence | ProposeUnfence | ProposeShutdown) -> list[Command]:
    """Return the commands to propose, one after the other; the last one does what is wished."""
    key, epoch = wished.broker_id, wished.broker_epoch
    match wished:
        case ProposeFence():
            return [FenceBroker(key, epoch)]
        case ProposeShutdown():
            return [BeginShutdown(key, epoch)]
        case ProposeUnfence():
            *before, last = in_pieces(wished.damaged)
            reports = [ReportDamage(key, epoch, piece) for piece in before]
            return [*reports, UnfenceBroker(key, epoch, wished.applied_version, last)]


def in_pieces(damaged: Partitions) -> Iterator[Partitions]:
    """Yield what is damaged in pieces that fit into a command each; at least one."""
    piece: dict[UUID, tuple[int, ...]] = {}
    room = _PIECES_MAX
    for topic_id, indexes in damaged.items():
        left = indexes
        while left:
            if room < 2:
                yield piece
                piece, room = {}, _PIECES_MAX
            # One for the topic, and at most one for each number.
            taken = left[: room - 1]
            piece[topic_id], left = taken, left[len(taken) :]
            room -= 1 + len(taken)
    yield piece


# ── For brokers ───────────────────────────────────────────────────────────────────────────────


def forwarded(data: bytes, *, caller: int | None, feature_level: int) -> Proposal:
    """Return what a broker wants proposed, or raise `RequestError`.

    `caller` is the node that is known to ask; None where nothing proves who it is.
    """
    proposal = decode_proposal(data, feature_level=feature_level)
    node_id, command = proposal.request.node_id, proposal.command
    if type(command) not in FORWARDED:
        kind = type(command).__name__
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"{kind} is for the active controller alone to propose."
        )
    if caller is not None and node_id != caller:
        raise RequestError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"Node {caller} may not propose in the name of node {node_id}.",
        )
    if isinstance(command, AlterPartitions | ReportDamage) and command.broker_id != node_id:
        raise RequestError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"Node {node_id} may not change partitions in the name of broker {command.broker_id}.",
        )
    return proposal


def registration(wanted: Registration, expected_epoch: int) -> RegisterBroker:
    """Return the command that begins the life which a process wants."""
    return RegisterBroker(
        cluster_id=wanted.cluster_id,
        broker_id=wanted.broker_id,
        incarnation=wanted.incarnation,
        expected_epoch=expected_epoch,
        directory_id=wanted.directory_id,
        boot_id=wanted.boot_id,
        previous_epoch=wanted.previous_epoch,
        host=wanted.host,
        port=wanted.port,
        internal_host=wanted.internal_host,
        internal_port=wanted.internal_port,
        rack=wanted.rack,
        feature_level_max=wanted.feature_level_max,
        endpoints=wanted.endpoints,
    )


def heard(beat: Beat, now_ms: int) -> HeartbeatCame:
    return HeartbeatCame(
        broker_id=beat.broker_id,
        broker_epoch=beat.broker_epoch,
        applied_version=beat.applied_version,
        is_recovered=beat.is_recovered,
        wants_fence=beat.wants_fence,
        wants_shutdown=beat.wants_shutdown,
        damaged=beat.damaged,
        now_ms=now_ms,
    )


# ── Balance ───────────────────────────────────────────────────────────────────────────────────


def wants_balance(image: MetadataImage) -> bool:
    """Whether `ElectLeaders("preferred", None)` would change anything."""
    active = active_brokers(image)
    for topic in image.topics.values():
        terms = terms_of(image, topic, active)
        if any(prefer(one, terms) is not one for one in topic.partitions):
            return True
    return False
